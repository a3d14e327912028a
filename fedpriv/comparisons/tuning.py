"""The choice of each method's setting from its grid, by other seeds than the reported ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedpriv.comparisons.request import Method
from fedpriv.comparisons.trials import Trial
from fedpriv.errors import FedprivError, require
from fedpriv.reports.finished_runs import Run
from fedpriv.reports.summary import best_by


@dataclass(frozen=True)
class Choice:
    """The setting of one method.

    setting: overrides of the tuned keys; empty without tuning.
    among: number of settings that were tried, without those of which a run failed.
    failed: number of settings of which a run failed.
    mean: of the metric over the tuning seeds; None without tuning.
    """

    setting: tuple[str, ...]
    among: int = 1
    failed: int = 0
    mean: float | None = None


def choose(
    methods: Sequence[Method],
    trials: Sequence[Trial],
    runs: Sequence[Run | None],
    metric: str | None,
) -> dict[str, Choice]:
    """Name of each method: its setting with the best mean over the tuning seeds.

    trials: that tune.
    runs: of the trials; None for a failed one, whose setting is left out.
    metric: None: the data set's main metric.

    Raises FedprivError for a method of which every setting has a failed run.
    """
    found = {}
    for method in methods:
        if len(method.grid) == 1:
            found[method.name] = Choice(method.grid[0])
            continue
        means: dict[tuple[str, ...], float] = {}
        own_metric = metric or ""
        for setting in method.grid:
            own = [r for t, r in zip(trials, runs) if (t.method, t.setting) == (method, setting)]
            done = [run for run in own if run is not None]
            if len(done) == len(own):
                own_metric = metric or done[0].metric
                known = [str(name) for name in done[0].metrics if name != "round"]
                require(own_metric in known, "--metric", own_metric, f"one of {', '.join(known)}")
                means[setting] = float(np.mean([run.final(own_metric) for run in done]))
        best = best_by(own_metric, list(means), means.values())
        if best is None:
            raise FedprivError(f"{method.name}: every setting of its grid has a run that failed")
        tried = len(means)
        found[method.name] = Choice(best, tried, len(method.grid) - tried, means[best])
    return found
