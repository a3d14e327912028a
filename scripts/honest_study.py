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
SCALES, EACH, ALONE, ALL = 0.8, 1.25, 2.7, 3.0
"""Targets: of the scales, of each run of a grid of four, of one run alone, and of papers."""
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
ARMS = {
    "none": "no privacy",
    "free": "training alone charged",
    "untuned": "all charged, default step",
    "honest": "all charged, tuned",
}


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


def tuned(
    folder: Path, steps: Sequence[str], words: Sequence[str], score: Callable[[Path], float]
) -> Path:
    """The run with the largest score, of one training for each step."""
    scores = {}
    for step in steps:
        run = folder / f"step-{step}"
        own = (f"algo.local_lr={step}", "quiet=true", f"hydra.run.dir={run}")
        command(["data=table", "algo=uldp_avg_w", *words, *own])
        scores[run] = score(run)
    return max(scores, key=scores.__getitem__)


def exact(run: Path) -> float:
    """The AUC on all test records, without noise."""
    return float(pd.read_csv(run / METRICS)["auc"].iloc[-1])


def charged(name: str, folder: Path, raw: Sequence[str], steps: Sequence[str], each: float) -> Path:
    """The best run of an arm whose whole path one ledger pays for."""
    training, analysis, _ = WORDS[name]
    folder.mkdir()
    ledger = folder / "ledger.jsonl"
    people = [f"--population={who}:user:{ALL}" for who in ("everybody", "training", "tests")]
    shared = [f"--overlap=everybody,{who}" for who in ("training", "tests")]
    command(["ledger", "init", str(ledger), *people, *shared])
    paid = (f"ledger={ledger}", "randomness=system")
    schema = f"data.schema={KNOWN / name}.yaml"
    own = ("statistics=mean", f"target={SCALES}", f"hydra.run.dir={folder}/scales", "quiet=true")
    command(["analyse", *raw, schema, *analysis, *paid, "population=everybody", *own])

    def evaluated(run: Path) -> float:
        own = (f"target={each}", f"hydra.run.dir={run}/evaluation", "quiet=true")
        command(["evaluate", str(run), *paid, "population=tests", *own])
        found = pd.read_csv(run / "evaluation" / STATISTICS).set_index("statistic")
        return float(found["value"]["accuracy"])

    scaled = (f"data.schema={folder}/scales/schema.yaml", "data.outside=accept", "evaluation=none")
    noised = (*NOISED, f"accountant.target={each}", "population=training")
    return tuned(folder, steps, (*raw, *scaled, *training, *noised, *paid), evaluated)


def row(name: str, frame: pd.DataFrame, work: Path, seed: int) -> dict[str, object]:
    """By arm the AUC of the final model and its step."""
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-{seed}-", dir=work))
    judges = frame.sample(frac=0.25, random_state=seed)  # in no arm
    frame.drop(judges.index).to_csv(folder / "study.csv", index=False)
    raw = (f"data.path={folder}/study.csv", f"seed={seed}")
    training, _, columns = WORDS[name]
    words = (*raw, "data.label=label", "data.user=person", *columns, *training)
    noised = (*words, *NOISED, f"accountant.target={ALL}")
    best = {
        "none": tuned(folder / "none", STEPS, (*words, "mechanism=none"), exact),
        "free": tuned(folder / "free", STEPS, noised, exact),
        "untuned": charged(name, folder / "untuned", raw, ["0.1"], ALONE),
        "honest": charged(name, folder / "honest", raw, STEPS, EACH),
    }
    found: dict[str, object] = {"data": name, "seed": seed}
    for arm, run in best.items():
        chances = fedpriv.load(run / "bundle").predict_proba(judges)[:, 1]
        found[arm] = roc_auc_score(judges["label"], chances)
        found[f"{arm} step"] = run.name.removeprefix("step-")
    return found


def draw(table: pd.DataFrame, out: Path) -> None:
    """Each seed's AUC by arm, joined by grey lines, and the means with their intervals."""
    figure, axes = plt.subplots(1, len(WORDS), figsize=(WIDTH, 2.2), layout="constrained")
    places = range(len(ARMS))
    for axis, name in zip(axes, WORDS):
        found = table.loc[table["data"] == name, [*ARMS]].astype(float)
        axis.plot(found.T, places, "o-", mfc="none", color="0.75", ms=3, lw=0.7)
        half = found.apply(mean_interval)
        axis.errorbar(found.mean(), places, xerr=half, fmt="D", ms=5, capsize=4, zorder=3)
        axis.set(title=name.replace("_", " "), xlabel="AUC on new persons")
        axis.set_yticks(places, ARMS.values() if name == "heart_disease" else [""] * len(ARMS))
        axis.tick_params(labelsize=8)
        axis.invert_yaxis()
    save(figure, out, dpi=200)


def main(data: Path, work: Path) -> None:
    """Run what is missing, and draw."""
    out = KNOWN / "auc.csv"
    frames = {"heart_disease": hearts(data), "creditcard": payments(data)}
    table = pd.read_csv(out) if out.exists() else pd.DataFrame(columns=["data", "seed"])
    for seed in range(10):
        for name, frame in frames.items():
            if not ((table["data"] == name) & (table["seed"] == seed)).any():
                table = pd.concat([table, pd.DataFrame([row(name, frame, work, seed)])])
                table.to_csv(out, index=False, float_format="%.6g")
    draw(table, ROOT / "docs" / "assets" / "honest_study.png")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
