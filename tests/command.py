"""The command line, called in this process or in a child of its own."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig

from fedpriv.cli import main


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


def run(*words: str, cwd: Path) -> Done:
    """`fedpriv words` in folder `cwd`, without the seconds that a new interpreter takes to load
    torch. A defect, which a shell would see as exit code 1, is raised."""
    out, err = io.StringIO(), io.StringIO()
    code: object = None
    with _as_if_alone(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(list(words))
        except SystemExit as stop:
            code = stop.code
    assert code is None or isinstance(code, int), code
    return Done(code or 0, out.getvalue(), err.getvalue())


def success(*words: str, cwd: Path) -> Done:
    """`run`, of a command that has to end with exit code 0."""
    done = run(*words, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done


def refusal(*words: str, cwd: Path) -> str:
    """The one line with which a command is refused, on stderr."""
    done = run(*words, cwd=cwd)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    return done.stderr


def run_child(*words: str, cwd: Path, env: dict[str, str] | None = None) -> Done:
    """`fedpriv words` as a shell starts it, where the process itself is the subject."""
    command = [sys.executable, "-m", "fedpriv", *words]
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    return Done(done.returncode, done.stdout, done.stderr)


@contextlib.contextmanager
def _as_if_alone(cwd: Path) -> Iterator[None]:
    """What a command leaves behind in its process, put back: Hydra's singletons, sys.argv, the
    environment, logging."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    argv, environment = patch.object(sys, "argv", ["fedpriv"]), patch.dict(os.environ)
    with contextlib.chdir(cwd), argv, environment:
        os.environ.pop("COLUMNS", None)  # pytest's workers have one
        GlobalHydra.instance().clear()
        try:
            yield
        finally:
            GlobalHydra.instance().clear()
            HydraConfig.instance().cfg = None
            root.handlers[:] = handlers
            root.setLevel(level)
