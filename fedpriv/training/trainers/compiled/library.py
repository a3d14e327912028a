"""The compiled library. It is built once for a source, a compiler and a processor, into the user's
cache.

A wheel contains the source alone, so installation needs no build step.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path

LOGGER = logging.getLogger("fedpriv")
SOURCE = "training.cpp"
FLAGS = ("-std=c++17", "-O3", "-march=native", "-fno-math-errno", "-fPIC", "-shared")
"""No flag may exclude NaN and infinities: they show that a user's training diverged."""
COMPILERS = ("c++", "g++", "clang++")
COMPILE_SECONDS = 120.0
"""Seconds that a compiler may take."""


class CannotCompileError(Exception):
    """There is no compiler here that builds the source."""


@cache
def library() -> ctypes.CDLL | None:
    """The functions of training.cpp, or None where they cannot be compiled; the reason is logged
    once."""
    try:
        return _typed(ctypes.CDLL(str(build(compiler(), cache_dir()))))
    except (CannotCompileError, OSError, RuntimeError) as error:  # RuntimeError: no home
        LOGGER.info("local training by torch, not compiled: %s", error)
        return None


def compiler() -> list[str]:
    """The command of the C++ compiler: $CXX, or else the first one found. Raises
    CannotCompileError."""
    chosen = os.environ.get("CXX")
    if chosen:
        return shlex.split(chosen)
    for name in COMPILERS:
        found = shutil.which(name)
        if found:
            return [found]
    raise CannotCompileError(f"no C++ compiler found ($CXX, {', '.join(COMPILERS)})")


def cache_dir() -> Path:
    """The folder of compiled libraries."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedpriv" / "compiled"


def build(command: Sequence[str], folder: Path) -> Path:
    """The library that `command` compiles, in `folder`; built if it does not exist yet. Raises
    CannotCompileError."""
    source = files(__package__) / "source"
    texts = {
        entry.name: entry.read_text()
        for entry in source.iterdir()
        if entry.name.endswith((".h", ".cpp"))
    }
    # The predefined macros identify the compiler, its version and the processor.
    target = _run([*command, *FLAGS, "-dM", "-E", "-x", "c++", os.devnull])
    name = hashlib.blake2b(
        repr((sorted(texts.items()), FLAGS, target)).encode(), digest_size=16
    ).hexdigest()
    built = folder / f"training-{name}.so"
    if built.exists():
        return built
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        for file, text in texts.items():
            (Path(scratch) / file).write_text(text)
        fresh = Path(scratch) / built.name
        _run([*command, *FLAGS, str(Path(scratch) / SOURCE), "-o", str(fresh)])
        fresh.replace(built)  # atomic, if another process builds it now
    return built


def _run(command: Sequence[str]) -> str:
    try:
        process = subprocess.run(
            command, capture_output=True, text=True, timeout=COMPILE_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotCompileError(f"{command[0]} cannot run ({error})") from error
    if process.returncode:
        message = process.stderr.strip().splitlines() or [f"exit status {process.returncode}"]
        raise CannotCompileError(f"{command[0]} fails: {message[0]}")
    return process.stdout


def _typed(loaded: ctypes.CDLL) -> ctypes.CDLL:
    """The library with the signatures of training.cpp."""
    loaded.workspace.restype = loaded.lanes.restype = ctypes.c_int64
    loaded.workspace.argtypes = [ctypes.c_void_p]
    loaded.train.restype = loaded.draw.restype = loaded.order.restype = None
    loaded.train.argtypes = [ctypes.c_void_p] * 3
    key = ctypes.c_uint64
    number = ctypes.c_int64
    address = ctypes.c_void_p
    loaded.draw.argtypes = [key, key, number, number, number, address]
    loaded.order.argtypes = [key, number, address, address, address]
    return loaded
