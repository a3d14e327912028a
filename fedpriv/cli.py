"""The command line: `fedpriv [command] [key=value ...]`.

Exit codes: 0 done; 1 a defect (with its traceback), or an audit that refuted a certificate; 2 an
error that the user can correct (one line); 130 interrupted; 143 terminated.
"""

from __future__ import annotations

import atexit
import gc
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import pairwise, takewhile
from pathlib import Path
from pkgutil import resolve_name

import fedpriv
from fedpriv.errors import FedprivError, FedprivWarning
from fedpriv.settings.help import help_text
from fedpriv.settings.words import near, refuse_lone_word
from fedpriv.util.installed import pip_install
from fedpriv.util.printing import printable, say
from fedpriv.util.starting import garbage_kept, import_events_alone

COMMANDS = {
    "run": "fedpriv.commands:run",
    "train": "fedpriv.commands:run",
    "help": "fedpriv.cli:show_help",
    "epsilon": "fedpriv.runs.epsilon_command:main",
    "data": "fedpriv.runs.data_command:main",
    "analyse": "fedpriv.runs.analyse_command:analyse",
    "evaluate": "fedpriv.runs.evaluate_command:evaluate",
    "init": "fedpriv.projects.command:main",
    "figure": "fedpriv.reports.privacy_utility:main",
    "table": "fedpriv.reports.table_command:main",
    "compare": "fedpriv.comparisons.command:main",
    "report": "fedpriv.reports.assessment.command:main",
    "reproduce": "fedpriv.papers.reproduce:main",
    "replicate": "fedpriv.papers.ledger.command:main",
    "audit": "fedpriv.audit.command:main",
    "certify": "fedpriv.claims.command:main",
    "keys": "fedpriv.crypto.keys_command:main",
    "ledger": "fedpriv.reports.ledger_command:main",
    "site": "fedpriv.sites.command:main",
    "export": "fedpriv.bundles.command:export",
    "predict": "fedpriv.bundles.command:predict",
}
"""The function of each command, imported when it is used, so that `--help` answers at once."""
OWN_HELP = (
    *("figure", "table", "compare", "report", "reproduce", "replicate", "certify"),
    *("init", "keys", "ledger", "site", "export", "predict"),
)
"""Commands that parse their words with argparse, which prints their help."""
DESCRIBED = ("analyse", "evaluate")
"""Commands with words of their own, which the description of their module lists."""
COMPOSE = ("run", "train", "epsilon", "data")
"""Commands whose words Hydra composes to settings."""
HYDRA_ONLY = {"--hydra-help", "--cfg", "-c", "--info", "-i", "--shell-completion", "-sc"}
"""Flags that Hydra answers itself."""


def console() -> None:
    """Entry point of the console script."""
    atexit.register(gc.freeze)  # Python's end looks through no object of torch again
    main()


def main(args: list[str] | None = None) -> None:
    """Run a command and raise SystemExit with its exit code, unless that is 0.

    args: the words of the command line; by default the process's.
    """
    args = sys.argv[1:] if args is None else args
    logging.getLogger("fedpriv").propagate = False  # commands print to the terminal themselves
    try:
        command, args = chosen(args)
        with _terminated(), _plain_warnings():
            command(args)
            sys.stdout.flush()
    except FedprivError as error:
        sys.exit(complain(error))
    except BrokenPipeError:  # the reader of our output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except MemoryError as error:
        sys.exit(complain(FedprivError(f"out of memory{f' ({error})' if str(error) else ''}")))
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("fedpriv"):
            raise
        package = error.name.partition(".")[0]
        sys.exit(complain(FedprivError(f"{package} is not installed: {pip_install(package)}")))
    except OSError as error:
        if error.errno is None:
            raise
        where = f"{error.filename}: " if error.filename else ""
        sys.exit(complain(FedprivError(f"{where}{error.strerror}")))
    except TerminatedError as stop:
        say("; ".join(["fedpriv: terminated", *_how_to_go_on(stop)]), file=sys.stderr)
        sys.exit(143)
    except KeyboardInterrupt as stop:
        say("; ".join(["fedpriv: interrupted", *_how_to_go_on(stop)]), file=sys.stderr)
        sys.exit(130)


def complain(error: FedprivError) -> int:
    """Print an error in one line. Returns the exit code."""
    say(f"fedpriv: {' '.join(str(error).split())}", file=sys.stderr)
    return 2


def _how_to_go_on(stop: KeyboardInterrupt) -> list[str]:
    """The last note of an interrupt: a run's says how to resume it, a sweep's comes after those of
    its runs."""
    return getattr(stop, "__notes__", [])[-1:]


def chosen(args: list[str]) -> tuple[Callable[[list[str]], None], list[str]]:
    """The command that the words name, and its own words. Raises FedprivError for an unknown
    command."""
    flags = set(takewhile(lambda word: word != "--", args))
    if "--version" in flags:
        return show_version, []
    name = "run"
    if args and args[0] in COMMANDS:
        name, *args = args
    elif args and not args[0].startswith(("-", "~")) and "=" not in args[0]:
        refuse_lone_word(args[0], args[1] if len(args) > 1 else None)
        raise FedprivError(
            f"{args[0]}: unknown command; {near(args[0], COMMANDS)}allowed: {', '.join(COMMANDS)}"
        )
    if {"--help", "-h"} & flags and name not in OWN_HELP:
        return show_help, [name, *args] if name in DESCRIBED else args
    target = COMMANDS[name]
    if name in COMPOSE and {word.split("=")[0] for word in args} & HYDRA_ONLY:
        if any(word.startswith("query=") for word in args):
            _complete_commands()
        target = "fedpriv.commands:start_hydra"
    import_events_alone()
    with garbage_kept():
        command: Callable[[list[str]], None] = resolve_name(target)
    return command, args


def _complete_commands() -> None:
    """Complete a command's name. After a command, hide it, so that Hydra completes the words."""
    program, _, rest = os.environ.get("COMP_LINE", "").partition(" ")
    first, space, others = rest.lstrip().partition(" ")
    if space and first in COMMANDS:
        os.environ["COMP_LINE"] = f"{program} {others}"
    elif first and not space:
        say(" ".join(name for name in COMMANDS if name.startswith(first)))


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Context in which warnings of fedpriv are one line, without a place in its source."""
    usual = warnings.formatwarning

    def in_a_line(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        line: str | None = None,
    ) -> str:
        if issubclass(category, FedprivWarning):
            return f"fedpriv: {printable(' '.join(str(message).split()))}\n"
        return usual(message, category, filename, lineno, line)

    warnings.formatwarning = in_a_line
    try:
        yield
    finally:
        warnings.formatwarning = usual


class TerminatedError(KeyboardInterrupt):
    """The process received SIGTERM. Clusters send it before they kill a process."""


@contextmanager
def _terminated() -> Iterator[None]:
    """Context in which SIGTERM interrupts like ctrl-C, so that runs write their last records."""
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


def show_version(args: list[str]) -> None:
    say(f"fedpriv {fedpriv.__version__}")


def show_help(args: list[str]) -> None:
    """Print the description of the command that the first word names; else the commands and the
    config groups, including those of the user's own folder."""
    if args and args[0] in DESCRIBED:
        say(import_module(COMMANDS[args[0]].partition(":")[0]).__doc__, end="")
        return
    flags = ("--config-dir", "-cd")
    named = [word for flag, word in pairwise(args) if flag in flags]
    named += [word.partition("=")[2] for word in args if word.startswith("--config-dir=")]
    say(help_text(Path(named[0]) if named else None), end="")
