"""Runs tests on a mutant in a fork of a process that has loaded torch and the like, but nothing of fedpriv.

So a mutant costs its tests and not their imports. The fork works in a scratch copy of the tree.
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
from dataclasses import dataclass, field
from pathlib import Path

import hypothesis

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
"""Bytes that a mutant may allocate: a changed shift can ask for all there are."""


def warm_up() -> None:
    """Load what tests import beside fedpriv, as far as it is installed."""
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in LOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    # The same examples for every mutant, and none made smaller: one that fails is enough.
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    checks = list(hypothesis.HealthCheck)
    hypothesis.settings.register_profile(
        "mutants", deadline=None, derandomize=True, database=None, phases=phases, suppress_health_check=checks
    )
    if "fedpriv" in sys.modules:
        raise RuntimeError("forks would not see a mutant of a module that is loaded already")


def scratch_copy(root: Path, folder: Path) -> Path:
    """The tree at `root` below `folder`, without what was built or recorded there."""
    return Path(shutil.copytree(root, folder, ignore=shutil.ignore_patterns(*NOT_COPIED)))


@dataclass
class Fork:
    """Tests that run in the scratch copy `tree`, with `text` in place of the file `path` there if these are given.

    seconds: processor time after which the mutant is taken for an endless loop; waiting ends after three times that.
    """

    tree: Path
    tests: tuple[str, ...]
    seconds: float
    path: str | None = None
    text: str = ""
    process: int = field(init=False)
    started: float = field(init=False)

    def __post_init__(self) -> None:
        self.original = None
        if self.path is not None:
            file = self.tree / self.path
            self.original = file.read_text()
            file.write_text(self.text)
            # A compiled file is recognised by size and second, and a mutant may agree with its source in both.
            for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
                compiled.unlink()
        self.started = time.monotonic()
        self.process = os.fork()
        if not self.process:
            self._child()

    def result(self) -> str | None:
        """`killed`, `timeout` or `survived`; None as long as tests run. To be asked until it says."""
        done, status = os.waitpid(self.process, os.WNOHANG)
        if not done and time.monotonic() - self.started < 3 * self.seconds:
            return None
        self.end(waited=bool(done))
        code = os.waitstatus_to_exitcode(status) if done else -signal.SIGXCPU
        return {0: "survived", -signal.SIGXCPU: "timeout"}.get(code, "killed")

    def end(self, *, waited: bool = False) -> None:
        """Kill the tests and what they have started, and put the file back. waited: they have ended by themselves."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process, signal.SIGKILL)
        if not waited:
            os.waitpid(self.process, 0)
        if self.path is not None and self.original is not None:
            (self.tree / self.path).write_text(self.original)

    def _child(self) -> None:
        code = 70
        try:
            os.setpgid(0, 0)
            resource.setrlimit(resource.RLIMIT_CPU, (int(self.seconds) + 1, int(self.seconds) + 3))
            resource.setrlimit(resource.RLIMIT_DATA, (DATA_LIMIT, DATA_LIMIT))
            sys.dont_write_bytecode = self.path is not None
            os.environ |= {"PYTHONPATH": str(self.tree), "PYTHONDONTWRITEBYTECODE": "1"}
            elsewhere = {"", str(Path.cwd())}
            sys.path[:] = [str(self.tree), *(place for place in sys.path if place not in elsewhere)]
            os.chdir(self.tree)
            log = os.open(self.tree / "mutant.log", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
            os.dup2(log, 1)
            os.dup2(log, 2)
            code = _pytest(self.tree, self.tests)
        finally:
            os._exit(code)


def _pytest(tree: Path, tests: tuple[str, ...]) -> int:
    import pytest

    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-profile=mutants", "--tb=line"]
    code = int(pytest.main([*options, f"--rootdir={tree}", "-c", str(tree / "pyproject.toml"), *tests]))
    for module in sys.modules.copy().values():
        place = getattr(module, "__file__", None) or ""
        if module.__name__.partition(".")[0] == "fedpriv" and not place.startswith(str(tree)):
            raise RuntimeError(f"{place} was tested in place of the scratch copy")
    return code
