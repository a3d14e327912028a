"""The compiled library. It is built once for a source, a compiler and a processor, into the user's
cache.

A wheel contains the source alone, so installation needs no build step.
"""

from __future__ import annotations

import ctypes
import logging
import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from fedpriv.training.trainers.compiled.build_folder import (
    CannotCompileError,
    built,
    run_compiler,
    source_texts,
)

LOGGER = logging.getLogger("fedpriv")
SOURCE = "training.cpp"
FLAGS = ("-std=c++17", "-O3", "-march=native", "-fno-math-errno", "-fPIC", "-shared")
"""No flag may exclude NaN and infinities: they show that a user's training diverged."""
COMPILERS = ("c++", "g++", "clang++")
KEY, NUMBER, ADDRESS = ctypes.c_uint64, ctypes.c_int64, ctypes.c_void_p
SIGNATURES: dict[str, tuple[type[Any] | None, list[type[Any]]]] = {
    "workspace": (NUMBER, [ADDRESS]),
    "find_places": (NUMBER, [ADDRESS] * 3),
    "pack": (None, [ADDRESS, NUMBER, ADDRESS, ADDRESS]),
    "train": (None, [ADDRESS, ADDRESS, NUMBER, ADDRESS]),
    "workspace_of_sum": (NUMBER, [ADDRESS]),
    "sum_clipped": (None, [ADDRESS] * 3),
    "descend": (None, [ADDRESS] * 3),
    "draw": (None, [KEY, KEY, NUMBER, NUMBER, NUMBER, ADDRESS]),
    "order": (None, [KEY, NUMBER, ADDRESS, ADDRESS, ADDRESS]),
    "lanes": (NUMBER, []),
}
"""What the functions of training.cpp return and take."""


@cache
def library() -> ctypes.CDLL | None:
    """The functions of training.cpp, or None where they cannot be compiled; a warning gives the
    reason once."""
    try:
        loaded = ctypes.CDLL(str(build(cache_dir())))
    except (CannotCompileError, OSError, RuntimeError) as error:  # RuntimeError: no home
        LOGGER.warning("local training and clipped gradients by torch, not compiled: %s", error)
        return None
    for name, (returned, arguments) in SIGNATURES.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = returned, arguments
    return loaded


def compiler() -> list[str]:
    """The command of the C++ compiler: $CXX, or else the first one found. Raises
    CannotCompileError."""
    chosen = os.environ.get("CXX")
    if chosen:
        return shlex.split(chosen)
    found = [path for path in map(shutil.which, COMPILERS) if path]
    if not found:
        raise CannotCompileError(f"no C++ compiler found ($CXX, {', '.join(COMPILERS)})")
    return found[:1]


def cache_dir() -> Path:
    """The folder of compiled libraries."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedpriv" / "compiled"


def build(folder: Path) -> Path:
    """The library of training.cpp, in `folder`; built if it is missing. Raises
    CannotCompileError."""
    return native_library(folder, "training", source_texts(__package__), SOURCE, FLAGS)


def native_library(
    folder: Path, name: str, texts: Mapping[str, str], source: str, flags: Sequence[str]
) -> Path:
    """A library for the processor, in `folder`; built if it is missing.

    texts: files by name; `source` is the one that is compiled.

    Raises CannotCompileError.
    """
    command = [*compiler(), *flags]
    # The predefined macros identify the compiler, its version and the processor.
    target = run_compiler([*command, "-dM", "-E", "-x", "c++", os.devnull])

    def make(scratch: Path) -> bytes:
        for file, text in texts.items():
            (scratch / file).write_text(text)
        fresh = scratch / "library.so"
        run_compiler([*command, str(scratch / source), "-o", str(fresh)])
        return fresh.read_bytes()

    return built(folder, name, (sorted(texts.items()), flags, target), make)
