"""Measure Lowy et al.'s methods: `python -m scripts.measured 12=FOLDER 25=FOLDER` writes the table.

The folders hold the runs of lowy/fig5 (12 silos a round) and lowy/fig4 (25), at any depth. The
table is results/lowy_mnist.csv. The script also prints the text for docs/rates.md; a
test compares it.

For each method, noise and epsilon a row has the settings with the least mean training loss, as in
the paper. This choice looks at the records: no epsilon covers it. The columns:

    method         name of the method
    calibration    whose noise: "paper" or "certified"; "given" is no noise, not private
    epsilon        that the noise is made for
    certified, claimed  epsilons of the server, the second one by the paper
    error, deviation    mean and standard deviation of the test error over seeds
    loss           mean training loss
    mapping        mean norm of the training loss's proximal gradient mapping
    heterogeneity  mean over seeds of the silos' upsilon at the model
    splits         number of seeds; each has its own split
    delta          of the epsilons
    settings       chosen overrides
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedpriv.reports.finished_runs import Run, find_runs
from fedpriv.reports.groups import Group, group_runs

TABLE = Path(__file__).parents[1] / "results" / "lowy_mnist.csv"
SPIDER = "Algorithm 11"
MINIBATCH = "MB-SGD"
LOCAL = "Local SGD"
METHODS = {"Spider": SPIDER, "MinibatchSgd": MINIBATCH, "LocalSgd": LOCAL}
"""By the class of the algorithm; of SPIDER, scripts.measure runs Algorithm 11 alone."""
TUNED = ("global_lr", "local_lr", "clip", "variant", "phase", "local_steps")
"""Keys of an algorithm that are chosen."""
SHOWN = (SPIDER, MINIBATCH, LOCAL)


def main(words: list[str]) -> None:
    """Write the table of the words `silos=folder`."""
    folders = {int(silos): Path(folder) for silos, folder in (word.split("=", 1) for word in words)}
    chosen = {silos: choose(find_runs([folder])) for silos, folder in folders.items()}
    TABLE.parent.mkdir(exist_ok=True)
    pd.concat(chosen, names=["silos"]).droplevel(1).reset_index().to_csv(TABLE, index=False)
    print(rates(read()))


def choose(runs: list[Run]) -> pd.DataFrame:
    """The settings with the least mean training loss, for each method, calibration and epsilon.

    Settings with fewer finished seeds than others there are left out: a run has diverged, or they
    were dropped after the first seeds.
    """
    tried = pd.DataFrame(map(_summary, group_runs(runs)))
    ranked = tried[np.isfinite(tried["loss"])].sort_values(
        ["method", "calibration", "epsilon", "splits", "loss"],
        ascending=[True, True, True, False, True],
    )
    return pd.DataFrame(ranked.drop_duplicates(["method", "calibration", "epsilon"]))


def _summary(group: Group) -> dict[str, Any]:
    runs = group.runs
    algo = runs[0].config["algo"]
    last = pd.DataFrame([run.metrics.iloc[-1] for run in runs])
    epsilons = [run.final_epsilons("server") for run in runs]
    certified, claimed = (max(values) for values in zip(*epsilons))
    return {
        "method": METHODS[algo["_target_"].rpartition(".")[2]],
        "calibration": algo["calibration"],
        "epsilon": float(algo["epsilon"]),
        "certified": certified,
        "claimed": claimed,
        "error": last["error"].mean(),
        "deviation": last["error"].std(),
        "loss": last["train_loss"].mean(skipna=False),
        "mapping": last["mapping_norm"].mean(),
        "heterogeneity": last["heterogeneity"].mean(),
        "splits": len(runs),
        "delta": runs[0].status.delta,
        "settings": " ".join(f"{key}={algo[key]}" for key in TUNED if key in algo),
    }


def read(path: Path = TABLE) -> pd.DataFrame:
    """The choices in the table; column `silos` has the number of silos in a round."""
    return pd.read_csv(path, float_precision="round_trip")


def rates(measured: pd.DataFrame) -> str:
    """A row for each number of silos and method, at equal certificates.

    It has the power of epsilon with which the squared gradient mapping falls, by least squares over
    all epsilons, and the silos' measured heterogeneity.
    """
    lines = [
        "| silos a round | method | measured power of epsilon | measured upsilon |",
        "| --- | --- | --- | --- |",
    ]
    certified = measured[measured["calibration"] == "certified"]
    for silos, choices in certified.groupby("silos"):
        for method in SHOWN:
            here = choices[choices["method"] == method]
            if len(here) > 1:
                power = 2 * np.polyfit(np.log(here["epsilon"]), np.log(here["mapping"]), 1)[0]
                upsilon = here["heterogeneity"]
                lines.append(
                    f"| {silos} | {method} | {power:.2f} | {upsilon.min():.2g} to "
                    f"{upsilon.max():.2g} |"
                )
    return "\n".join(lines)


if __name__ == "__main__":
    main(sys.argv[1:])
