"""Running a compiler, and a folder of what it built."""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path

from fedpriv.util.durable_files import replace_file
from fedpriv.util.file_locks import lock


class CannotCompileError(Exception):
    """There is no compiler here that builds the source."""


def run_compiler(command: Sequence[str]) -> str:
    """The output of a compiler. Raises CannotCompileError, and OSError where the command cannot
    run."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise CannotCompileError(f"{command[0]} fails: {lines[0]}")
    return done.stdout


def source_texts(package: str) -> dict[str, str]:
    """The files of a package's folder `source`, by name."""
    return {own.name: own.read_text() for own in (files(package) / "source").iterdir()}


def built(folder: Path, name: str, sources: object, make: Callable[[Path], bytes]) -> Path:
    """The library that `make` makes of `sources`, in `folder`; made where it is missing. Processes
    that need it at the same time make it once.

    name: the first part of the file's name.
    sources: their repr is the other part.
    make: returns the library; it may use an empty folder.

    Raises CannotCompileError.
    """
    digest = hashlib.blake2b(repr(sources).encode(), digest_size=16).hexdigest()
    library = folder / f"{name}-{digest}.so"
    if library.exists():
        return library
    folder.mkdir(parents=True, exist_ok=True)
    with open(library.with_suffix(".lock"), "wb") as held:
        lock(held.fileno(), wait=True)
        if not library.exists():  # another process has made it meanwhile
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                replace_file(library, make(Path(scratch)))
    return library
