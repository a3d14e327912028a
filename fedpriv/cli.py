"""The command line: `fedpriv [run] ...`, `fedpriv epsilon ...`, `fedpriv allocation ...`, `fedpriv
figure ...`, `fedpriv table ...`, `fedpriv reproduce ...`, `fedpriv audit ...`.

Exit codes: 0 done, 1 a defect (with its traceback) or a certificate that an audit has refuted, 2 a
mistake the user can mend (one line), 130 interrupted, 143 terminated.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fedpriv.errors import ConfigError, FedprivError

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from fedpriv.settings.compose import CommandLine
    from fedpriv.sweeps.random_number import RandomNumber

HYDRA_ONLY = ("--hydra-help", "--cfg", "-c", "--info", "-i", "--shell-completion", "-sc")


def main(args: list[str] | None = None) -> None:
    """Entry point of the console script."""
    args = sys.argv[1:] if args is None else args
    logging.getLogger("fedpriv").propagate = False  # a command says what is to be said itself
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # where a user's own classes (`_target_`) are
    try:
        command, args = _chosen(args)
        with _terminated():
            command(args)
    except FedprivError as error:
        sys.exit(_complain(error))
    except BrokenPipeError:  # whoever read our output has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except MemoryError as error:
        sys.exit(_complain(FedprivError(f"not enough memory ({error or 'no more to be had'})")))
    except OSError as error:
        if error.errno is None:
            raise
        sys.exit(_complain(FedprivError(f"{error.filename or 'fedpriv'}: {error.strerror}")))
    except TerminatedError:
        print("fedpriv: terminated", file=sys.stderr)
        sys.exit(143)
    except KeyboardInterrupt:
        print("fedpriv: interrupted", file=sys.stderr)
        sys.exit(130)


def _chosen(args: list[str]) -> tuple[Callable[[list[str]], None], list[str]]:
    """The command that the words ask for, and those that are its own. Raises FedprivError for one
    that is none."""
    from fedpriv.settings.help import near

    if "--version" in args:
        return version, []
    command: Callable[[list[str]], None] = run
    if args and args[0] in COMMANDS:
        command = COMMANDS[args[0]]
        args = args[1:]
    elif args and not args[0].startswith(("-", "~")) and "=" not in args[0]:
        raise FedprivError(
            f"{args[0]}: no such command; {near(args[0], COMMANDS)}allowed: {', '.join(COMMANDS)}"
        )
    if {"--help", "-h"} & set(args) and command not in OWN_HELP:
        return show_help, args
    shows_settings = any(word.split("=")[0] in HYDRA_ONLY for word in args)
    return (run if shows_settings and command in (epsilon, allocation) else command), args


class TerminatedError(KeyboardInterrupt):
    """The process was asked to end (SIGTERM), as clusters do before they kill."""


@contextmanager
def _terminated() -> Iterator[None]:
    """Context in which SIGTERM interrupts as ctrl-C does, so that runs end in order."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: object) -> None:
        raise TerminatedError

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _complain(error: FedprivError) -> int:
    print(f"fedpriv: {' '.join(str(error).split())}", file=sys.stderr)
    return 2


def run(args: list[str]) -> None:
    """Train. The whole sweep is checked before Hydra starts its first job."""
    from fedpriv.settings.help import conf_dir

    if any(word.split("=")[0] in HYDRA_ONLY for word in args):
        if any(word.startswith("query=") for word in args):
            _complete_commands()
        _hydra(args, conf_dir(), Path())
        return
    from hydra.types import RunMode

    from fedpriv.runs.folder import RunFolder
    from fedpriv.settings.compose import CommandLine, each_job
    from fedpriv.settings.experiment import build_resolved, resolved
    from fedpriv.sweeps.side_by_side import Job, SideBySide, drawn, own_launcher, own_sweeper

    line = CommandLine.parse(args)
    launcher: SideBySide | None = None
    sweeper: RandomNumber | None = None
    resume = None
    existing = Path()
    target = ""
    number = 0
    jobs: list[Job] = []
    for number, config in enumerate(each_job(line, conf_dir())):
        if number == 0:
            resume = config.resume
            multirun = line.multirun or config.hydra.mode == RunMode.MULTIRUN
            launcher, sweeper = (
                (own_launcher(config), own_sweeper(config)) if multirun else (None, None)
            )
        if launcher:
            jobs.append(Job.of(config, number))
        else:
            build_resolved(resolved(config))
        if number == 0 and resume is None:
            existing, target = _check_writable(config, multirun)
    if resume is not None:
        _resume(line, str(resume), number + 1)
    elif not multirun:
        RunFolder(Path(target)).require_free()  # before Hydra writes its records there
        _hydra(args, conf_dir(), existing)
    elif launcher:
        jobs = drawn(jobs, sweeper, line) if sweeper else jobs
        _sweep(lambda: launcher.launch(jobs), Path(target))
    else:
        named = any(word.partition("=")[0] == "hydra.sweep.dir" for word in args)
        own = (
            [] if named else [f"hydra.sweep.dir='{target}'"]
        )  # Hydra would take the time of its own start
        _sweep(lambda: _hydra([*args, *own], conf_dir(), existing), Path(target))


def _complete_commands() -> None:
    """Tab completion of commands; after one, Hydra completes its words as if it was not there."""
    program, _, rest = os.environ.get("COMP_LINE", "").partition(" ")
    first, space, others = rest.lstrip().partition(" ")
    if space and first in COMMANDS:
        os.environ["COMP_LINE"] = f"{program} {others}"
    elif first and not space:
        print(" ".join(name for name in COMMANDS if name.startswith(first)))


def _sweep(launch: Callable[[], None], folder: Path) -> None:
    """Run a sweep, and print what has become of its runs. Raises FedprivError when some have
    failed."""
    from rich.console import Console

    from fedpriv.reports.sweep_states import print_sweep

    failure: FedprivError | None = None
    try:
        launch()
    except FedprivError as error:
        failure = error
    except Exception:
        print_sweep(folder, Console())
        raise
    found = print_sweep(folder, Console())
    failed = [state for state in found if state.state != "done"]
    if failure and failed:
        named = "; ".join(f"{state.folder}: {state.reason or state.state}" for state in failed)
        raise FedprivError(f"{len(failed)} of {len(found)} runs failed: {named}") from failure
    if failure:
        raise failure


def _check_writable(config: DictConfig, multirun: bool) -> tuple[Path, str]:
    """The nearest existing folder above the output folder, and that; ends early when nothing can be
    written there."""
    import tempfile

    from hydra.core.hydra_config import HydraConfig

    HydraConfig.instance().set_config(config)  # the folder's name may refer to it
    key, target = (
        ("hydra.sweep.dir", config.hydra.sweep.dir)
        if multirun
        else ("hydra.run.dir", config.hydra.run.dir)
    )
    existing = next(
        folder for folder in [Path(target), *Path(target).resolve().parents] if folder.exists()
    )
    try:
        os.rmdir(tempfile.mkdtemp(dir=existing))
    except OSError as error:
        raise ConfigError(
            key, target, f"a folder that can be written ({existing}: {error.strerror})"
        ) from error
    return existing, str(target)


def _hydra(args: list[str], config_dir: Path, existing: Path) -> None:
    """Hand over to Hydra, which composes once more, makes the folder and starts the jobs."""
    import hydra

    from fedpriv.settings.compose import one_line_errors

    os.environ.setdefault(
        "HYDRA_FULL_ERROR", "1"
    )  # exceptions reach us instead of being printed by Hydra
    sys.argv = [sys.argv[0], *args]

    def job(config: DictConfig) -> float:
        return _job(config, existing)

    with one_line_errors():
        hydra.main(version_base="1.3", config_path=str(config_dir), config_name="config")(job)()


def _job(config: DictConfig, existing: Path) -> float:
    """One job inside Hydra; its main metric in the end, for sweepers that search. A single run ends
    the process itself; in a sweep the other jobs go on."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode
    from omegaconf import OmegaConf

    from fedpriv.runs.folder import RunFolder, read_status
    from fedpriv.runs.loop import train
    from fedpriv.runs.run_or_resume import run_or_resume
    from fedpriv.runs.tables import METRICS
    from fedpriv.settings.experiment import build

    hydra = HydraConfig.get()
    folder = Path(hydra.runtime.output_dir)
    settings = OmegaConf.to_yaml(config, resolve=True)
    try:
        if hydra.mode == RunMode.MULTIRUN:
            run_or_resume(build(config), settings, folder)
        else:
            train(build(config), settings, folder)
        return float(RunFolder(folder).rows(METRICS)[-1][read_status(folder)["metric"]])
    except FedprivError as error:
        if hydra.mode == RunMode.MULTIRUN:
            if not (folder / "status.json").exists():
                import traceback

                RunFolder(folder).ended("failed", str(error), traceback.format_exc())
            raise
        _remove_unstarted(folder, existing)
        sys.exit(_complain(error))


def _remove_unstarted(folder: Path, existing: Path) -> None:
    """Take away the folders below `existing` that Hydra made for a run that never began."""
    import shutil

    if (folder / "config.yaml").exists():
        return
    shutil.rmtree(folder / ".hydra", ignore_errors=True)
    for path in [folder, *folder.parents]:
        if path.resolve() == existing.resolve() or any(path.iterdir()):
            return
        path.rmdir()


def _resume(line: CommandLine, target: str, jobs: int) -> None:
    """Continue the run in folder `target` with its own stored configuration."""
    from omegaconf import OmegaConf

    from fedpriv.runs.loop import train
    from fedpriv.runs.stored_config import stored_config
    from fedpriv.settings.experiment import build

    config = stored_config(line, target, jobs)
    train(build(config), OmegaConf.to_yaml(config), Path(target), resume=True)


def version(args: list[str]) -> None:
    """Print the version."""
    import fedpriv

    print(f"fedpriv {fedpriv.__version__}")


def show_help(args: list[str]) -> None:
    """Print the commands, and the groups of the configuration tree and of the user's own."""
    from fedpriv.settings.help import help_text

    place = [
        word for flag, word in zip(["", *args], [*args, ""]) if flag in ("--config-dir", "-cd")
    ]
    place += [word.partition("=")[2] for word in args if word.startswith("--config-dir=")]
    print(help_text(Path(place[0]) if place else None), end="")


def epsilon(args: list[str]) -> None:
    """Print the epsilon table of the same settings, without data and without training."""
    from fedpriv.runs.epsilon_forecast import show

    show(args)


def allocation(args: list[str]) -> None:
    """Print and draw who owns which records in which silo."""
    from rich.console import Console

    from fedpriv.data.allocation_report import draw, table
    from fedpriv.settings.compose import CommandLine, compose_jobs, without_hydra
    from fedpriv.settings.experiment import build
    from fedpriv.settings.help import conf_dir

    console = Console()
    for number, config in enumerate(compose_jobs(CommandLine.parse(args), conf_dir())):
        exp = build(without_hydra(config))
        corpus = exp.data.load(exp.streams)
        result = exp.allocator.allocate(corpus.train, exp.data, exp.streams)
        console.print(table(result))
        path = Path("outputs") / f"allocation_{config.hydra.runtime.choices.data}_{number}.png"
        path.parent.mkdir(exist_ok=True)
        draw(result, path)
        console.print(f"Picture: {path}", soft_wrap=True)


def figure(args: list[str]) -> None:
    """Draw metric and epsilon against the round from finished runs."""
    from fedpriv.reports.privacy_utility import main as draw

    draw(args)


def table(args: list[str]) -> None:
    """Print or write metric and epsilon of finished runs, grouped by configuration without the
    seed."""
    from fedpriv.reports.table_command import main as tabulate

    tabulate(args)


def reproduce(args: list[str]) -> None:
    """Run the experiments of a paper's figure and draw it."""
    from fedpriv.papers.reproduce import main as make

    make(args)


def audit(args: list[str]) -> None:
    """Attack the settings' own code path: certified and claimed epsilons beside proven lower
    bounds."""
    from fedpriv.audit.command import main as attack

    attack(args)


OWN_HELP = (figure, table, reproduce)
"""Commands whose words are no overrides; argparse tells theirs."""
COMMANDS: dict[str, Callable[[list[str]], None]] = {
    "run": run,
    "train": run,
    "help": show_help,
    "epsilon": epsilon,
    "allocation": allocation,
    "figure": figure,
    "table": table,
    "reproduce": reproduce,
    "audit": audit,
}
