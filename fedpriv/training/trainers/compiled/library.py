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
import warnings
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path

from fedpriv.training.trainers.compiled.build_folder import (
    BuildFolder,
    CannotCompileError,
    run_compiler,
)

LOGGER = logging.getLogger("fedpriv")
SOURCE = "training.cpp"
FLAGS = ("-std=c++17", "-O3", "-march=native", "-fno-math-errno", "-fPIC", "-shared")
"""No flag may exclude NaN and infinities: they show that a user's training diverged."""
COMPILERS = ("c++", "g++", "clang++")


@cache
def library() -> ctypes.CDLL | None:
    """The functions of training.cpp, or None where they cannot be compiled; a warning gives the
    reason once."""
    try:
        return _typed(ctypes.CDLL(str(build(compiler(), cache_dir()))))
    except (CannotCompileError, OSError, RuntimeError) as error:  # RuntimeError: no home
        message = f"local training and clipped gradients by torch, not compiled: {error}"
        LOGGER.warning(message)
        warnings.warn(message, RuntimeWarning, stacklevel=2)
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
    """The library that `command` compiles, in `folder`; built if it is missing or damaged. Raises
    CannotCompileError."""
    source = files(__package__) / "source"
    texts = {
        entry.name: entry.read_text()
        for entry in source.iterdir()
        if entry.name.endswith((".h", ".cpp"))
    }
    # The predefined macros identify the compiler, its version and the processor.
    target = run_compiler([*command, *FLAGS, "-dM", "-E", "-x", "c++", os.devnull])
    name = hashlib.blake2b(
        repr((sorted(texts.items()), FLAGS, target)).encode(), digest_size=16
    ).hexdigest()

    def make(scratch: Path) -> Path:
        for file, text in texts.items():
            (scratch / file).write_text(text)
        fresh = scratch / "library.so"
        run_compiler([*command, *FLAGS, str(scratch / SOURCE), "-o", str(fresh)])
        if not fresh.exists():
            raise CannotCompileError(f"{command[0]} wrote no library")
        return fresh

    return BuildFolder(folder).library(f"training-{name}", make)


def _typed(loaded: ctypes.CDLL) -> ctypes.CDLL:
    """The library with the signatures of training.cpp."""
    loaded.lanes.restype = ctypes.c_int64
    for size, compute in (
        (loaded.workspace, loaded.train),
        (loaded.workspace_of_sum, loaded.sum_clipped),
    ):
        size.restype, size.argtypes = ctypes.c_int64, [ctypes.c_void_p]
        compute.restype, compute.argtypes = None, [ctypes.c_void_p] * 3
    loaded.draw.restype = loaded.order.restype = None
    key = ctypes.c_uint64
    number = ctypes.c_int64
    address = ctypes.c_void_p
    loaded.draw.argtypes = [key, key, number, number, number, address]
    loaded.order.argtypes = [key, number, address, address, address]
    return loaded
