"""The command line: `fedpriv [run] ...`, `fedpriv epsilon ...`, `fedpriv allocation ...`, `fedpriv figure ...`,
`fedpriv table ...`, `fedpriv audit ...`.

Exit codes: 0 done, 1 a defect (with its traceback) or a certificate that an audit has refuted, 2 a mistake the
user can mend (one line), 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fedpriv.errors import ConfigError, FedprivError

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from fedpriv.compose import CommandLine

HYDRA_ONLY = ("--hydra-help", "--version", "--cfg", "-c", "--info", "-i", "--shell-completion", "-sc")
RESUMABLE = ("rounds", "device")


def main(args: list[str] | None = None) -> None:
    """Entry point of the console script."""
    args = sys.argv[1:] if args is None else args
    command: Callable[[list[str]], None] = COMMANDS.get(args[0], run) if args else run
    if args and args[0] in COMMANDS:
        args = args[1:]
    if {"--help", "-h"} & set(args) and command not in OWN_HELP:
        from fedpriv.help import help_text

        print(help_text(), end="")
        return
    try:
        command(args)
    except FedprivError as error:
        sys.exit(_complain(error))
    except KeyboardInterrupt:
        print("fedpriv: interrupted", file=sys.stderr)
        sys.exit(130)


def _complain(error: FedprivError) -> int:
    print(f"fedpriv: {' '.join(str(error).split())}", file=sys.stderr)
    return 2


def run(args: list[str]) -> None:
    """Train. The whole sweep is checked before Hydra starts its first job."""
    from fedpriv.help import conf_dir

    if any(word.split("=")[0] in HYDRA_ONLY for word in args):
        _hydra(args, conf_dir(), Path())
        return
    from hydra.types import RunMode

    from fedpriv.compose import CommandLine, each_job
    from fedpriv.config import build_resolved, resolved
    from fedpriv.sweep import Job, Stacked, own_launcher

    line = CommandLine.parse(args)
    launcher: Stacked | None = None
    resume, existing, number = None, Path(), 0
    jobs: list[Job] = []
    for number, config in enumerate(each_job(line, conf_dir())):
        if number == 0:
            resume, multirun = config.resume, line.multirun or config.hydra.mode == RunMode.MULTIRUN
            launcher = own_launcher(config) if multirun else None
        if launcher:
            jobs.append(Job.of(config, number))
        else:
            build_resolved(resolved(config))
        if number == 0 and resume is None:
            existing = _check_writable(config, multirun)
    if resume is not None:
        _resume(line, str(resume), number + 1)
    elif launcher:
        launcher.launch(jobs)
    else:
        _hydra(args, conf_dir(), existing)


def _check_writable(config: DictConfig, multirun: bool) -> Path:
    """The nearest existing folder above the output folder; ends early when nothing can be written there."""
    import tempfile

    from hydra.core.hydra_config import HydraConfig

    HydraConfig.instance().set_config(config)  # the folder's name may refer to it
    key, target = ("hydra.sweep.dir", config.hydra.sweep.dir) if multirun else ("hydra.run.dir", config.hydra.run.dir)
    existing = next(folder for folder in [Path(target), *Path(target).resolve().parents] if folder.exists())
    try:
        os.rmdir(tempfile.mkdtemp(dir=existing))
    except OSError as error:
        raise ConfigError(key, target, f"a folder that can be written ({existing}: {error.strerror})") from error
    return existing


def _hydra(args: list[str], config_dir: Path, existing: Path) -> None:
    """Hand over to Hydra, which composes once more, makes the folder and starts the jobs."""
    import hydra

    from fedpriv.compose import one_line_errors

    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # exceptions reach us instead of being printed by Hydra
    sys.argv = [sys.argv[0], *args]

    def job(config: DictConfig) -> None:
        _job(config, existing)

    with one_line_errors():
        hydra.main(version_base="1.3", config_path=str(config_dir), config_name="config")(job)()


def _job(config: DictConfig, existing: Path) -> None:
    """One job inside Hydra. A single run ends the process itself; in a sweep the other jobs go on."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode
    from omegaconf import OmegaConf

    from fedpriv.config import build
    from fedpriv.results import RunFolder
    from fedpriv.run import train

    hydra = HydraConfig.get()
    folder = Path(hydra.runtime.output_dir)
    try:
        train(build(config), OmegaConf.to_yaml(config, resolve=True), folder)
    except FedprivError as error:
        if hydra.mode == RunMode.MULTIRUN:
            if not (folder / "status.json").exists():
                import traceback

                RunFolder(folder).status(state="failed", reason=str(error), traceback=traceback.format_exc())
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

    from fedpriv.config import build
    from fedpriv.run import train

    folder = Path(target)
    stored = folder / "config.yaml"
    if not stored.is_file():
        raise ConfigError("resume", target, "a folder of an earlier run (with config.yaml)")
    changes = [word for word in line.overrides if word.split("=")[0] != "resume"]
    refused = [word for word in changes if word.split("=")[0] not in RESUMABLE]
    if refused or jobs > 1 or line.multirun:
        named = " ".join(refused) or "a sweep"
        raise ConfigError("resume", target, f"goes on with its stored settings: {named} cannot be given beside it")
    config = OmegaConf.merge(OmegaConf.load(stored), OmegaConf.from_dotlist(changes))
    train(build(config), OmegaConf.to_yaml(config), folder, resume=True)


def epsilon(args: list[str]) -> None:
    """Print the epsilon table of the same settings, without data and without training."""
    from fedpriv.epsilon import show

    show(args)


def allocation(args: list[str]) -> None:
    """Print and draw who owns which records in which silo."""
    from rich.console import Console

    from fedpriv.compose import CommandLine, compose_jobs, without_hydra
    from fedpriv.config import build
    from fedpriv.data.allocation_report import draw, table
    from fedpriv.help import conf_dir

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
    from fedpriv.figures.privacy_utility import main as draw

    draw(args)


def table(args: list[str]) -> None:
    """Print or write metric and epsilon of finished runs, grouped by configuration without the seed."""
    from fedpriv.tables.command import main as tabulate

    tabulate(args)


def audit(args: list[str]) -> None:
    """Attack the settings' own code path: certified and claimed epsilons beside proven lower bounds."""
    from fedpriv.audit.command import main as attack

    attack(args)


OWN_HELP = (figure, table)
"""Commands whose words are no overrides; argparse tells theirs."""
COMMANDS: dict[str, Callable[[list[str]], None]] = {
    "run": run,
    "epsilon": epsilon,
    "allocation": allocation,
    "figure": figure,
    "table": table,
    "audit": audit,
}
