"""The price of honesty: two tables from raw records to a tuned model, with nothing left uncharged.

    python -m scripts.honest_study DATA FOLDER

The rule is in docs/privacy/honest_study.md, and the words here are those that a person types. DATA
has the folders heart_disease and creditcard; runs go to FOLDER. Seeds that are in
results/honest_study/auc.csv are not run again. Afterwards it draws docs/assets/honest_study.png.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

import pandas as pd
from sklearn.metrics import roc_auc_score

import fedpriv
from fedpriv.cli import main as command
from fedpriv.comparisons.picture import WIDTH, mean_interval
from fedpriv.data import creditcard, heart_disease
from fedpriv.reports.canvas import plt, save
from fedpriv.runs.tables import METRICS, STATISTICS

ROOT = Path(__file__).parents[1]
KNOWN = ROOT / "results" / "honest_study"
"""What is public about the tables, and the results."""
STEPS = ("0.03", "0.1", "0.3", "1")
SCALES, EACH, ALONE, DRAWN = 0.8, 1.25, 2.7, 1.3
"""Targets: of the scales; of each run of a grid of four, of one alone, of each that is drawn."""
CHOICE = (
    *("hydra/sweeper=random_number", "hydra.sweeper.mean=4", "hydra.sweeper.shape=0"),
    *(f"stop.target={DRAWN}", "stop.metric=accuracy", "stop.every=30"),
    *(f"algo.local_lr={','.join(STEPS)}", f"accountant.target={DRAWN}"),
)
PEOPLE = (
    *("--population=everybody:user:3", "--population=training:user:3", "--population=tests:user:3"),
    *("--overlap=everybody,training", "--overlap=everybody,tests"),
)
PRIVATE = ("private=all", "evaluation=none", "randomness=system")
METHOD = ("data=table", "algo=uldp_avg_w")
NOISED = ("mechanism=adaptive", "algo.clip=0.1")
DEALT = ("allocator=by_user", "allocator.n_silos=3")
WORDS = {
    "heart_disease": (
        (),
        ("data.silo=null", "data.silos=[]", "allocator=by_user", "allocator.n_silos=4"),
        ("data.silo=hospital", "data.categories=[sex,cp,fbs,restecg,exang]"),
    ),
    "creditcard": (DEALT, DEALT, ()),
}
"""By data: words of each training, of the analysis, and of trainings without a schema."""
Words = Sequence[str]


def hearts(folder: Path) -> pd.DataFrame:
    """All patients of the four hospitals, incomplete ones too."""
    parts = []
    for centre, file in heart_disease.FILES.items():
        part = pd.read_csv(folder / file.places[1], names=heart_disease.COLUMNS, na_values="?")
        parts.append(part.assign(hospital=centre, person=centre + " " + part.index.astype(str)))
    frame = pd.concat(parts, ignore_index=True).drop(columns=heart_disease.DROPPED)
    frame["label"] = (frame.pop("num") > 0).astype(int)
    return frame.convert_dtypes()  # 1.0 is 1, as in the schema


def payments(folder: Path) -> pd.DataFrame:
    """Card payments, each taken as another person's."""
    frame = pd.read_csv(folder / creditcard.FILE.places[1]).rename(columns={"Class": "label"})
    return frame.assign(person="card " + frame.index.astype(str))


def tuned(folder: Path, steps: Words, words: Words, score: Callable[[Path], float]) -> Path:
    """The bundle of the run with the largest score, of one training for each step."""
    scores = {}
    for step in steps:
        run = folder / f"step-{step}"
        command([*words, f"algo.local_lr={step}", f"hydra.run.dir={run}"])
        scores[run / "bundle"] = score(run)
    return max(scores, key=scores.__getitem__)


def free(name: str, folder: Path, raw: Words, *noise: str) -> Path:
    """The model of an arm that scales by the records and tunes by exact metrics."""
    training, _, columns = WORDS[name]
    words = (*METHOD, *raw, *training, *noise, "data.label=label", "data.user=person", *columns)
    return tuned(folder, STEPS, words, lambda run: pd.read_csv(run / METRICS)["auc"].iloc[-1])


def scaled(name: str, folder: Path, raw: Words, *paid: str) -> Words:
    """The words of trainings on numbers that are scaled by a private analysis."""
    training, analysis, _ = WORDS[name]
    words = (f"data.schema={KNOWN / name}.yaml", "statistics=mean", f"target={SCALES}", *paid)
    command(["analyse", *raw, *PRIVATE, *analysis, *words, f"hydra.run.dir={folder}/scales"])
    words = (f"data.schema={folder}/scales/schema.yaml", "data.outside=accept")
    return (*METHOD, *raw, *PRIVATE, *training, *NOISED, *words)


def charged(name: str, folder: Path, raw: Words, steps: Words, target: float) -> Path:
    """The model of an arm whose whole path one ledger pays for."""
    ledger = f"ledger={folder}/ledger.jsonl"
    command(["ledger", "init", f"{folder}/ledger.jsonl", *PEOPLE])
    words = scaled(name, folder, raw, ledger, "population=everybody")

    def evaluated(run: Path) -> float:
        paid = (f"target={target}", ledger, "population=tests", "quiet=true")
        command(["evaluate", str(run), *PRIVATE, *paid, f"hydra.run.dir={run}/evaluation"])
        found = pd.read_csv(run / "evaluation" / STATISTICS).set_index("statistic")
        return float(found["value"]["accuracy"])

    words = (*words, f"accountant.target={target}", ledger, "population=training")
    return tuned(folder, steps, words, evaluated)


def drawn(name: str, folder: Path, raw: Words) -> Path:
    """The model of an arm with a random number of runs. Each half of delta pays for a part."""
    words = scaled(name, folder, (*raw, "accountant.delta=5e-6"))
    command(["-m", *words, *CHOICE, f"hydra.sweep.dir={folder}/sweep"])
    return folder / "sweep" / "best"


ARMS: dict[str, Callable[[str, Path, Words], Path]] = {
    "no privacy": lambda name, folder, raw: free(name, folder, raw, "mechanism=none"),
    "training alone charged": lambda name, folder, raw: free(
        name, folder, raw, *NOISED, "accountant.target=3"
    ),
    "all charged, default step": lambda name, folder, raw: charged(
        name, folder, raw, ["0.1"], ALONE
    ),
    "all charged, best of four": lambda name, folder, raw: charged(name, folder, raw, STEPS, EACH),
    "all charged, random number": drawn,
}


def by_arm(table: pd.DataFrame, name: str) -> pd.DataFrame:
    """AUC by seed, a column for each arm."""
    own = table[table["data"] == name]
    return own.pivot(index="seed", columns="arm", values="auc")[[*ARMS]]


def draw(table: pd.DataFrame, out: Path) -> None:
    """Each seed's AUC by arm, joined by grey lines, and the means with their intervals."""
    figure, axes = plt.subplots(1, len(WORDS), figsize=(WIDTH, 2.4), layout="constrained")
    places = range(len(ARMS))
    for axis, name in zip(axes, WORDS):
        found = by_arm(table, name)
        axis.plot(found.T, places, "o-", mfc="none", color="0.75", ms=3, lw=0.7)
        half = found.apply(mean_interval)
        axis.errorbar(found.mean(), places, xerr=half, fmt="D", ms=5, capsize=4, zorder=3)
        axis.set(title=name.replace("_", " "), xlabel="AUC", ylim=(len(ARMS) - 0.7, -0.3))
        axis.set_yticks(places, [*ARMS] if name == "heart_disease" else [""] * len(ARMS))
    save(figure, out, dpi=200)


def main(data: Path, work: Path) -> None:
    """Run what is missing, and draw."""
    out = KNOWN / "auc.csv"
    frames = {"heart_disease": hearts(data), "creditcard": payments(data)}
    table = pd.read_csv(out)
    known = set(zip(table["data"], table["seed"], table["arm"]))
    for name, seed, arm in sorted({*product(frames, range(10), ARMS)} - known):
        folder = Path(tempfile.mkdtemp(dir=work))
        judges = frames[name].sample(frac=0.25, random_state=seed)  # in no arm
        frames[name].drop(judges.index).to_csv(folder / "study.csv", index=False)
        raw = (f"data.path={folder}/study.csv", f"seed={seed}", "quiet=true")
        chances = fedpriv.load(ARMS[arm](name, folder, raw)).predict_proba(judges)[:, 1]
        table.loc[len(table)] = [name, seed, arm, roc_auc_score(judges["label"], chances)]
        table.to_csv(out, index=False, float_format="%.6g")
    draw(table, ROOT / "docs" / "assets" / "honest_study.png")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
