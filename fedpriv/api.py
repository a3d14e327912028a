"""fedpriv in Python: functions that take the words of the command line and return tables. They
print nothing.

    import fedpriv

    done = fedpriv.run("algo=uldp_avg", "rounds=20")
    runs = fedpriv.sweep("algo=fedavg,uldp_avg", "seed=0,1,2")
    runs.table()
    fedpriv.compare("algo=uldp_avg,uldp_sgd", "epsilon=2", "seed=0..4").frame()
    fedpriv.load("outputs/sweeps/...").metrics
    fedpriv.epsilon("algo=uldp_avg", "algo.noise_multiplier=5,10")

They raise FedprivError where a command prints an error. `import fedpriv` does not load this module,
and torch is loaded when training starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from fedpriv.comparisons.command import compare as run_comparison
from fedpriv.comparisons.command import write
from fedpriv.comparisons.request import Request
from fedpriv.comparisons.table import ComparisonTable
from fedpriv.data.allocate import Allocation
from fedpriv.data.base import Records
from fedpriv.data.table.read import given_frame
from fedpriv.errors import FedprivError
from fedpriv.reports.finished_runs import Run, find_runs
from fedpriv.reports.groups import group_runs
from fedpriv.reports.report import Report
from fedpriv.reports.selection_cost import find_selections, release_choices
from fedpriv.runs.analyse_command import analyse as release
from fedpriv.runs.epsilon_forecast import EpsilonForecast
from fedpriv.runs.loop import train
from fedpriv.runs.run_or_resume import resume
from fedpriv.runs.tables import STATISTICS
from fedpriv.runtime import allocate
from fedpriv.settings.compose import CommandLine, compose_jobs, one_experiment
from fedpriv.settings.experiment import build
from fedpriv.settings.words import conf_dir
from fedpriv.sweeps.side_by_side import Job, SideBySide, draw_jobs, own_sweeper, sweep_folder
from fedpriv.util.logs import LOGGER
from fedpriv.util.untrusted_files import TABLE_BYTES, opened


@dataclass(frozen=True)
class Runs:
    """Finished runs on one data set."""

    runs: Sequence[Run]

    @property
    def metrics(self) -> pd.DataFrame:
        """metrics.csv of all runs, after columns for folder, group and seed."""
        return self._joined("metrics")

    @property
    def epsilon(self) -> pd.DataFrame:
        """epsilon.csv of all runs, after the same columns."""
        return self._joined("epsilon")

    def table(
        self, *, metric: str | None = None, observer: str | None = None, method: str | None = None
    ) -> pd.DataFrame:
        """What `fedpriv table` prints, unrounded."""
        return self.report(metric=metric, observer=observer, method=method).frame()

    def report(self, **chosen: str | None) -> Report:
        """The table with best settings, tests and notes. It has `csv()`, `markdown()` and
        `latex()`."""
        return Report.of(self.runs, **chosen)

    def figure(self, out: str | Path, **chosen: str | None) -> Path:
        """Draw the figure of `fedpriv figure` into file `out`."""
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
    """A data set as a run uses it.

    train: training records.
    test: test records.
    allocation: owner and silo of each training record.
    silos: for each silo, its training records and their owners, (n,).
    """

    train: Records
    test: Records
    allocation: Allocation
    silos: Sequence[tuple[Records, np.ndarray]]


def run(*words: str, folder: str | Path | None = None, frame: pd.DataFrame | None = None) -> Runs:
    """Train, or continue a run with `resume=folder` among the words.

    folder: where results go; None: the folder that the command would use.
    frame: the table of `data=table`, in place of data.path. It stays in memory: a run that is
        resumed needs it again.
    """
    with given_frame(frame):
        line = CommandLine.parse(list(words))
        jobs = compose_jobs(line, conf_dir())
        if len(jobs) > 1 or line.multirun:
            raise FedprivError("fedpriv.run trains once; use fedpriv.sweep for several runs")
        [config] = jobs
        if config.resume is not None:
            resume(line, str(config.resume), quiet=True)
            return load_runs(str(config.resume))
        job = Job.of(config, 0, None)
        path = job.folder if folder is None else Path(folder)
        train(job.experiment, job.config_yaml, path, origin=job.origin, words=job.words, quiet=True)
        return load_runs(path)


def sweep(
    *words: str,
    folder: str | Path | None = None,
    at_once: int = 64,
    frame: pd.DataFrame | None = None,
) -> Runs:
    """Run every combination of the words' values, side by side in this process (see
    `fedpriv.sweeps.side_by_side`). Runs that `folder` has finished are not repeated.

    frame: as in `run`.

    A run that diverges has no result. Raises FedprivError at the end when runs have failed for
    another reason, naming them, and when all have diverged.
    """
    with given_frame(frame):
        line = CommandLine.parse(["-m", *words])
        configs = compose_jobs(line, conf_dir())
        place = sweep_folder(configs[0]) if folder is None else Path(folder)
        jobs = [Job.of(config, number, place) for number, config in enumerate(configs)]
        if sweeper := own_sweeper(configs[0]):
            jobs = draw_jobs(jobs, sweeper, line)
        SideBySide(at_once).launch(jobs, quiet=True)
        found = load_runs([job.folder for job in jobs if job.failure is None] or place)
        release_choices(find_selections(found.runs, None))
        return found


def compare(*words: str, folder: str | Path | None = None) -> ComparisonTable:
    """Train methods at one certified epsilon, side by side in this process, and compare them.
    Writes the files of `fedpriv compare`.

    words: those of the command.
    folder: of the comparison; None: the folder that the command would use.

    Raises FedprivError where the command prints an error.
    """
    own = [] if folder is None else ["--folder", str(folder)]
    table = run_comparison(Request.parse([*words, *own]), quiet=True)
    write(table)
    return table


def load_runs(*folders: str | Path | Iterable[str | Path]) -> Runs:
    """The runs that have finished in the folders and their subfolders. Unfinished runs are left
    out, and named in the log (logger "fedpriv", INFO). Raises FedprivError for a folder without
    one."""
    roots = [
        Path(root) for one in folders for root in ([one] if isinstance(one, str | Path) else one)
    ]
    return Runs(find_runs(roots, LOGGER.info))


def epsilon(*words: str, frame: pd.DataFrame | None = None) -> pd.DataFrame:
    """One row for each job, round (1, 10, 100, ..., the last), observer and method. Swept keys are
    columns. Needs no training and no torch, and data for few methods only.

    frame: as in `run`; a schema file needs none.
    """
    with given_frame(frame):
        rows = []
        for config in compose_jobs(CommandLine.parse(["-m", *words]), conf_dir()):
            exp = build(config)
            swept = dict(
                word.split("=", 1)
                for word in config.hydra.overrides.task
                if "," not in word and "=" in word
            )
            rows += [{**swept, **vars(row)} for row in EpsilonForecast.of(exp).rows]
        return pd.DataFrame(rows)


def analyse(
    *words: str, folder: str | Path | None = None, frame: pd.DataFrame | None = None
) -> pd.DataFrame:
    """The private statistics of `fedpriv analyse`, a row each.

    folder: of the run; None: the folder that the command would use.
    frame: as in `run`.
    """
    own = [] if folder is None else [f"hydra.run.dir={folder}"]
    with given_frame(frame):
        folder = release([*words, *own], quiet=True)
    with opened(Path(folder) / STATISTICS, TABLE_BYTES) as file:
        return pd.read_csv(file)


def federation(*words: str, frame: pd.DataFrame | None = None) -> Federated:
    """The records of the data set, allocated to users and silos as in a run. Reads data, but needs
    no torch.

    frame: as in `run`.
    """
    with given_frame(frame):
        corpus, allocation, sizes = allocate(one_experiment(*words))
    silos = []
    for number in range(sizes.n_silos):
        rows = np.flatnonzero((allocation.silo == number) & allocation.trains)
        part = replace(
            corpus.train, x=corpus.train.x[rows], y=corpus.train.y[rows], silo=None, user=None
        )
        silos.append((part, allocation.user[rows]))
    return Federated(corpus.train, corpus.test, allocation, silos)
