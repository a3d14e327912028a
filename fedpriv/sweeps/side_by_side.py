"""All runs of a sweep side by side in one process: `fedpriv -m ... hydra/launcher=side_by_side`.

Every run has its own folder, with the overrides as Hydra's only record, and gives the same numbers
as alone. Runs proceed in lock step (`fedpriv.sweeps.lock_step`): runs with equal networks share
gradients, evaluations and waiting for the disk (`fedpriv.training.chain`).

Started again with the same `hydra.sweep.dir`, a sweep continues (`fedpriv.runs.run_or_resume`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from fedpriv.data.shared import loaded_once
from fedpriv.errors import FedprivError, require
from fedpriv.runs.background_writer import SharedWriters
from fedpriv.runs.checkpoint import Origin
from fedpriv.runs.run_or_resume import early_failures_recorded, run_or_resume
from fedpriv.runtime import DivergedError
from fedpriv.settings.compose import BASIC_SWEEPER, CommandLine, each_job
from fedpriv.settings.experiment import Experiment, build_resolved, resolved, typed_words
from fedpriv.settings.keys import typed
from fedpriv.settings.words import conf_dir
from fedpriv.sweeps.lock_step import LockStep
from fedpriv.sweeps.progress import SweepProgress
from fedpriv.sweeps.random_number import RandomNumber
from fedpriv.util.printing import say

BASIC_LAUNCHER = "hydra._internal.core_plugins.basic_launcher.BasicLauncher"
CHECKPOINT_THREADS = 2
"""Few threads, so that checkpoints do not slow the runs down."""


@dataclass
class Job:
    """One run of a sweep.

    experiment: its settings and components.
    config: its resolved configuration.
    config_yaml: the same as its folder stores it.
    origin: the origin of its configuration.
    folder: where its records go.
    words: its overrides.
    failure: the exception that ended it early.
    """

    experiment: Experiment
    config: dict[str, Any]
    config_yaml: str
    origin: Origin
    folder: Path
    words: list[str]
    failure: Exception | None = None

    @staticmethod
    def of(config: DictConfig, number: int, sweep: Path | None) -> Job:
        """Job `number`, from its composed configuration. Raises ConfigError like `build`.

        sweep: folder of the sweep; None: it is a run of its own.
        """
        OmegaConf.set_readonly(config.hydra, False)
        config.hydra.job.num = number
        config.hydra.job.id = str(number)
        if number == 0 or "hydra:" in str(OmegaConf.to_container(config.hydra.sweep)):
            HydraConfig.instance().set_config(config)  # values and folders may refer to it
        own = config.hydra.run.dir if sweep is None else config.hydra.sweep.subdir
        plain = resolved(config)
        words = [str(word) for word in config.hydra.overrides.task]
        return Job(
            build_resolved(plain, typed_words(config)),
            plain,
            "".join(_as_yaml(json.dumps({key: value})) for key, value in plain.items()),
            Origin.of_values(plain),
            Path(str(own)) if sweep is None else sweep / str(own),
            words,
        )

    def run(self, number: int, shared_writers: SharedWriters, progress: SweepProgress) -> None:
        """Run or resume it. A failure is stored, and does not affect other runs.

        number: its place in the sweep.
        """
        try:
            with early_failures_recorded(self.folder, self.words):
                run_or_resume(
                    self.experiment,
                    self.config_yaml,
                    self.folder,
                    origin=self.origin,
                    words=self.words,
                    shared_writers=shared_writers,
                    quiet=True,
                    on_round=progress.on_round(number),
                )
        except Exception as failure:
            self.failure = failure
        why = None if self.failure is None else str(self.failure)
        progress.ended(number, self.folder, self.words, why)


@dataclass(frozen=True)
class SideBySide:
    """The launcher.

    at_once: number of active runs. Each holds its data and its network in memory.
    """

    at_once: int

    def __post_init__(self) -> None:
        allowed = "a positive number of runs"
        require(self.at_once >= 1, "hydra.launcher.at_once", self.at_once, allowed)

    def launch(
        self, jobs: Sequence[Job], *, quiet: bool = False, sweep: Path | None = None
    ) -> None:
        """Run all jobs.

        quiet: print nothing.
        sweep: folder of the sweep, to name it; None: the one that holds the first run's.

        Raises FedprivError at the end when runs have failed; a defect is raised unchanged. A run
        that diverges is a result: only its `failure` tells it.
        """
        sweep = sweep or jobs[0].folder.parent
        rounds = [job.experiment.options.rounds for job in jobs]
        quiet = quiet or all(job.experiment.options.quiet for job in jobs)
        if not quiet and self.at_once > 1:
            say(f"{len(jobs)} runs side by side, in {sweep}", file=sys.stderr)
        with (
            loaded_once(),
            ThreadPoolExecutor(CHECKPOINT_THREADS, thread_name_prefix="writer") as pool,
            SweepProgress(rounds, [job.words for job in jobs], quiet=quiet) as progress,
        ):
            shared_writers = SharedWriters(pool, min(self.at_once, len(jobs)))
            runs = [
                partial(job.run, number, shared_writers, progress)
                for number, job in enumerate(jobs)
            ]
            if self.at_once > 1:
                LockStep(runs, self.at_once).run()
            else:
                for run in runs:
                    run()
        failed = [job for job in jobs if job.failure is not None]
        if not quiet:
            say(f"{len(jobs) - len(failed)} of {len(jobs)} runs are done: {sweep}")
        for job in failed:
            if job.failure is not None and not isinstance(job.failure, FedprivError):
                raise job.failure
        if any(not isinstance(job.failure, DivergedError) for job in failed):
            named = "; ".join(f"{job.folder}: {job.failure}" for job in failed[:5])
            raise FedprivError(f"{len(failed)} of {len(jobs)} runs failed: {named}")


@lru_cache(maxsize=256)
def _as_yaml(section: str) -> str:
    """A section of a configuration, from JSON. Cached, because the runs of a sweep share most
    sections."""
    return OmegaConf.to_yaml(OmegaConf.create(json.loads(section)))


def sweep_folder(config: DictConfig) -> Path:
    """The folder of a sweep, from the configuration of its first job."""
    HydraConfig.instance().set_config(config)  # the folder's name may refer to it
    return Path(str(config.hydra.sweep.dir))


def own_launcher(config: DictConfig) -> SideBySide | None:
    """What runs the jobs of a sweep; None for plug-ins of Hydra. Raises ConfigError when fedpriv's
    sweeper has a launcher of those, or fedpriv's launcher such a sweeper."""
    target = config.hydra.launcher.get("_target_")
    found = _own(config, "launcher", SideBySide)
    launcher: SideBySide | None = SideBySide(at_once=1) if target == BASIC_LAUNCHER else found
    lists = config.hydra.sweeper.get("_target_") == BASIC_SWEEPER or own_sweeper(config) is not None
    name = config.hydra.runtime.choices["hydra/launcher"]
    require(lists or found is None, "hydra/launcher", name, "no launcher of fedpriv's for a search")
    known = launcher is not None or own_sweeper(config) is None
    require(known, "hydra/launcher", name, "side_by_side or basic with this sweeper")
    return launcher if lists else None


def own_sweeper(config: DictConfig) -> RandomNumber | None:
    """The sweeper of a composed configuration if it is one of fedpriv's."""
    sweeper: RandomNumber | None = _own(config, "sweeper", RandomNumber)
    return sweeper


def _own(config: DictConfig, name: str, cls: type) -> Any:
    settings: Any = OmegaConf.to_container(config.hydra[name], resolve=True)
    if settings.pop("_target_", "") != f"{cls.__module__}.{cls.__name__}":
        return None
    settings.pop("params", None)  # swept words from a file, which composing has already used
    return typed(cls, settings, f"hydra.{name}")


def draw_jobs(jobs: Sequence[Job], sweeper: RandomNumber, line: CommandLine) -> list[Job]:
    """The runs that the sweeper draws from the jobs of command line `line`."""
    sweep = jobs[0].folder.parent
    settings = [[word for word in job.words if word.partition("=")[0] != "seed"] for job in jobs]
    draw = sweeper.draw(
        sweep,
        settings,
        [job.experiment for job in jobs],
        [job.config for job in jobs],
    )
    composed = each_job(line, conf_dir(), draw.words())
    return [Job.of(config, number, sweep) for number, config in enumerate(composed)]
