"""The best runs of Lowy et al.'s methods by training loss.

This choice looks at the records: no epsilon covers it. A table of choices has the columns

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

from typing import Any

import numpy as np
import pandas as pd

from fedpriv.reports.finished_runs import Run
from fedpriv.reports.groups import Group, group_runs

SPIDER = "SPIDER"
MINIBATCH = "MB-SGD"
LOCAL = "Local SGD"
METHODS = {"Spider": SPIDER, "MinibatchSgd": MINIBATCH, "LocalSgd": LOCAL}
"""By the class of the algorithm. Both variants of SPIDER are one method."""
TUNED = ("global_lr", "local_lr", "clip", "variant", "phase", "local_steps")
"""Keys of an algorithm that are chosen."""


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
