"""Running a compiler with limits, and a folder of what it built."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from fedpriv.util.durable_files import fsync_all, fsync_folder, replace_file

COMPILE_SECONDS = 120
"""Seconds of processor time that each process of a compiler may use. A busy machine takes longer by
the clock."""
WAIT_SECONDS = 1800.0
"""Seconds by the clock after which a compiler counts as hanging."""
FORGET_SECONDS = 86400.0
"""Seconds after which a failure is forgotten, and the compiler is tried again."""


LIMITED = ("sh", "-c", f'ulimit -t {COMPILE_SECONDS} && exec "$@"', "sh")
"""Runs a command with that limit."""


class CannotCompileError(Exception):
    """There is no compiler here that builds the source."""


def run_compiler(command: Sequence[str]) -> str:
    """The output of a compiler. Its processes end with it, and with this process' interruption.

    Raises CannotCompileError.
    """
    if shutil.which(command[0]) is None:
        raise CannotCompileError(f"{command[0]} cannot run (not found)")
    try:
        process = subprocess.Popen(
            [*LIMITED, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    except OSError as error:
        raise CannotCompileError(f"{command[0]} cannot run ({error})") from error
    try:
        output, errors = process.communicate(timeout=WAIT_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise CannotCompileError(f"{command[0]} hangs ({WAIT_SECONDS:g} s)") from error
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what a compiler started may outlive it
        process.wait()
    if process.returncode:
        lines = errors.strip().splitlines() or [f"exit status {process.returncode}"]
        raise CannotCompileError(f"{command[0]} fails: {lines[0]}")
    return output


class BuildFolder:
    """Libraries, each with its checksum, and failures to build one.

    folder: created when something is built.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def library(self, name: str, make: Callable[[Path], Path]) -> Path:
        """The library of this name, built if it is missing or damaged. Processes that need the same
        library build it once.

        make: builds it in an empty folder, and returns its path.

        Raises CannotCompileError; again without a new attempt within `FORGET_SECONDS`.
        """
        built = self.folder / f"{name}.so"
        if self._is_whole(built):
            return built
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._locked(name):
            if self._is_whole(built):  # another process built it meanwhile
                return built
            self._raise_remembered(name)
            try:
                with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
                    self._install(make(Path(scratch)), built)
            except CannotCompileError as error:
                content = json.dumps({"time": time.time(), "reason": str(error)})
                replace_file(self._failure(name), content.encode())
                raise
        return built

    def _install(self, fresh: Path, built: Path) -> None:
        """Put a library into place. Its checksum follows, so that a crash in between rebuilds."""
        digest = _digest(fresh)
        fsync_all([fresh])
        self._checksum(built).unlink(missing_ok=True)
        os.replace(fresh, built)
        fsync_folder(self.folder)
        replace_file(self._checksum(built), digest.encode())

    def _is_whole(self, built: Path) -> bool:
        try:
            return self._checksum(built).read_text() == _digest(built)
        except (OSError, ValueError):
            return False

    def _raise_remembered(self, name: str) -> None:
        try:
            known = json.loads(self._failure(name).read_text())
            recent = 0 <= time.time() - known["time"] < FORGET_SECONDS
            reason = str(known["reason"])
        except (OSError, ValueError, LookupError, TypeError):
            return
        if recent:
            raise CannotCompileError(f"{reason}; remembered in {self._failure(name)}")

    def _failure(self, name: str) -> Path:
        return self.folder / f"{name}.failed"

    def _checksum(self, built: Path) -> Path:
        return built.with_suffix(".sha256")

    @contextlib.contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        with open(self.folder / f"{name}.lock", "wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
