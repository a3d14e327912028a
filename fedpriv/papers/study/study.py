"""The methods of all papers on the same records, at the same certified epsilon of the same unit.

For every method and unit:

1. make the noise (`fedpriv.papers.study.methods`);
2. choose the step size by the rule of docs/papers/rule.md: least mean error on a fifth of the
   training records over the tuning seeds, of three neighbours in `STEPS` and further ones until the
   best lies between others (no epsilon covers this choice);
3. measure the errors with other seeds, on the test records.

For each unit, the methods are compared with one method that was named beforehand.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedpriv.accountants.events import RELEASED_MODEL, SERVER
from fedpriv.comparisons.request import Method as Compared
from fedpriv.comparisons.request import Request
from fedpriv.comparisons.trials import Trial, finished, jobs, reported_trials
from fedpriv.errors import FedprivError
from fedpriv.papers.ledger.validation import with_validation_records
from fedpriv.papers.study.methods import METHODS, Method
from fedpriv.papers.study.picture import draw
from fedpriv.papers.study.table import table_of, write
from fedpriv.reports.finished_runs import Run, read_run
from fedpriv.runs.epsilon_forecast import EpsilonForecast
from fedpriv.settings.compose import one_experiment
from fedpriv.settings.experiment import Experiment
from fedpriv.sweeps.side_by_side import SideBySide

CONCURRENT_RUNS = 128
STEPS = tuple(float(f"{digit}e{power}") for power in range(-4, 4) for digit in (1, 3))
"""Step sizes that may be tried."""
EPSILON = 3.0
"""That noise is made for."""
CLIP = 0.3
"""Of all methods."""


@dataclass(frozen=True)
class StudyProfile:
    """The extent of a study.

    choosing: seeds that choose the step size.
    final: seeds of the errors.
    """

    choosing: tuple[int, ...]
    final: tuple[int, ...]


QUICK = StudyProfile((0,), (100, 101))
PROFILES = {
    "quick": QUICK,
    "paper": StudyProfile(tuple(range(5)), tuple(range(100, 110))),
}


@dataclass(frozen=True, eq=False)
class StudySetting:
    """A method that protects a unit at `EPSILON`.

    method: the method.
    unit: that is protected.
    compared: its name and its overrides, with its noise.
    silos: number of silos.
    """

    method: Method
    unit: str
    compared: Compared
    silos: int

    def trials(self, step: float, seeds: Sequence[int]) -> list[Trial]:
        """The tuning runs with a step size."""
        words = self.method.rate(step, self.silos)
        return [Trial(self.compared, words, seed, tunes=True) for seed in seeds]


def figure(folder: Path, profile: str, *, name: str, title: str) -> None:
    """Run a study below a folder, and write study.csv and figure.png there.

    name: of the experiment.
    title: above the figure.
    """
    table = study((f"experiment={name}",), folder, PROFILES[profile])
    write(table, folder / "study.csv")
    draw({title: table}, folder / "figure.png")


def study(
    words: tuple[str, ...],
    folder: Path,
    profile: StudyProfile,
    methods: Sequence[Method] = METHODS,
) -> pd.DataFrame:
    """Run a study of `methods` below a folder, or go on with it; returns its table."""
    settings = list(all_settings(words, methods))
    compared = tuple(one.compared for one in settings)
    request = Request(
        compared, words, math.inf, profile.final, profile.choosing, folder, at_once=CONCURRENT_RUNS
    )
    tried = tune(request, settings)
    best = {one: min(tried[one], key=tried[one].__getitem__) for one in settings}
    chosen = {one.compared.name: one.method.rate(best[one], one.silos) for one in settings}
    reported = reported_trials(request, chosen)
    ended = []
    runs = finished(request, reported, quiet=False)
    for trial, job, run in zip(reported, jobs(request, reported), runs):
        if run is None:  # a mean over the others would flatter the method
            raise FedprivError(f"{trial.method.name} diverges with seed {trial.seed}")
        ended.append((trial.method, job.experiment, run))
    return table_of(
        [
            summarise(
                one,
                tried[one],
                [(exp, run) for method, exp, run in ended if method is one.compared],
            )
            for one in settings
        ]
    )


def tune(
    request: Request, settings: Sequence[StudySetting]
) -> dict[StudySetting, dict[float, float]]:
    """The mean validation error of every setting at each step size that was tried; inf where a run
    diverged."""
    found: dict[StudySetting, dict[float, float]] = {one: {} for one in settings}
    waiting = {one: beside(one.method.first) for one in settings}
    while waiting:
        points = [(one, step) for one, further in waiting.items() for step in further]
        trials = [trial for one, step in points for trial in one.trials(step, request.tuning_seeds)]
        errors = validation_errors(request, trials).reshape(len(points), -1)
        for (one, step), mean in zip(points, errors.mean(axis=1)):
            found[one][step] = float(mean)
        waiting = {one: further for one in waiting if (further := next_steps(found[one]))}
    return found


def next_steps(means: dict[float, float]) -> tuple[float, ...]:
    """The neighbour of the best step size if that is an end of those tried."""
    best = min(means, key=means.__getitem__)
    return tuple(step for step in beside(best) if step not in means)


def beside(step: float) -> tuple[float, ...]:
    """A step size and its neighbours in `STEPS`."""
    place = STEPS.index(step)
    return STEPS[max(0, place - 1) : place + 2]


def validation_errors(request: Request, trials: Sequence[Trial]) -> np.ndarray:
    """The error of each trial on a fifth of its training records; inf if it diverged."""
    made = jobs(request, trials)
    for job in made:
        data = with_validation_records(job.experiment.data)
        job.experiment = replace(job.experiment, data=data)
    SideBySide(request.at_once).launch(made, sweep=request.folder)
    runs = (None if job.failure is not None else read_run(job.folder) for job in made)
    return np.array([math.inf if run is None else error_of(run) for run in runs])


def error_of(run: Run) -> float:
    """One minus the main metric after the last round."""
    return 1 - run.final(run.status.metric)


def all_settings(
    words: tuple[str, ...], methods: Sequence[Method] = METHODS
) -> Iterator[StudySetting]:
    """Every method at every unit, with its noise."""
    silos = one_experiment(*words, *methods[0].words, "seed=0").federation.n_silos
    for method, unit in [(one, unit) for one in methods for unit in one.units]:
        noise = method.noise(words, unit, EPSILON)
        own = (*method.words, *method.units[unit], *method.clip(CLIP), *noise)
        yield StudySetting(method, unit, Compared(f"{method.name}, {unit}", own), silos)


def summarise(
    setting: StudySetting, tried: dict[float, float], ended: Sequence[tuple[Experiment, Run]]
) -> dict[str, Any]:
    """The row of a setting's final runs. Epsilons are the largest over seeds.

    tried: mean validation error at each step size.
    ended: each final run, with its components.
    """
    runs = [run for _, run in ended]
    step = min(tried, key=tried.__getitem__)
    certified = server = math.inf
    if setting.method.private:
        forecasts = [EpsilonForecast.of(exp) for exp, _ in ended]
        certified, server = (
            max(setting.method.certified(one, setting.unit, observer) for one in forecasts)
            for observer in (RELEASED_MODEL, SERVER)
        )
    return {
        "unit": setting.unit,
        "method": setting.method.name,
        "paper": setting.method.paper,
        "protects": setting.method.unit,
        "epsilon": EPSILON if setting.method.private else math.inf,
        "certified": certified,
        "server": server,
        "claimed": max(claimed_epsilon(run, setting.unit) for run in runs),
        "errors": tuple(map(error_of, runs)),
        "losses": tuple(run.final("loss") for run in runs),
        "seeds": tuple(run.seed for run in runs),
        "step": step,
        "steps": tuple(sorted(tried)),
        "validation": tried[step],
        "settings": " ".join(setting.method.rate(step, setting.silos)),
        "delta": runs[0].status.delta,
        "rounds": runs[0].rounds,
        "records": max(run.status.records for run in runs),
    }


def claimed_epsilon(run: Run, unit: str) -> float:
    """The paper's epsilon of the released model for this noise, in the paper's adjacency.

    NaN if the paper claims nothing for this unit.
    """
    seen = run.epsilon[(run.epsilon["observer"] == RELEASED_MODEL) & (run.epsilon["unit"] == unit)]
    return float(seen["claimed"].iloc[-1]) if len(seen) else math.nan
