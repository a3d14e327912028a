"""All runs of a sweep side by side in one process: `fedpriv -m ... hydra/launcher=stacked`.

Every run has its own folder with all of a run's files but Hydra's own records, of which it has the overrides, and gives
the same numbers as alone. They go in lock step (`fedpriv.lockstep`): gradients, evaluations and waiting for the disk
are shared where networks are alike (`fedpriv.training.chain`); everything else is a run's own affair.

Started again with the same `hydra.sweep.dir`, a sweep goes on: each run from its checkpoint.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import OmegaConf, open_dict, read_write

from fedpriv.begun import DISK_THREADS
from fedpriv.errors import FedprivError, require
from fedpriv.lockstep import LockStep
from fedpriv.results import RunFolder, replace_file
from fedpriv.run import train

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from fedpriv.config import Experiment


@dataclass
class Job:
    """One run of a sweep. failure: what ended it early."""

    experiment: Experiment
    config_yaml: str
    folder: Path
    words: list[str]
    failure: Exception | None = None

    @staticmethod
    def of(experiment: Experiment, config: DictConfig, number: int) -> Job:
        """The run of a composed configuration, the `number`-th of its sweep."""
        from hydra.core.hydra_config import HydraConfig

        with read_write(config.hydra), open_dict(config.hydra):
            config.hydra.job.num, config.hydra.job.id = number, str(number)
        HydraConfig.instance().set_config(config)  # folders' names and values may refer to it
        folder = Path(str(config.hydra.sweep.dir)) / str(config.hydra.sweep.subdir)
        words = [str(word) for word in config.hydra.overrides.task]
        own = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
        return Job(experiment, OmegaConf.to_yaml(own, resolve=True), folder, words)

    def run(self, pool: Executor) -> None:
        """Run it, or go on with what its folder has. Whatever fails stays with this run."""
        known = (self.folder / "config.yaml").exists()
        try:
            (self.folder / ".hydra").mkdir(parents=True, exist_ok=True)
            replace_file(self.folder / ".hydra" / "overrides.yaml", OmegaConf.to_yaml(self.words).encode())
            train(self.experiment, self.config_yaml, self.folder, known, pool=pool, quiet=True)
        except Exception as failure:
            self.failure = failure
            if not (self.folder / "status.json").exists():
                text = traceback.format_exc()
                RunFolder(self.folder).status(state="failed", reason=str(failure), traceback=text)


@dataclass(frozen=True)
class Stacked:
    """at_once: runs that are on their way at the same time; each keeps its data and network in memory."""

    at_once: int

    def __post_init__(self) -> None:
        require(self.at_once >= 1, "hydra.launcher.at_once", self.at_once, "a positive number of runs")

    def launch(self, jobs: Sequence[Job]) -> None:
        """Run all of them. Raises FedprivError at the end, when some have failed; a defect is raised as it is."""
        print(f"{len(jobs)} runs side by side, below {jobs[0].folder.parent}", file=sys.stderr)
        with ThreadPoolExecutor(DISK_THREADS, thread_name_prefix="behind") as pool:
            LockStep([lambda job=job: job.run(pool) for job in jobs], self.at_once).run()  # type: ignore[misc]
        failed = [job for job in jobs if job.failure is not None]
        print(f"{len(jobs) - len(failed)} of {len(jobs)} runs are done: {jobs[0].folder.parent}")
        for job in failed:
            print(f"failed: {job.folder}: {job.failure}", file=sys.stderr)
            if not isinstance(job.failure, FedprivError):
                assert job.failure is not None
                raise job.failure
        if failed:
            raise FedprivError(f"{len(failed)} of {len(jobs)} runs failed; see their status.json")


def own_launcher(config: DictConfig) -> Stacked | None:
    """The launcher of a composed configuration, if it is one of ours; None for Hydra's and its plug-ins'."""
    from hydra.utils import instantiate

    ours = str(config.hydra.launcher.get("_target_", "")).startswith(f"{__name__}.")
    return instantiate(config.hydra.launcher) if ours else None
