"""Commands that train, or show what training would cost: `fedpriv run`, `epsilon`, `allocation`."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from pathlib import Path

import hydra
from hydra._internal.hydra import Hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from fedpriv.data.allocation_report import draw, table
from fedpriv.errors import ConfigError, FedprivError, complain
from fedpriv.runs import data_command, epsilon_command
from fedpriv.runs.folder import RunFolder, read_status
from fedpriv.runs.loop import train
from fedpriv.runs.reserved import reserved
from fedpriv.runs.run_or_resume import early_failures_recorded, resume, run_or_resume
from fedpriv.runs.tables import METRICS
from fedpriv.settings.compose import (
    CommandLine,
    compose_jobs,
    each_job,
    one_line_errors,
)
from fedpriv.settings.experiment import build
from fedpriv.settings.help import conf_dir
from fedpriv.settings.seeds import with_listed_seeds
from fedpriv.sweeps.progress import SweepProgress
from fedpriv.sweeps.random_number import RandomNumber
from fedpriv.sweeps.side_by_side import (
    BASIC_LAUNCHER,
    Job,
    SideBySide,
    draw_jobs,
    own_launcher,
    own_sweeper,
)
from fedpriv.util.logs import LOGGER
from fedpriv.util.wide_console import wide_console

BASIC_SWEEPER = "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"


@one_line_errors()
def run(args: list[str]) -> None:
    """Train. A sweep is checked as a whole before its first job starts."""
    args = with_listed_seeds(args)  # Hydra gets them as well
    line = CommandLine.parse(args)
    launcher: SideBySide | None = None
    sweeper: RandomNumber | None = None
    listed = here = True
    resumed = None
    existing = Path()
    target = ""
    modes: set[RunMode | None] = set()
    own: list[str] = []
    number = 0
    jobs: list[Job] = []
    rounds: list[int] = []
    words: list[list[str]] = []
    for number, config in enumerate(each_job(line, conf_dir())):
        modes.add(config.hydra.mode)
        if number == 0:
            resumed = config.resume
            multirun = line.multirun or config.hydra.mode == RunMode.MULTIRUN
            if multirun:
                launcher = own_launcher(config)
                sweeper = own_sweeper(config)
                listed = config.hydra.sweeper.get("_target_") == BASIC_SWEEPER
                here = config.hydra.launcher.get("_target_") == BASIC_LAUNCHER
        if launcher:
            jobs.append(Job.of(config, number))
        else:
            rounds.append(build(config).options.rounds)
            words.append([str(word) for word in config.hydra.overrides.task])
        if number == 0 and resumed is None:
            existing, target = _check_writable(config, multirun)
            own = _own_words(config, args, target)
    if resumed is not None:
        resume(line, str(resumed), number + 1)
        return
    # Reserved before Hydra writes its records there.
    known = _mode_known(*modes) if len(modes) == 1 else nullcontext()
    with reserved(Path(target), existing), known:
        if not multirun:
            RunFolder(Path(target)).require_free()
            start_hydra(args, existing)
        elif launcher:
            jobs = draw_jobs(jobs, sweeper, line) if sweeper else jobs
            _sweep(lambda: launcher.launch(jobs), Path(target), args)
        else:
            with _shown(SweepProgress(rounds if listed else None, words), here=here):
                _sweep(lambda: start_hydra([*args, *own], existing), Path(target), args)


def _own_words(config: DictConfig, args: list[str], target: str) -> list[str]:
    """What Hydra's sweepers are told beside the words that were typed: the folder, which they would
    name by their own start time, and the seed of a search, so that a repeated one continues."""
    seed = "hydra.sweeper.sampler.seed"
    words = _sweep_dir(args, target)
    if seed not in _typed(args) and OmegaConf.select(config, seed, default="none") is None:
        words.append(f"{seed}={config.seed}")
    return words


def _typed(args: Sequence[str]) -> set[str]:
    """The keys of the command line."""
    return {word.partition("=")[0].lstrip("+") for word in args}


_PROGRESS: ContextVar[SweepProgress] = ContextVar("progress")
"""Of the sweep whose jobs Hydra starts in this process."""


@contextmanager
def _shown(progress: SweepProgress, *, here: bool) -> Iterator[None]:
    """Context of a sweep's progress.

    here: whether its jobs run in this process; each other process shows the ends of its own.
    """
    if not here:
        yield
        return
    with progress:
        token = _PROGRESS.set(progress)
        try:
            yield
        finally:
            _PROGRESS.reset(token)


def _sweep_dir(args: Sequence[str], target: str) -> list[str]:
    """The word that names the sweep's folder, unless `args` have one."""
    named = "hydra.sweep.dir" in _typed(args)
    plain = re.fullmatch(r"[\w./-]+", target) is not None
    return (
        [] if named else [f"hydra.sweep.dir={target}" if plain else f"hydra.sweep.dir='{target}'"]
    )


def _sweep(launch: Callable[[], None], folder: Path, args: Sequence[str]) -> None:
    """Run a sweep, and print the states of its runs. Raises FedprivError when runs have failed.

    args: words of the command line, with which an interrupted sweep continues.
    """
    from fedpriv.reports.sweep_states import print_sweep  # pandas: not for `fedpriv epsilon`

    failure: FedprivError | None = None
    try:
        launch()
    except FedprivError as error:
        failure = error
    except KeyboardInterrupt as interrupt:
        command = shlex.join(["fedpriv", *args, *_sweep_dir(args, str(folder))])
        interrupt.add_note(f"continue with {command}")
        raise
    except Exception:
        print_sweep(folder, wide_console())
        raise
    states = print_sweep(folder, wide_console())
    if failure is None:
        return
    failed = [state for state in states if state.state != "done"]
    if not failed:
        raise failure
    named = "; ".join(f"{state.folder}: {state.reason or state.state}" for state in failed)
    raise FedprivError(f"{len(failed)} of {len(states)} runs failed: {named}") from failure


def _check_writable(config: DictConfig, multirun: bool) -> tuple[Path, str]:
    """The nearest existing folder above the output folder, and the output folder. Raises
    ConfigError when nothing can be written there."""
    HydraConfig.instance().set_config(config)  # the folder's name may refer to it
    name = "sweep" if multirun else "run"
    target = str(config.hydra[name].dir)
    above = [Path(target), *Path(target).resolve().parents]
    existing = next(folder for folder in above if folder.exists())
    try:
        os.rmdir(tempfile.mkdtemp(dir=existing))
    except OSError as error:
        allowed = f"a folder that can be written ({existing}: {error.strerror})"
        raise ConfigError(f"hydra.{name}.dir", target, allowed) from error
    return existing, target


def start_hydra(args: list[str], existing: Path = Path()) -> None:
    """Hand over to Hydra, which composes again, makes the folder and starts the jobs.

    existing: the folder to which the folders of an unstarted run are removed.
    """
    # Hydra raises exceptions instead of printing them.
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")
    sys.argv = [sys.argv[0], *args]

    def job(config: DictConfig) -> float:
        return _job(config, existing)

    with one_line_errors():
        hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name="config")(job)()


@contextmanager
def _mode_known(mode: RunMode | None) -> Iterator[None]:
    """Context in which Hydra does not compose once more, only to look up `hydra.mode`."""
    looked_up = Hydra.get_mode
    Hydra.get_mode = lambda self, config_name, overrides: mode  # type: ignore[method-assign]
    try:
        yield
    finally:
        Hydra.get_mode = looked_up  # type: ignore[method-assign]


def _job(config: DictConfig, existing: Path) -> float:
    """One job inside Hydra. Returns its last main metric, for sweepers that search.

    An error of a single run ends the process. In a sweep, the other jobs continue.
    """
    running = HydraConfig.get()
    folder = Path(running.runtime.output_dir)
    settings = OmegaConf.to_yaml(config, resolve=True)
    if running.mode == RunMode.MULTIRUN:
        _job_of_sweep(config, settings, folder)
    else:
        try:
            train(build(config), settings, folder)
        except FedprivError as error:
            _remove_unstarted(folder, existing)
            sys.exit(complain(error))
    return float(RunFolder(folder).rows(METRICS)[-1][read_status(folder)["metric"]])


def _job_of_sweep(config: DictConfig, settings: str, folder: Path) -> None:
    """One run of a sweep, with one line at its end."""
    running = HydraConfig.get()
    number = int(running.job.num)
    progress = _PROGRESS.get(None) or SweepProgress(None)
    words = [str(word) for word in running.overrides.task]
    LOGGER.propagate = False  # a launcher's own process would print all that run.log gets
    try:
        with early_failures_recorded(folder):
            experiment = build(config)
            on_round = progress.on_round(number)
            run_or_resume(experiment, settings, folder, quiet=True, on_round=on_round)
    except Exception as error:
        progress.ended(number, folder, words, str(error))
        raise
    if not experiment.options.quiet:
        progress.ended(number, folder, words, None)


def _remove_unstarted(folder: Path, existing: Path) -> None:
    """Remove the folders below `existing` that Hydra made for a run that did not start."""
    if (folder / "config.yaml").exists():
        return
    shutil.rmtree(folder / ".hydra", ignore_errors=True)
    for path in [folder, *folder.parents]:
        if path.resolve() == existing.resolve() or any(path.iterdir()):
            return
        path.rmdir()


@one_line_errors()
def epsilon(args: list[str]) -> None:
    """Print the epsilon table of the settings, without training."""
    epsilon_command.main(args)


@one_line_errors()
def data(args: list[str]) -> None:
    """Print how records are read, who the users are, and what is private about each step."""
    data_command.show(args)


@one_line_errors()
def allocation(args: list[str]) -> None:
    """Print and draw who owns which records in which silo."""
    console = wide_console()
    for number, config in enumerate(compose_jobs(CommandLine.parse(args), conf_dir())):
        exp = build(config)
        corpus = exp.data.load(exp.streams)
        result = exp.allocator.allocate(corpus.train, exp.data, exp.streams)
        console.print(table(result))
        path = Path("outputs") / f"allocation_{config.hydra.runtime.choices.data}_{number}.png"
        path.parent.mkdir(exist_ok=True)
        draw(result, path)
        console.print(f"Picture: {path}", soft_wrap=True)
