"""All runs of a sweep side by side in one process: `fedpriv -m ... hydra/launcher=side_by_side`.

Every run has its own folder with all of a run's files but Hydra's own records, of which it has the
overrides, and gives the same numbers as alone. They go in lock step (`fedpriv.sweeps.lock_step`):
gradients, evaluations and waiting for the disk are shared where networks are alike
(`fedpriv.training.chain`); everything else is a run's own affair.

Started again with the same `hydra.sweep.dir`, a sweep goes on: what is done is left alone
(`fedpriv.runs.run_or_resume`).
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

from fedpriv.data.shared import loaded_once
from fedpriv.errors import FedprivError, require
from fedpriv.runs.background_writer import SharedWriters
from fedpriv.runs.checkpoint import Origin
from fedpriv.runs.folder import CONFIG, RunFolder
from fedpriv.runs.run_or_resume import run_or_resume
from fedpriv.settings.compose import each_job
from fedpriv.settings.experiment import build_resolved, resolved, typed
from fedpriv.settings.help import conf_dir
from fedpriv.sweeps.lock_step import LockStep
from fedpriv.sweeps.random_number import RandomNumber
from fedpriv.util.durable_files import replace_file

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from fedpriv.settings.compose import CommandLine
    from fedpriv.settings.experiment import Experiment

BASIC_LAUNCHER = "hydra._internal.core_plugins.basic_launcher.BasicLauncher"
CHECKPOINT_THREADS = 2
"""Few, so that checkpoints take little from the runs."""


@dataclass
class Job:
    """One run of a sweep.

    failure: what ended it early.
    """

    experiment: Experiment
    config_yaml: str
    origin: Origin
    folder: Path
    words: list[str]
    failure: Exception | None = None

    @staticmethod
    def of(config: DictConfig, number: int) -> Job:
        """The run of a composed configuration, the `number`-th of its sweep. Raises ConfigError as
        `build` does."""
        OmegaConf.set_readonly(config.hydra, False)
        config.hydra.job.num = number
        config.hydra.job.id = str(number)
        if number == 0 or "hydra:" in str(OmegaConf.to_container(config.hydra.sweep)):
            HydraConfig.instance().set_config(config)  # values and folders may refer to it
        folder = Path(str(config.hydra.sweep.dir)) / str(config.hydra.sweep.subdir)
        words = [str(word) for word in config.hydra.overrides.task]
        plain = resolved(config)
        text = "".join(_as_yaml(json.dumps({key: value})) for key, value in plain.items())
        return Job(build_resolved(plain), text, Origin.of_values(plain), folder, words)

    def run(self, shared_writers: SharedWriters) -> None:
        """Run it, or go on with what its folder has. Whatever fails stays with this run."""
        try:
            if not (self.folder / CONFIG).exists():  # else it has them, or is another run's
                (self.folder / ".hydra").mkdir(parents=True, exist_ok=True)
                replace_file(
                    self.folder / ".hydra" / "overrides.yaml",
                    OmegaConf.to_yaml(self.words).encode(),
                )
            run_or_resume(
                self.experiment,
                self.config_yaml,
                self.folder,
                origin=self.origin,
                shared_writers=shared_writers,
                quiet=True,
            )
        except Exception as failure:
            self.failure = failure
            if not (self.folder / "status.json").exists():
                RunFolder(self.folder).ended("failed", str(failure), traceback.format_exc())


@dataclass(frozen=True)
class SideBySide:
    """at_once: runs that are on their way at the same time; each keeps its data and network in
    memory."""

    at_once: int

    def __post_init__(self) -> None:
        require(
            self.at_once >= 1, "hydra.launcher.at_once", self.at_once, "a positive number of runs"
        )

    def launch(self, jobs: Sequence[Job], *, quiet: bool = False) -> None:
        """Run all of them;

        quiet: without a word. Raises FedprivError at the end, when some have failed; a defect is
            raised as it is.
        """
        if not quiet:
            print(f"{len(jobs)} runs side by side, below {jobs[0].folder.parent}", file=sys.stderr)
        with (
            loaded_once(),
            ThreadPoolExecutor(CHECKPOINT_THREADS, thread_name_prefix="behind") as pool,
        ):
            shared_writers = SharedWriters(pool, min(self.at_once, len(jobs)))
            LockStep([lambda job=job: job.run(shared_writers) for job in jobs], self.at_once).run()  # type: ignore[misc]
        failed = [job for job in jobs if job.failure is not None]
        if not quiet:
            print(
                f"{len(jobs) - len(failed)} of {len(jobs)} runs are done: {jobs[0].folder.parent}"
            )
        for job in failed:
            if not isinstance(job.failure, FedprivError):
                assert job.failure is not None
                raise job.failure
        if failed:
            named = "; ".join(f"{job.folder}: {job.failure}" for job in failed[:5])
            raise FedprivError(f"{len(failed)} of {len(jobs)} runs failed: {named}")


@lru_cache(maxsize=256)
def _as_yaml(section: str) -> str:
    """A part of a configuration, given as JSON; kept, since the runs of a sweep share most
    parts.
    """
    return OmegaConf.to_yaml(OmegaConf.create(json.loads(section)))


def own_launcher(config: DictConfig) -> SideBySide | None:
    """The launcher of a composed configuration, if it is one of ours; None for Hydra's and its
    plug-ins'. Raises ConfigError for one of theirs beside a sweeper of ours."""
    launcher: SideBySide | None = _own(config, "launcher", SideBySide)
    if launcher or own_sweeper(config) is None:
        return launcher
    basic = config.hydra.launcher.get("_target_") == BASIC_LAUNCHER
    require(
        basic,
        "hydra/launcher",
        config.hydra.runtime.choices["hydra/launcher"],
        "side_by_side or basic with this sweeper",
    )
    return SideBySide(at_once=1)


def own_sweeper(config: DictConfig) -> RandomNumber | None:
    """The same for the sweeper."""
    sweeper: RandomNumber | None = _own(config, "sweeper", RandomNumber)
    return sweeper


def _own(config: DictConfig, name: str, cls: type) -> Any:
    settings: Any = OmegaConf.to_container(config.hydra[name], resolve=True)
    if settings.pop("_target_", "") != f"{cls.__module__}.{cls.__name__}":
        return None
    settings.pop("params", None)  # words of a sweep that a file gives; composing has taken them up
    return typed(cls, settings, f"hydra.{name}")


def drawn(jobs: Sequence[Job], sweeper: RandomNumber, line: CommandLine) -> list[Job]:
    """The runs of a random number of these jobs, all of one sweep that `line` stands for."""
    settings = [[word for word in job.words if word.partition("=")[0] != "seed"] for job in jobs]
    draw = sweeper.drawn(jobs[0].folder.parent, settings, [job.experiment for job in jobs])
    return [
        Job.of(config, number)
        for number, config in enumerate(each_job(line, conf_dir(), draw.words()))
    ]
