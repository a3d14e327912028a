"""The methods of all papers on the same records, at the same certified epsilon of the same unit: a
picture, study.csv.

For every method, unit and epsilon the noise is made first (`fedpriv.papers.study.methods`); then
step size and clip are chosen from one grid for all, by the mean training loss over some seeds,
which no epsilon covers; then other seeds, which nothing was chosen on, give the errors. Methods are
compared with one of each unit that was named beforehand.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedpriv.accountants.events import RELEASED_MODEL, SERVER
from fedpriv.errors import FedprivError
from fedpriv.papers.study.methods import METHODS, Method
from fedpriv.papers.study.picture import picture
from fedpriv.papers.study.table import Row, write
from fedpriv.reports.finished_runs import Run, on_stderr, read_run
from fedpriv.runs.epsilon_forecast import EpsilonForecast
from fedpriv.settings.compose import CommandLine, each_job, one_experiment
from fedpriv.settings.help import conf_dir

AT_ONCE = 128


@dataclass(frozen=True)
class Profile:
    """What is run.

    choosing: seeds that step size and clip are chosen on.
    final: seeds of the errors.
    """

    epsilons: tuple[float, ...]
    rates: tuple[float, ...]
    clips: tuple[float, ...]
    choosing: tuple[int, ...]
    final: tuple[int, ...]


PROFILES = {
    "quick": Profile((1, 10), (0.1, 1, 10), (1,), (0,), (100, 101)),
    "paper": Profile(
        (1, 3, 10), (0.03, 0.1, 0.3, 1, 3, 10, 30), (0.3, 1), (0, 1), tuple(range(100, 110))
    ),
}

SHORTER = {
    **PROFILES,
    "paper": Profile((1, 10), (0.1, 1, 10), (0.3,), (0,), tuple(range(100, 105))),
}
"""For more records: at the clip that was chosen nearly everywhere on breast cancer."""


@dataclass(frozen=True)
class Cell:
    """A method that protects a unit at an epsilon (None: nothing).

    words: all but step size, clip and seed.
    """

    method: Method
    unit: str
    epsilon: float | None
    words: tuple[str, ...]

    def settings(self, profile: Profile, silos: int) -> Iterator[tuple[str, ...]]:
        """The words of every step size and clip; who does not clip is given none."""
        clips = profile.clips if self.method.private else (1.0,)
        for rate, clip in itertools.product(profile.rates, clips):
            yield (*self.method.rate(rate, silos), *self.method.clip(clip))


@dataclass(frozen=True)
class Trial:
    """One run of a cell."""

    cell: Cell
    setting: tuple[str, ...]
    seed: int

    @property
    def words(self) -> list[str]:
        return [*self.cell.words, *self.setting, f"seed={self.seed}"]


def experiment(
    name: str, *, title: str, profiles: Mapping[str, Profile] = PROFILES
) -> Callable[[Path, str], bool]:
    """Calibrates, tunes and runs everything below a folder, writes study.csv and draws it."""

    def make(folder: Path, profile: str) -> bool:
        rows = study((f"experiment={name}",), folder, profiles[profile])
        write(rows, folder / "study.csv")
        picture(rows, folder / "figure.png", title=title)
        return True

    return make


def study(words: tuple[str, ...], folder: Path, profile: Profile) -> list[Row]:
    """A row for each method, unit and epsilon."""
    silos = one_experiment(*words, *METHODS[0].words, "seed=0").federation.n_silos
    cells = list(cells_of(words, profile))
    tried = [
        Trial(cell, setting, seed)
        for cell in cells
        for setting in cell.settings(profile, silos)
        for seed in profile.choosing
    ]
    chosen = choose(tried, run(tried, folder / "choosing"))
    final = [Trial(cell, chosen[cell][0], seed) for cell in cells for seed in profile.final]
    runs = run(final, folder / "final")
    rows = []
    for number, cell in enumerate(cells):
        place = number * len(profile.final)
        here = [found for found in runs[place : place + len(profile.final)] if found is not None]
        if not here:
            raise FedprivError(
                f"{cell.method.name} for a {cell.unit}, epsilon {cell.epsilon}: no run came to "
                "an end"
            )
        rows.append(row(cell, *chosen[cell], here))
    return rows


def cells_of(words: tuple[str, ...], profile: Profile) -> Iterator[Cell]:
    """Every method at every unit and epsilon, its noise made."""
    for method in METHODS:
        for unit, further in method.units.items():
            for epsilon in profile.epsilons if method.private else (None,):
                noise = () if epsilon is None else method.noise(words, unit, epsilon)
                yield Cell(method, unit, epsilon, (*words, *method.words, *further, *noise))


def run(trials: Sequence[Trial], folder: Path) -> list[Run | None]:
    """The finished run of each trial, side by side in this process; None where it has failed, as
    runs that diverge do, which is said. What is done in the folder is not run again."""
    from fedpriv.sweeps.side_by_side import Job, SideBySide

    line = CommandLine(["hydra/launcher=side_by_side", f"hydra.sweep.dir='{folder}'"], True, None)
    jobs: list[Job] = []
    for _, alike in itertools.groupby(
        trials, key=lambda trial: (trial.cell.method, trial.cell.unit)
    ):
        composed = each_job(line, conf_dir(), (trial.words for trial in alike))
        jobs += [Job.of(config, number) for number, config in enumerate(composed, len(jobs))]
    try:
        SideBySide(AT_ONCE).launch(jobs)
    except FedprivError as error:
        if all(job.failure is not None for job in jobs):
            raise
        on_stderr(str(error))
    return [None if job.failure is not None else read_run(job.folder) for job in jobs]


def choose(
    trials: Sequence[Trial], runs: Sequence[Run | None]
) -> dict[Cell, tuple[tuple[str, ...], float]]:
    """The setting of each cell with the least mean training loss, and this loss; where a run has
    failed, the loss is infinite."""
    losses: dict[Cell, dict[tuple[str, ...], list[float]]] = {}
    for trial, found in zip(trials, runs, strict=True):
        loss = math.inf if found is None else found.final("train_loss")
        losses.setdefault(trial.cell, {}).setdefault(trial.setting, []).append(
            loss if loss == loss else math.inf
        )
    means = {
        cell: {setting: float(np.mean(each)) for setting, each in tried.items()}
        for cell, tried in losses.items()
    }
    return {cell: min(tried.items(), key=lambda pair: pair[1]) for cell, tried in means.items()}


def row(cell: Cell, setting: tuple[str, ...], loss: float, runs: Sequence[Run]) -> Row:
    """What a cell's final runs come to. Epsilons are the largest over seeds."""
    from omegaconf import OmegaConf

    from fedpriv.settings.experiment import build

    certified = server = math.inf
    if cell.method.private:
        planned = [EpsilonForecast.of(build(OmegaConf.create(run.config))) for run in runs]
        certified, server = (
            max(cell.method.certified(one, cell.unit, who) for one in planned)
            for who in (RELEASED_MODEL, SERVER)
        )
    return Row(
        unit=cell.unit,
        method=cell.method.name,
        paper=cell.method.paper,
        protects=cell.method.unit,
        epsilon=cell.epsilon if cell.epsilon is not None else math.inf,
        certified=certified,
        server=server,
        claimed=max(claim(run, cell.unit) for run in runs),
        errors=tuple(1 - run.final(run.metric) for run in runs),
        losses=tuple(run.final("loss") for run in runs),
        seeds=tuple(run.seed for run in runs),
        train_loss=loss,
        settings=" ".join(setting),
        delta=runs[0].delta,
        rounds=int(runs[0].metrics["round"].iloc[-1]),
        records=max(run.records or 0 for run in runs),
    )


def claim(run: Run, unit: str) -> float:
    """What the paper says that this noise costs at the released model, in its own adjacency; NaN
    where it says nothing of this unit."""
    seen = run.epsilon[(run.epsilon["observer"] == RELEASED_MODEL) & (run.epsilon["unit"] == unit)]
    return float(seen["claimed"].iloc[-1]) if len(seen) else math.nan
