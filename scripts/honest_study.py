"""The price of honesty: two tables from raw records to a tuned model, with nothing left uncovered.

    python -m scripts.honest_study /work/honest [seeds]

The rule is in docs/privacy/honest_study.md, where the commands are, too: this script types them.
Tables come from FEDPRIV_DATA. Finished seeds are in results/honest_study.csv, and are not repeated.
Afterwards it draws docs/assets/honest_study.png and prints the page's table.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
from sklearn.metrics import roc_auc_score

import fedpriv
from fedpriv.cli import main as command
from fedpriv.comparisons.picture import WIDTH, mean_interval
from fedpriv.data import creditcard, heart_disease
from fedpriv.data.table.schema import Category, Label, Number, Schema, write_schema
from fedpriv.ledgers.data_ledger import DataLedger
from fedpriv.reports.canvas import plt, save
from fedpriv.runs.tables import METRICS, STATISTICS

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "results" / "honest_study.csv"
FIGURE = ROOT / "docs" / "assets" / "honest_study.png"
RATES = ("0.03", "0.1", "0.3", "1")
"""The grid of local_lr, for all arms."""
SCALES, EACH, ALONE, ALL = "0.8", "1.25", "2.7", "3"
"""Targets: of the scales, of each run of a grid of four, of one run alone, and of papers."""
JUDGES = 0.25
"""Share of the persons who are in no arm. The final models are compared on them."""
ARMS = {
    "none": "no privacy",
    "free": "training alone charged",
    "untuned": "all charged, default step",
    "honest": "all charged, tuned",
}
DEFAULT = "0.1"
NOISED = ("mechanism=adaptive", "algo.clip=0.1")
LEVELS = {"sex": "01", "cp": "1234", "fbs": "01", "restecg": "012", "exang": "01"}
RANGES = {
    "age": (20, 90),
    "trestbps": (80, 220),
    "chol": (0, 500),
    "thalach": (60, 220),
    "oldpeak": (-3, 7),
}
PAYMENTS = {"Time": (0, 172_800), "Amount": (0, 500)}
"""Two days in seconds, and the currency's units; components are of standardised numbers."""


@dataclass(frozen=True)
class Study:
    """A table with one row for each person, and what is public about it.

    name: of the data.
    frame: with the columns `person`, `hospital` if it has silos, and `label`.
    features: with public bounds or categories.
    silos: names of the hospitals; empty: banks, to which persons are dealt.
    """

    name: str
    frame: pd.DataFrame
    features: tuple[Number | Category, ...]
    silos: tuple[str, ...] = ()

    @property
    def dealt(self) -> tuple[str, ...]:
        """Words that deal persons to silos."""
        return ("allocator=by_user", f"allocator.n_silos={len(self.silos) or 3}")

    def training(self, rate: str) -> tuple[str, ...]:
        """The words of all arms' runs."""
        placed = () if self.silos else self.dealt
        return ("data=table", "algo=uldp_avg_w", f"algo.local_lr={rate}", *placed)

    @property
    def read_off(self) -> tuple[str, ...]:
        """Words by which everything is read off the records."""
        texts = ",".join(one.name for one in self.features if isinstance(one, Category))
        silo = ("data.silo=hospital",) if self.silos else ()
        return ("data.label=label", "data.user=person", *silo, f"data.categories=[{texts}]")

    def schema(self) -> Schema:
        label = Label("label", "classification", ("0", "1"))
        silo = "hospital" if self.silos else None
        about: Any = {"user": "person", "silo": silo, "silos": self.silos, "public": True}
        return Schema(self.features, label, len(self.frame), **about)


def hearts(folder: Path) -> Study:
    """All patients of the four hospitals, incomplete ones too."""
    parts = []
    for centre, file in heart_disease.FILES.items():
        path = folder / file.places[1]
        rows = pd.read_csv(path, names=heart_disease.COLUMNS, na_values="?")
        persons = [f"{centre} {number}" for number in range(len(rows))]
        parts.append(rows.assign(person=persons, hospital=centre))
    frame = pd.concat(parts, ignore_index=True)
    frame["label"] = (frame.pop("num") > 0).astype(int)
    frame = frame.drop(columns=heart_disease.DROPPED)
    whole = [*heart_disease.CATEGORIES, "sex", "fbs", "exang"]
    frame[whole] = frame[whole].astype("Int64")
    numbers = [Number(name, bounds) for name, bounds in RANGES.items()]
    texts = [Category(name, tuple(values)) for name, values in LEVELS.items()]
    return Study("heart_disease", frame, (*numbers, *texts), tuple(heart_disease.FILES))


def payments(folder: Path) -> Study:
    """Card payments, each taken as another person's."""
    frame = pd.read_csv(folder / creditcard.FILE.places[1]).rename(columns={"Class": "label"})
    frame["person"] = [f"card {number}" for number in range(len(frame))]
    names = creditcard.COLUMNS[:-1]
    features = tuple(Number(name, PAYMENTS.get(name, (-5, 5))) for name in names)
    return Study("creditcard", frame, features)


def charged(own: Study, folder: Path, seed: int, rates: Sequence[str], target: str) -> Path:
    """The best run of an arm whose whole path one ledger pays for."""
    folder.mkdir()
    (folder / "schema.yaml").write_text(write_schema(own.schema()))
    ledger = folder / "ledger.jsonl"
    people = [f"--population={name}:user:{ALL}" for name in ("everybody", "training", "tests")]
    shared = [f"--overlap=everybody,{name}" for name in ("training", "tests")]
    command(["ledger", "init", str(ledger), *people, *shared])
    paid = (f"ledger={ledger}", "randomness=system", "quiet=true")
    pooled = ("data.silo=null", "data.silos=[]", *own.dealt) if own.silos else own.dealt
    words = ("statistics=mean", f"target={SCALES}", "population=everybody", *pooled, *paid)
    raw = (f"data.path={folder.parent}/study.csv", f"seed={seed}")
    scales = (f"data.schema={folder}/schema.yaml", f"hydra.run.dir={folder}/scales")
    command(["analyse", *raw, *scales, *words])
    scaled = (f"data.schema={folder}/scales/schema.yaml", "data.outside=accept", "evaluation=none")
    train = (*raw, *scaled, *NOISED, f"accountant.target={target}", "population=training", *paid)
    scores = {}
    for rate in rates:
        run = folder / f"rate-{rate}"
        command([*own.training(rate), *train, f"hydra.run.dir={run}"])
        words = (f"target={target}", "population=tests", f"hydra.run.dir={run}/evaluation", *paid)
        command(["evaluate", str(run), *words])
        found = pd.read_csv(run / "evaluation" / STATISTICS).set_index("statistic")
        scores[run] = float(found.loc["accuracy", "value"])
    return max(scores, key=scores.__getitem__)


def free(own: Study, folder: Path, seed: int, *words: str) -> Path:
    """The best run of an arm that scales by the records and tunes by exact metrics."""
    raw = (f"data.path={folder.parent}/study.csv", f"seed={seed}", *own.read_off, "quiet=true")
    scores = {}
    for rate in RATES:
        run = folder / f"rate-{rate}"
        command([*own.training(rate), *raw, *words, f"hydra.run.dir={run}"])
        scores[run] = float(pd.read_csv(run / METRICS)["auc"].iloc[-1])
    return max(scores, key=scores.__getitem__)


def rows(study: Study, work: Path, seed: int) -> Iterator[dict[str, Any]]:
    """A row for the final model of each arm."""
    folder = Path(tempfile.mkdtemp(prefix=f"{study.name}-{seed}-", dir=work))
    judges = study.frame.sample(frac=JUDGES, random_state=seed)
    own = replace(study, frame=study.frame.drop(judges.index))
    own.frame.to_csv(folder / "study.csv", index=False)
    best = {
        "honest": charged(own, folder / "honest", seed, RATES, EACH),
        "untuned": charged(own, folder / "untuned", seed, [DEFAULT], ALONE),
        "free": free(own, folder / "free", seed, *NOISED, f"accountant.target={ALL}"),
        "none": free(own, folder / "none", seed, "mechanism=none"),
    }
    for arm, run in best.items():
        chances = fedpriv.load(run / "bundle").predict_proba(judges)[:, 1]
        auc = float(roc_auc_score(judges["label"], chances))
        right = float(((chances > 0.5) == judges["label"]).mean())
        ledger = run.parent / "ledger.jsonl"
        spent = DataLedger.seen(ledger).spent("everybody") if ledger.exists() else math.nan
        chosen = run.name.removeprefix("rate-")
        yield {
            "data": study.name,
            "seed": seed,
            "arm": arm,
            "rate": chosen,
            "auc": auc,
            "accuracy": right,
            "spent": spent,
        }


def aucs(table: pd.DataFrame) -> pd.DataFrame:
    """AUC by seed, a column for each arm."""
    return table.pivot(index="seed", columns="arm", values="auc")[[*ARMS]]


def page(table: pd.DataFrame) -> str:
    """The page's table: mean AUC and what it lies below the arm `free`, with 95 % intervals."""
    lines = ["| data | arm | AUC | below what papers do |", "| --- | --- | --- | --- |"]
    for name, part in table.groupby("data", sort=False):
        found = aucs(part)
        for arm, words in ARMS.items():
            lost = (found["free"] - found[arm]).to_numpy()
            shown = "" if arm == "free" else f"{lost.mean():.4f} ± {mean_interval(lost):.4f}"
            lines.append(f"| {name} | {words} | {found[arm].mean():.4f} | {shown} |")
    return "\n".join(lines)


def draw(table: pd.DataFrame, out: Path) -> None:
    """Each seed's AUC by arm, joined by grey lines, and the means with their intervals."""
    parts = table.groupby("data", sort=False)
    figure, axes = plt.subplots(1, len(parts), figsize=(WIDTH, 2.6), layout="constrained")
    for axis, (name, part) in zip(axes, parts):
        found = aucs(part)
        for place, arm in enumerate(ARMS):
            values = found[arm].to_numpy()
            mark = {"fmt": "D", "color": f"C{place}", "ms": 5, "capsize": 4, "zorder": 3}
            axis.plot(values, [place] * len(values), "o", mfc="none", mec=f"C{place}", ms=4)
            axis.errorbar(values.mean(), place, xerr=mean_interval(values), **mark)
        axis.plot(found.T.to_numpy(), range(len(ARMS)), color="0.85", lw=0.8, zorder=1)
        axis.set_title(str(name).replace("_", " "), fontsize=9)
        axis.set_xlabel("AUC on new persons", fontsize=8)
        axis.tick_params(labelsize=8)
        axis.set_yticks(range(len(ARMS)), [*ARMS.values()] if axis is axes[0] else [])
        axis.invert_yaxis()
    save(figure, out, dpi=200)


def main(work: Path, seeds: Sequence[int]) -> None:
    """Run what is missing, draw, and print the page's table."""
    work.mkdir(parents=True, exist_ok=True)
    data = Path(os.environ["FEDPRIV_DATA"])
    for seed in seeds:
        for study in (hearts(data), payments(data)):
            known = pd.read_csv(TABLE) if TABLE.exists() else pd.DataFrame(columns=["data", "seed"])
            if not ((known["data"] == study.name) & (known["seed"] == seed)).any():
                found = pd.concat([known, pd.DataFrame(rows(study, work, seed))])
                found.to_csv(TABLE, index=False, float_format="%.6g")
    table = pd.read_csv(TABLE)
    draw(table, FIGURE)
    print(page(table))


if __name__ == "__main__":
    main(Path(sys.argv[1]), [int(word) for word in sys.argv[2:]] or range(10))
