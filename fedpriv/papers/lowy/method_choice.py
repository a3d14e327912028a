"""The best runs of Lowy et al.'s methods by training loss, and how the methods compare.

This choice looks at the records: no epsilon covers it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pandas as pd

from fedpriv.reports.finished_runs import Run
from fedpriv.reports.groups import Group, group_runs
from fedpriv.reports.summary import standard_deviation

SPIDER = "SPIDER"
MINIBATCH = "MB-SGD"
LOCAL = "Local SGD"
METHODS = {"Spider": SPIDER, "MinibatchSgd": MINIBATCH, "LocalSgd": LOCAL}
"""By the class of the algorithm. Both variants of SPIDER are one method."""
TUNED = ("global_lr", "local_lr", "clip", "variant", "phase", "local_steps")
"""Keys of an algorithm that are chosen."""


@dataclass(frozen=True)
class Choice:
    """The best settings of a method at an epsilon.

    method: name of the method.
    calibration: whose noise: "paper" or "certified"; "given" is no noise, not private.
    epsilon: that the noise is made for.
    certified: epsilon of the server.
    claimed: epsilon of the server, by the paper.
    error: mean test error over seeds.
    deviation: standard deviation of the test error over seeds.
    loss: mean training loss.
    mapping: mean norm of the training loss's proximal gradient mapping.
    heterogeneity: mean over seeds of the silos' upsilon at the model.
    splits: number of seeds; each has its own split.
    delta: of the epsilons.
    settings: chosen overrides.
    """

    method: str
    calibration: str
    epsilon: float
    certified: float
    claimed: float
    error: float
    deviation: float
    loss: float
    mapping: float
    heterogeneity: float
    splits: int
    delta: float
    settings: str


COLUMNS = tuple(field.name for field in fields(Choice))


@dataclass(frozen=True)
class Gain:
    """SPIDER's test error compared with another method's.

    calibration: whose noise.
    over: the other method.
    percent: how far SPIDER's error is below the other's, in per cent of that; mean over epsilons.
    lost: epsilons at which the other method's error is smaller.
    """

    calibration: str
    over: str
    percent: float
    lost: tuple[float, ...]

    def cells(self) -> Iterable[Any]:
        """The values of `GAIN_COLUMNS`."""
        lost = " ".join(f"{epsilon:g}" for epsilon in self.lost)
        return (vars(self) | {"lost": lost}).values()


GAIN_COLUMNS = tuple(field.name for field in fields(Gain))


def choose(runs: list[Run]) -> list[Choice]:
    """The settings with the least mean training loss, for each method, calibration and epsilon.

    Settings with fewer finished seeds than others there are left out: a run has diverged, or they
    were dropped after the first seeds.
    """
    best: dict[tuple[str, str, float], Choice] = {}
    for found in map(_summary, group_runs(runs)):
        place = found.method, found.calibration, found.epsilon
        if math.isfinite(found.loss) and (place not in best or _rank(found) < _rank(best[place])):
            best[place] = found
    return [best[place] for place in sorted(best)]


def _rank(choice: Choice) -> tuple[int, float]:
    return -choice.splits, choice.loss


def compare_with_spider(choices: Iterable[Choice]) -> list[Gain]:
    """SPIDER beside both baselines, for each calibration, at the epsilons that both were run at."""
    errors: dict[tuple[str, str], dict[float, float]] = {}
    for c in choices:
        if c.calibration != "given":
            errors.setdefault((c.calibration, c.method), {})[c.epsilon] = c.error
    found = []
    for calibration in sorted({calibration for calibration, _ in errors}):
        spider = errors.get((calibration, SPIDER), {})
        for other in (LOCAL, MINIBATCH):
            theirs = errors.get((calibration, other), {})
            both = [epsilon for epsilon in theirs if epsilon in spider]
            gains = [100 * (theirs[e] - spider[e]) / theirs[e] for e in both]
            if both:
                lost = tuple(sorted(e for e in both if theirs[e] < spider[e]))
                found.append(Gain(calibration, other, float(np.mean(gains)), lost))
    return found


def _summary(group: Group) -> Choice:
    runs = group.runs
    algo = runs[0].config["algo"]
    last = pd.DataFrame([run.metrics.iloc[-1] for run in runs])
    epsilons = [run.final_epsilons("server") for run in runs]
    certified, claimed = (max(values) for values in zip(*epsilons))
    return Choice(
        method=METHODS[algo["_target_"].rpartition(".")[2]],
        calibration=algo["calibration"],
        epsilon=float(algo["epsilon"]),
        certified=certified,
        claimed=claimed,
        error=float(last["error"].mean()),
        deviation=standard_deviation(last["error"]),
        loss=float(last["train_loss"].mean(skipna=False)),
        mapping=float(last["mapping_norm"].mean()),
        heterogeneity=float(last["heterogeneity"].mean()),
        splits=len(runs),
        delta=runs[0].delta,
        settings=" ".join(f"{key}={algo[key]}" for key in TUNED if key in algo),
    )
