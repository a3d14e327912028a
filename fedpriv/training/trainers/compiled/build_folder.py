"""Running a compiler, and a folder of what it built."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path

from fedpriv.util.durable_files import replace_file

WAIT_SECONDS = 1800.0
"""Seconds after which a compiler counts as hanging."""
FORGET_SECONDS = 86400.0
"""Seconds after which a failure is forgotten, and the compiler is tried again."""


class CannotCompileError(Exception):
    """There is no compiler here that builds the source."""


def run_compiler(command: Sequence[str], wait: float = WAIT_SECONDS) -> str:
    """The output of a compiler. Its processes end with it, and with this process' interruption.

    wait: seconds after which it counts as hanging.

    Raises CannotCompileError, and OSError where the command cannot run.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=wait)
    except subprocess.TimeoutExpired as error:
        raise CannotCompileError(f"{command[0]} hangs ({wait:g} s)") from error
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what a compiler started may outlive it
        process.wait()
    if process.returncode:
        lines = errors.strip().splitlines() or [f"exit status {process.returncode}"]
        raise CannotCompileError(f"{command[0]} fails: {lines[0]}")
    return output


def source_texts(package: str) -> dict[str, str]:
    """The files of a package's folder `source`, by name."""
    return {own.name: own.read_text() for own in (files(package) / "source").iterdir()}


def built(folder: Path, name: str, sources: object, make: Callable[[Path], bytes]) -> Path:
    """The library that `make` makes of `sources`, in `folder`; made where it is missing. Processes
    that need it at the same time make it once.

    name: the first part of the file's name.
    sources: their repr is the other part.
    make: returns the library; it may use an empty folder.

    Raises CannotCompileError; again without a new attempt within `FORGET_SECONDS`.
    """
    digest = hashlib.blake2b(repr(sources).encode(), digest_size=16).hexdigest()
    library = folder / f"{name}-{digest}.so"
    if library.exists():
        return library
    folder.mkdir(parents=True, exist_ok=True)
    failure = library.with_suffix(".failed")
    with open(library.with_suffix(".lock"), "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if library.exists():  # another process has made it meanwhile
            return library
        if failure.exists() and time.time() - failure.stat().st_mtime < FORGET_SECONDS:
            raise CannotCompileError(f"{failure.read_text()}; remembered in {failure}")
        try:
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                replace_file(library, make(Path(scratch)))
        except CannotCompileError as error:
            replace_file(failure, str(error).encode())
            raise
    return library
