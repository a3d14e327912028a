"""Run tests on a mutant, in a scratch copy of the tree, in a fork of a process that has done their
imports.

If a change is only in bodies of functions, the fork replaces these after fedpriv and the tests have
been imported. Otherwise the fork is one of a process that has imported torch and other libraries,
but nothing of fedpriv. So most mutants need no imports.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from multiprocessing import Pipe
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import hypothesis

from scripts.mutants.patch import NotPatchableError, forget, patch
from scripts.mutants.reach import Limits, Recorder

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

LOADED = (
    "torch",
    "numpy",
    "scipy.stats",
    "scipy.optimize",
    "dp_accounting",
    "dp_accounting.pld",
    "dp_accounting.rdp",
    "pandas",
    "hydra",
    "sklearn.datasets",
    "opacus",
    "safetensors.torch",
    "cryptography.hazmat.primitives.asymmetric.x25519",
    "gmpy2",
    "phe",
    "pytest",
    "rich.console",
)
NOT_COPIED = (".git", ".venv", "outputs", "dist", "build", "*_cache", ".hypothesis", "__pycache__")
DATA_LIMIT = 8 * 2**30
"""Bytes that a mutant may allocate: a changed shift could ask for all memory."""


def warm_up() -> None:
    """Import the installed libraries that tests use."""
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in LOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    # The same examples for every mutant, and none made smaller: one that fails is enough.
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    checks = list(hypothesis.HealthCheck)
    hypothesis.settings.register_profile(
        "mutants",
        deadline=None,
        derandomize=True,
        database=None,
        phases=phases,
        suppress_health_check=checks,
    )
    if "fedpriv" in sys.modules:
        raise RuntimeError("forks would not see a mutant of a module that is loaded already")


def scratch_copy(root: Path, folder: Path) -> Path:
    """A copy of the tree at `root` below `folder`, without build products and records."""
    return Path(shutil.copytree(root, folder, ignore=shutil.ignore_patterns(*NOT_COPIED)))


KILLED, SURVIVED, TIMEOUT, IMPORTS = "killed", "survived", "timeout", "imports"
"""Results of a mutant. The last one: its test needs a process without fedpriv."""
REACHED = "reached.json"
"""File in the scratch copy: the functions that each test calls."""
_NOT_PATCHABLE = 71
"""Exit code of a fork whose change shows when modules are imported."""


@dataclass(frozen=True)
class Change:
    """A change of a file.

    path: in the tree.
    old: its text.
    new: the mutant's text.
    """

    path: str
    old: str
    new: str


class Runner:
    """Runs the same tests in the scratch copy `tree` for many changes, one at a time.

    loaded: whether its process has imported the tests before, so that only bodies of functions can
    change.
    """

    def __init__(self, tree: Path, tests: Iterable[str], *, loaded: bool) -> None:
        self.tree = tree
        self.tests = tuple(tests)
        self.loaded = loaded
        self.connection, other = Pipe()
        self.process = os.fork()
        if not self.process:
            self.connection.close()
            self._serve(other)
        other.close()

    def start(self, change: Change | None, tests: dict[str, float], seconds: float) -> None:
        """Begin to run some of the tests; without a change, record which functions each of all
        calls.

        seconds: processor time after which a mutant is taken for an endless loop; waiting ends
        after ten times that.
        """
        self.connection.send((change, tests, seconds))

    def result(self) -> str | None:
        """The result of the last change; None while tests run."""
        return self.connection.recv() if self.connection.poll() else None

    def end(self) -> None:
        """Kill the process, its tests and their child processes."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process, signal.SIGTERM)
        os.waitpid(self.process, 0)
        self.connection.close()

    def _serve(self, connection: Connection) -> NoReturn:
        running: list[int] = []
        try:

            def stop(*_: object) -> None:
                _end_group(running)
                os._exit(0)

            signal.signal(signal.SIGTERM, stop)
            self._enter()
            if self.loaded:
                _pytest(self.tree, ("--collect-only", *self.tests))
            while True:
                change, tests, seconds = connection.recv()
                connection.send(self._run(change, tests, seconds, running))
        finally:
            os._exit(70)

    def _run(
        self, change: Change | None, tests: dict[str, float], seconds: float, running: list[int]
    ) -> str:
        """In the serving process."""
        if change is not None:
            self._write(change.path, change.new)
        process = os.fork()
        if not process:
            self._test(change, tests, seconds)
        running[:] = [process]
        end = time.monotonic() + 10 * seconds
        done = 0
        status = 0
        while not done and time.monotonic() < end:
            done, status = os.waitpid(process, os.WNOHANG)
            time.sleep(0.005)
        _end_group(running, waited=bool(done))
        if change is not None:
            self._write(change.path, change.old)
        code = os.waitstatus_to_exitcode(status) if done else -signal.SIGXCPU
        return {
            0: SURVIVED,
            -signal.SIGXCPU: TIMEOUT,
            -signal.SIGPROF: TIMEOUT,
            _NOT_PATCHABLE: IMPORTS,
        }.get(code, KILLED)

    def _write(self, path: str, text: str) -> None:
        file = self.tree / path
        file.write_text(text)
        # A compiled file is recognised by size and second, and a mutant may agree with its source
        # in both.
        for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
            compiled.unlink()

    def _enter(self) -> None:
        os.environ |= {"PYTHONPATH": str(self.tree), "PYTHONDONTWRITEBYTECODE": "1"}
        sys.dont_write_bytecode = True
        elsewhere = {"", str(Path.cwd())}
        sys.path[:] = [str(self.tree), *(place for place in sys.path if place not in elsewhere)]
        os.chdir(self.tree)
        log = os.open(self.tree / "mutant.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)

    def _test(self, change: Change | None, tests: dict[str, float], seconds: float) -> NoReturn:
        code = 70
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.setpgid(0, 0)
            os.truncate(self.tree / "mutant.log", 0)
            resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 3))
            resource.setrlimit(resource.RLIMIT_DATA, (DATA_LIMIT, DATA_LIMIT))
            if change is None:
                code = self._record()
            else:
                if self.loaded:
                    patch(str(self.tree / change.path), change.old, change.new)
                    forget(self.tree)
                code = _pytest(self.tree, tests, Limits(tests))
        except NotPatchableError:
            code = _NOT_PATCHABLE
        finally:
            os._exit(code)

    def _record(self) -> int:
        recorder = Recorder(self.tree)
        code = _pytest(self.tree, self.tests, recorder)
        recorder.write(self.tree / REACHED)
        return code


def _end_group(processes: list[int], *, waited: bool = False) -> None:
    """Kill a fork and what it has started. waited: it has ended by itself."""
    while processes:
        process = processes.pop()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)
        if not waited:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process, 0)


def _pytest(tree: Path, tests: Iterable[str], *plugins: object) -> int:
    import pytest

    options = [
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "--hypothesis-profile=mutants",
        "--tb=line",
    ]
    code = int(
        pytest.main(
            [*options, f"--rootdir={tree}", "-c", str(tree / "pyproject.toml"), *tests], plugins
        )
    )
    for module in sys.modules.copy().values():
        place = getattr(module, "__file__", None) or ""
        if module.__name__.partition(".")[0] == "fedpriv" and not place.startswith(str(tree)):
            raise RuntimeError(f"{place} was tested in place of the scratch copy")
    return code
