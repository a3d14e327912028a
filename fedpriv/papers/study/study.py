"""The methods of all papers on the same records, at the same certified epsilon of the same unit.

For every method, unit and epsilon:

1. make the noise (`fedpriv.papers.study.methods`);
2. choose step size and clip from one grid for all methods, by the mean training loss over some
   seeds (no epsilon covers this choice);
3. measure the errors with other seeds.

For each unit, the methods are compared with one method that was named beforehand.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedpriv.accountants.events import RELEASED_MODEL, SERVER
from fedpriv.errors import FedprivError
from fedpriv.papers.study.methods import METHODS, Method
from fedpriv.papers.study.picture import draw
from fedpriv.papers.study.table import table_of, write
from fedpriv.reports.finished_runs import Run, print_to_stderr, read_run
from fedpriv.runs.epsilon_forecast import EpsilonForecast
from fedpriv.settings.compose import CommandLine, each_job, one_experiment
from fedpriv.settings.words import conf_dir

CONCURRENT_RUNS = 128


@dataclass(frozen=True)
class StudyProfile:
    """The extent of a study.

    epsilons: that noise is made for.
    rates: grid of step sizes.
    clips: grid of clips.
    choosing: seeds that choose step size and clip.
    final: seeds of the errors.
    """

    epsilons: tuple[float, ...]
    rates: tuple[float, ...]
    clips: tuple[float, ...]
    choosing: tuple[int, ...]
    final: tuple[int, ...]


QUICK = StudyProfile((1, 10), (0.1, 1, 10), (1,), (0,), (100, 101))
PROFILES = {
    "quick": QUICK,
    "paper": StudyProfile(
        (1, 3, 10), (0.03, 0.1, 0.3, 1, 3, 10, 30), (0.3, 1), (0, 1), tuple(range(100, 110))
    ),
}


@dataclass(frozen=True)
class StudySetting:
    """A method that protects a unit at an epsilon.

    method: the method.
    unit: that is protected.
    epsilon: of the unit; None for a non-private method.
    words: overrides, except step size, clip and seed.
    """

    method: Method
    unit: str
    epsilon: float | None
    words: tuple[str, ...]

    def grid(self, profile: StudyProfile, silos: int) -> Iterator[tuple[str, ...]]:
        """The overrides of every step size and clip; a non-private method has no clip."""
        clips = profile.clips if self.method.private else (1.0,)
        for rate, clip in itertools.product(profile.rates, clips):
            yield (*self.method.rate(rate, silos), *self.method.clip(clip))


@dataclass(frozen=True)
class Trial:
    """One run of a setting.

    setting: the setting.
    tuning: overrides of step size and clip.
    seed: of the run.
    """

    setting: StudySetting
    tuning: tuple[str, ...]
    seed: int

    @property
    def words(self) -> list[str]:
        return [*self.setting.words, *self.tuning, f"seed={self.seed}"]


def figure(name: str, *, title: str) -> Callable[[Path, str], None]:
    """A function that runs a study below a folder, and writes study.csv and figure.png there.

    name: of the experiment.
    title: of the figure.
    """

    def make(folder: Path, profile: str) -> None:
        table = study((f"experiment={name}",), folder, PROFILES[profile])
        write(table, folder / "study.csv")
        draw(table, folder / "figure.png", title=title)

    return make


def study(
    words: tuple[str, ...],
    folder: Path,
    profile: StudyProfile,
    methods: Sequence[Method] = METHODS,
) -> pd.DataFrame:
    """Run a study of `methods` below a folder; returns its table."""
    silos = one_experiment(*words, *methods[0].words, "seed=0").federation.n_silos
    settings = list(all_settings(words, profile, methods))
    tried = [
        Trial(setting, tuning, seed)
        for setting in settings
        for tuning in setting.grid(profile, silos)
        for seed in profile.choosing
    ]
    chosen = choose(tried, run(tried, folder / "choosing"))
    final = [
        Trial(setting, chosen[setting][0], seed) for setting in settings for seed in profile.final
    ]
    ended = list(zip(final, run(final, folder / "final")))
    rows = []
    for setting in settings:
        here = [found for trial, found in ended if trial.setting == setting and found is not None]
        if not here:
            raise FedprivError(
                f"{setting.method.name} for a {setting.unit}, epsilon {setting.epsilon}: no run "
                "finished"
            )
        rows.append(summarise(setting, *chosen[setting], here))
    return table_of(rows)


def all_settings(
    words: tuple[str, ...], profile: StudyProfile, methods: Sequence[Method] = METHODS
) -> Iterator[StudySetting]:
    """Every method at every unit and epsilon, with its noise."""
    for method in methods:
        for unit, further in method.units.items():
            for epsilon in profile.epsilons if method.private else (None,):
                noise = () if epsilon is None else method.noise(words, unit, epsilon)
                yield StudySetting(method, unit, epsilon, (*words, *method.words, *further, *noise))


def run(trials: Sequence[Trial], folder: Path) -> list[Run | None]:
    """Run trials side by side in this process; returns each trial's finished run.

    A run that fails, as one that diverges does, is reported on stderr and is None. A run that is
    already in the folder is not repeated.
    """
    from fedpriv.sweeps.side_by_side import Job, SideBySide

    line = CommandLine(["hydra/launcher=side_by_side"], True, None)
    jobs: list[Job] = []
    by_method = itertools.groupby(trials, key=lambda one: (one.setting.method, one.setting.unit))
    for _, alike in by_method:
        composed = each_job(line, conf_dir(), (trial.words for trial in alike))
        jobs += [
            Job.of(config, number, folder) for number, config in enumerate(composed, len(jobs))
        ]
    try:
        SideBySide(CONCURRENT_RUNS).launch(jobs)
    except FedprivError as error:
        if all(job.failure is not None for job in jobs):
            raise
        print_to_stderr(str(error))
    return [None if job.failure is not None else read_run(job.folder) for job in jobs]


def choose(
    trials: Sequence[Trial], runs: Sequence[Run | None]
) -> dict[StudySetting, tuple[tuple[str, ...], float]]:
    """The tuning of each setting with the least mean training loss, and this loss.

    The loss of a failed run is infinite.
    """
    losses: dict[StudySetting, dict[tuple[str, ...], list[float]]] = {}
    for trial, found in zip(trials, runs, strict=True):
        loss = math.inf if found is None else found.final("train_loss")
        by_tuning = losses.setdefault(trial.setting, {})
        by_tuning.setdefault(trial.tuning, []).append(math.inf if math.isnan(loss) else loss)
    return {
        setting: min(
            ((tuning, float(np.mean(each))) for tuning, each in tried.items()),
            key=lambda pair: pair[1],
        )
        for setting, tried in losses.items()
    }


def summarise(
    setting: StudySetting, tuning: tuple[str, ...], loss: float, runs: Sequence[Run]
) -> dict[str, Any]:
    """The row of a setting's final runs. Epsilons are the largest over seeds."""
    certified = server = math.inf
    if setting.method.private:
        forecasts = [EpsilonForecast.of(run.experiment()) for run in runs]
        certified, server = (
            max(setting.method.certified(one, setting.unit, observer) for one in forecasts)
            for observer in (RELEASED_MODEL, SERVER)
        )
    return {
        "unit": setting.unit,
        "method": setting.method.name,
        "paper": setting.method.paper,
        "protects": setting.method.unit,
        "epsilon": setting.epsilon if setting.epsilon is not None else math.inf,
        "certified": certified,
        "server": server,
        "claimed": max(claimed_epsilon(run, setting.unit) for run in runs),
        "errors": tuple(1 - run.final(run.status.metric) for run in runs),
        "losses": tuple(run.final("loss") for run in runs),
        "seeds": tuple(run.seed for run in runs),
        "train_loss": loss,
        "settings": " ".join(tuning),
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
