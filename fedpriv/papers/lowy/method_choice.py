"""Of many runs of Lowy et al.'s methods, those with the least training loss; how they compare.

Whoever chooses so has looked at the records: no epsilon covers it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fedpriv.reports.finished_runs import Run
from fedpriv.reports.groups import Group, grouped
from fedpriv.reports.summary import deviation

SPIDER = "SPIDER"
MINIBATCH = "MB-SGD"
LOCAL = "Local SGD"
METHODS = {"Spider": SPIDER, "MinibatchSgd": MINIBATCH, "LocalSgd": LOCAL}
"""By the class of the algorithm; both of SPIDER's variants are one method."""
VARIED = ("global_lr", "local_lr", "clip", "variant", "phase", "local_steps")
"""Keys of an algorithm that are chosen."""


@dataclass(frozen=True)
class Choice:
    """The best settings of a method at an epsilon.

    calibration: paper or certified (whose noise), or given (none: not private).
    epsilon: what the noise is made for.
    certified, claimed: epsilons of the server.
    error, deviation: of the test error over `splits` seeds.
    loss, mapping, heterogeneity: training loss, norm of its proximal gradient mapping, and the
        silos' upsilon at the model, means over seeds.
    settings: what was chosen.
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

    def row(self) -> tuple[Any, ...]:
        """Its values, in the order of COLUMNS."""
        return tuple(vars(self).values())


COLUMNS = tuple(Choice.__dataclass_fields__)


@dataclass(frozen=True)
class Gain:
    """By how much SPIDER's test error is below another method's, in per cent of that, mean over
    epsilons.

    lost: the epsilons at which the other one's error is smaller.
    """

    calibration: str
    over: str
    percent: float
    lost: tuple[float, ...]

    def row(self) -> tuple[Any, ...]:
        """Its values, in the order of GAINS."""
        return (
            self.calibration,
            self.over,
            self.percent,
            " ".join(f"{epsilon:g}" for epsilon in self.lost),
        )


GAINS = tuple(Gain.__dataclass_fields__)


def choose(runs: list[Run]) -> list[Choice]:
    """The settings with the least mean training loss for each method, calibration and epsilon,
    sorted.

    Settings of which fewer seeds have come to an end than of others there are left out: a run of
    theirs has diverged, or they were given up after the first seeds.
    """
    best: dict[tuple[str, str, float], Choice] = {}
    for found in map(_summary, grouped(runs)):
        place = found.method, found.calibration, found.epsilon
        if math.isfinite(found.loss) and (place not in best or _rank(found) < _rank(best[place])):
            best[place] = found
    return [best[place] for place in sorted(best)]


def _rank(choice: Choice) -> tuple[int, float]:
    return -choice.splits, choice.loss


def gains(choices: Iterable[Choice]) -> list[Gain]:
    """SPIDER's over both baselines, by whose noise; the epsilons are those at which both were
    run.
    """
    at = {
        (c.calibration, c.method, c.epsilon): c.error for c in choices if c.calibration != "given"
    }
    found = []
    for calibration in sorted({calibration for calibration, _, _ in at}):
        for other in (LOCAL, MINIBATCH):
            both = {
                epsilon: (at[calibration, SPIDER, epsilon], error)
                for (where, method, epsilon), error in at.items()
                if (where, method) == (calibration, other) and (calibration, SPIDER, epsilon) in at
            }
            if both:
                percent = float(
                    np.mean([100 * (theirs - ours) / theirs for ours, theirs in both.values()])
                )
                lost = tuple(
                    sorted(epsilon for epsilon, (ours, theirs) in both.items() if theirs < ours)
                )
                found.append(Gain(calibration, other, percent, lost))
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
        deviation=deviation(last["error"].tolist()),
        loss=float(last["train_loss"].mean(skipna=False)),
        mapping=float(last["mapping_norm"].mean()),
        heterogeneity=float(last["heterogeneity"].mean()),
        splits=len(runs),
        delta=runs[0].delta,
        settings=" ".join(f"{key}={algo[key]}" for key in VARIED if key in algo),
    )
