"""fedpriv from Python, in a notebook for instance: the words of the command line, results as
tables, nothing printed.

    import fedpriv

    done = fedpriv.run("algo=uldp_avg", "rounds=20")
    runs = fedpriv.sweep("algo=fedavg,uldp_avg", "seed=0,1,2")
    runs.table()
    fedpriv.load("outputs/sweeps/...").metrics
    fedpriv.epsilon("algo=uldp_avg", "algo.noise_multiplier=5,10")

What a command would refuse is raised as FedprivError. `import fedpriv` loads none of this, and none
of it loads torch before something is trained.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from omegaconf import OmegaConf

from fedpriv.errors import FedprivError
from fedpriv.reports.finished_runs import Run, find_runs
from fedpriv.reports.groups import group_runs
from fedpriv.reports.report import Report
from fedpriv.runs.loop import train
from fedpriv.runs.stored_config import stored_config
from fedpriv.settings.compose import CommandLine, compose_jobs, one_experiment, without_hydra
from fedpriv.settings.experiment import build
from fedpriv.settings.help import conf_dir
from fedpriv.util.logs import LOGGER

if TYPE_CHECKING:
    from fedpriv.data.allocation import Allocation
    from fedpriv.data.base import Records


@dataclass(frozen=True)
class Runs:
    """Finished runs on one data set."""

    runs: Sequence[Run]

    @property
    def metrics(self) -> pd.DataFrame:
        """metrics.csv of all runs, with the columns folder, group and seed before."""
        return self._joined("metrics")

    @property
    def epsilon(self) -> pd.DataFrame:
        """epsilon.csv of all runs, likewise."""
        return self._joined("epsilon")

    def table(
        self, *, metric: str | None = None, observer: str | None = None, method: str | None = None
    ) -> pd.DataFrame:
        """What `fedpriv table` prints, unrounded."""
        return self.report(metric=metric, observer=observer, method=method).frame()

    def report(self, **chosen: str | None) -> Report:
        """The same with best settings, tests and notes; `csv()`, `markdown()` and `latex()` are
        texts of it."""
        return Report.of(self.runs, **chosen)

    def figure(self, out: str | Path, **chosen: str | None) -> Path:
        """What `fedpriv figure` draws, into file `out`."""
        from fedpriv.reports.privacy_utility import draw

        draw(list(self.runs), Path(out), **chosen)  # type: ignore[arg-type]
        return Path(out)

    def _joined(self, name: str) -> pd.DataFrame:
        parts = []
        for group in group_runs(self.runs):
            for run in group.runs:
                about = {"folder": str(run.folder), "group": group.name, "seed": run.seed}
                parts.append(
                    getattr(run, name).assign(**about)[[*about, *getattr(run, name).columns]]
                )
        joined: pd.DataFrame = pd.concat(parts, ignore_index=True)
        return joined


@dataclass(frozen=True)
class Federated:
    """A data set as a run has it: records, who owns each, which silo holds it.

    silos: a silo's training records and their owners (n,).
    """

    train: Records
    test: Records
    allocation: Allocation
    silos: Sequence[tuple[Records, np.ndarray]]


def run(*words: str, folder: str | Path | None = None) -> Runs:
    """Train what the words stand for, into `folder` or where the command would; or go on with
    `resume=folder`."""
    line = CommandLine.parse(list(words))
    jobs = compose_jobs(line, conf_dir())
    if len(jobs) > 1 or line.multirun:
        raise FedprivError("several runs are fedpriv.sweep")
    [config] = jobs
    if config.resume is not None:
        stored = stored_config(line, str(config.resume), len(jobs))
        path = Path(str(config.resume))
        train(build(stored), OmegaConf.to_yaml(stored), path, resume=True, quiet=True)
        return load(path)
    path = Path(folder) if folder is not None else _default(config, "run")
    plain = without_hydra(config)
    train(build(plain), OmegaConf.to_yaml(plain, resolve=True), path, quiet=True)
    return load(path)


def sweep(*words: str, folder: str | Path | None = None, at_once: int = 64) -> Runs:
    """Every combination of the words' values, side by side in this process (see
    `fedpriv.sweeps.side_by_side`); what is done in `folder` is not run again. Raises FedprivError
    at the end when runs have failed, naming them."""
    from fedpriv.sweeps.side_by_side import Job, SideBySide, drawn, own_sweeper

    own = [] if folder is None else [f"hydra.sweep.dir='{folder}'"]
    configs = _jobs(words, own)
    jobs = [Job.of(config, n) for n, config in enumerate(configs)]
    sweeper = own_sweeper(configs[0])
    if sweeper:
        jobs = drawn(jobs, sweeper, CommandLine.parse(["-m", *words, *own]))
    SideBySide(at_once).launch(jobs, quiet=True)
    return load(*[job.folder for job in jobs])


def load(*folders: str | Path | Iterable[str | Path]) -> Runs:
    """Finished runs at or below the folders; others are named in the log (logger "fedpriv", INFO).
    Raises FedprivError for a folder without any."""
    roots = [
        Path(root) for one in folders for root in ([one] if isinstance(one, str | Path) else one)
    ]
    return Runs(find_runs(roots, LOGGER.info))


def epsilon(*words: str) -> pd.DataFrame:
    """A row for each job of the words, round (1, 10, 100, ..., the last), observer and method;
    swept keys are columns. Without training or torch, and mostly without data."""
    from fedpriv.runs.epsilon_forecast import EpsilonForecast, milestones

    rows = []
    for config in _jobs(words):
        exp = build(without_hydra(config))
        swept = dict(
            word.split("=", 1)
            for word in config.hydra.overrides.task
            if "," not in word and "=" in word
        )
        rows += [
            {**swept, **vars(row)}
            for row in EpsilonForecast.of(exp).rows_at(milestones(exp.options.rounds))
        ]
    return pd.DataFrame(rows)


def federation(*words: str) -> Federated:
    """The records of the words' data set, dealt out to users and silos as a run would. Reads data;
    no torch."""
    from fedpriv.runtime import allocate

    corpus, allocation, sizes = allocate(one_experiment(*words))
    silos = []
    for number in range(sizes.n_silos):
        rows = np.flatnonzero((allocation.silo == number) & allocation.trains)
        part = replace(
            corpus.train, x=corpus.train.x[rows], y=corpus.train.y[rows], silo=None, user=None
        )
        silos.append((part, allocation.user[rows]))
    return Federated(corpus.train, corpus.test, allocation, silos)


def _jobs(words: Sequence[str], own: Sequence[str] = ()) -> list[Any]:
    return compose_jobs(CommandLine.parse(["-m", *words, *own]), conf_dir())


def _default(config: Any, kind: str) -> Path:
    from hydra.core.hydra_config import HydraConfig

    HydraConfig.instance().set_config(config)  # the folder's name may refer to it
    return Path(str(config.hydra[kind].dir))
