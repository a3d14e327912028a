"""The methods of all papers on the same records, at the same certified epsilon of the same unit.

For every method, unit and epsilon:

1. make the noise (`fedpriv.papers.study.methods`);
2. choose step size and clip from one grid for all methods, by the mean training loss over some
   seeds (no epsilon covers this choice);
3. measure the errors with other seeds.

For each unit, the methods are compared with one method that was named beforehand.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from fedpriv.accountants.events import RELEASED_MODEL, SERVER
from fedpriv.comparisons.request import Method as Compared
from fedpriv.comparisons.request import Request
from fedpriv.comparisons.trials import Choice, chosen_and_reported
from fedpriv.papers.study.methods import METHODS, Method
from fedpriv.papers.study.picture import draw
from fedpriv.papers.study.table import table_of, write
from fedpriv.reports.finished_runs import Run
from fedpriv.runs.epsilon_forecast import EpsilonForecast
from fedpriv.settings.compose import one_experiment

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
    epsilon: of the unit; inf for a non-private method.
    tried: its overrides, with its noise, and the grid of step sizes and clips.
    """

    method: Method
    unit: str
    epsilon: float
    tried: Compared


def figure(folder: Path, profile: str, *, name: str, title: str) -> None:
    """Run a study below a folder, and write study.csv and figure.png there.

    name: of the experiment.
    title: of the figure.
    """
    table = study((f"experiment={name}",), folder, PROFILES[profile])
    write(table, folder / "study.csv")
    draw(table, folder / "figure.png", title=title)


def study(
    words: tuple[str, ...],
    folder: Path,
    profile: StudyProfile,
    methods: Sequence[Method] = METHODS,
) -> pd.DataFrame:
    """Run a study of `methods` below a folder; returns its table."""
    settings = list(all_settings(words, profile, methods))
    request = Request(
        tuple(setting.tried for setting in settings),
        words,
        math.inf,
        profile.final,
        profile.choosing,
        folder,
        metric="train_loss",
        at_once=CONCURRENT_RUNS,
    )
    choices, runs = chosen_and_reported(request)
    names = [setting.tried.name for setting in settings]
    return table_of(
        [summarise(one, choices[name], runs[name]) for one, name in zip(settings, names)]
    )


def all_settings(
    words: tuple[str, ...], profile: StudyProfile, methods: Sequence[Method] = METHODS
) -> Iterator[StudySetting]:
    """Every method at every unit and epsilon, with its noise and the grid of all methods; a
    non-private method has no clip."""
    silos = one_experiment(*words, *methods[0].words, "seed=0").federation.n_silos
    for method, unit in [(one, unit) for one in methods for unit in one.units]:
        clips = profile.clips if method.private else (1.0,)
        grid = tuple(
            (*method.rate(rate, silos), *method.clip(clip))
            for rate, clip in product(profile.rates, clips)
        )
        for epsilon in profile.epsilons if method.private else (math.inf,):
            own = (*method.words, *method.units[unit], *method.noise(words, unit, epsilon))
            tried = Compared(f"{method.name}, {unit}, {epsilon:g}", own, grid)
            yield StudySetting(method, unit, epsilon, tried)


def summarise(setting: StudySetting, choice: Choice, runs: Sequence[Run]) -> dict[str, Any]:
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
        "epsilon": setting.epsilon,
        "certified": certified,
        "server": server,
        "claimed": max(claimed_epsilon(run, setting.unit) for run in runs),
        "errors": tuple(1 - run.final(run.status.metric) for run in runs),
        "losses": tuple(run.final("loss") for run in runs),
        "seeds": tuple(run.seed for run in runs),
        "train_loss": math.nan if choice.mean is None else choice.mean,
        "settings": " ".join(choice.setting),
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
