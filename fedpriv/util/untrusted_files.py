"""The one door for files that a stranger may have written.

A file is read only if it is a regular file of bounded size, so a pipe or a device never blocks, and
a huge file never fills the memory. Values are plain: YAML has no tags, no anchors, no references (a
few hundred bytes of references can describe gigabytes) and no key twice, and nesting is bounded.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass
from io import BufferedReader
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import yaml

from fedpriv.errors import FedprivError
from fedpriv.util.printing import printable

SETTINGS_BYTES = 2**20
"""Size limit of a configuration file."""
RECORD_BYTES = 2**26
"""Size limit of a report, a roster or a text."""
JSON_BYTES = 2**24
"""Size limit of a JSON file. Its values may take fifty times as much memory."""
TABLE_BYTES = 2**30
"""Size limit of a table."""
OPEN_AS_IT_IS: int = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
"""Opening a pipe would otherwise block; on Windows, line ends would be changed."""
MAX_DEPTH = 20
"""Limit of nested mappings and lists in a configuration file."""
LONGEST_TEXT = 10_000
"""Characters of a text in a JSON file."""
LONGEST_REASON = 4000
"""Characters of what is said of a file that cannot be read."""
FLOAT_LIMIT = 1e300
"""Limit of the size of a number in a JSON file."""

_PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Ten times as fast as SafeLoader, if PyYAML was built with libyaml."""


def require_regular(path: Path | int, most: int) -> None:
    """Raise ValueError for anything but a regular file of at most `most` bytes, OSError for a file
    that does not exist.

    path: of the file, or the number of an open one.
    """
    about = os.stat(path)
    if not stat.S_ISREG(about.st_mode):
        raise ValueError("it is not a regular file")
    if about.st_size > most:
        raise ValueError(f"it has {about.st_size} bytes; at most {most} are read")


@contextmanager
def opened(path: Path, most: int) -> Iterator[BufferedReader]:
    """A regular file of at most `most` bytes, open to be read. Raises ValueError or OSError."""
    handle = os.open(path, os.O_RDONLY | OPEN_AS_IT_IS)
    with os.fdopen(handle, "rb") as file:
        require_regular(handle, most)
        yield file


def read_bytes(path: Path, most: int) -> bytes:
    """The content of a regular file of at most `most` bytes. Raises ValueError or OSError."""
    with opened(path, most) as file:
        return file.read(most)


def file_digest(path: Path, most: int) -> str:
    """SHA-256 of a regular file of at most `most` bytes, hexadecimal. Raises ValueError or
    OSError."""
    with opened(path, most) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def reason_of(error: BaseException) -> str:
    """Why a file cannot be read, in one line, from the error of who has tried."""
    told = getattr(error, "strerror", None) or " ".join(str(error).split())
    return str(told or type(error).__name__)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Context in which a file is read. Raises FedprivError, in one line, if it cannot be."""
    try:
        yield
    except (OSError, ValueError, RecursionError, csv.Error, yaml.YAMLError) as error:
        shown = printable(reason_of(error))[:LONGEST_REASON]
        raise FedprivError(f"{path}: cannot be read ({shown})") from error


def require_no_link(path: Path) -> None:
    """Raise ValueError for a symbolic link, and for a file below one in the current folder: a claim
    of a stranger may lead to a file of yours, whose words an error would show."""
    above = () if path.is_absolute() else path.parents
    if any(place.is_symlink() for place in (path, *above)):
        raise ValueError("it is a symbolic link, or below one; name the file itself")


def read_json(path: Path) -> dict[str, Any]:
    """The mapping in a JSON file. Raises ValueError or OSError."""
    try:
        values = json.loads(read_bytes(path, JSON_BYTES))
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None
    if not isinstance(values, dict):
        raise ValueError("it does not contain a mapping")
    return values


def read_plain_yaml(path: Path) -> str:
    """The text of a YAML file that describes plain values only. Raises ValueError or OSError, or
    yaml.YAMLError for a text that is no YAML."""
    text = read_bytes(path, SETTINGS_BYTES).decode()
    depth = 0
    for event in yaml.parse(text, Loader=_PARSER):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise ValueError("it contains an anchor or a reference")
        if tag := getattr(event, "tag", None):
            raise ValueError(f"it contains the tag {tag}")
        opens = isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent)
        closes = isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent)
        depth += opens - closes
        if depth > MAX_DEPTH:
            raise ValueError(f"its values are nested more than {MAX_DEPTH} deep")
    return text


class PlainValues(_PARSER):  # type: ignore[misc]  # one of two parsers
    """Refuses a key that a mapping has twice, of which YAML would keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        counts = Counter(str(key.value) for key, _ in node.value)
        if twice := next((key for key, count in counts.items() if count > 1), None):
            raise ValueError(f"it has the key {twice:.60} twice")
        found: dict[Any, Any] = super().construct_mapping(node, deep)
        return found


def read_plain_values(path: Path, loader: Any = PlainValues) -> Any:
    """The values of a YAML file: texts, numbers, truth values and nulls, in lists and in mappings
    with texts as keys. Raises ValueError or OSError, or yaml.YAMLError.

    loader: `PlainValues`, or a class of it that reads words otherwise.
    """
    values = yaml.load(read_plain_yaml(path), Loader=loader)
    _require_plain(values)
    return values


def _require_plain(value: Any) -> None:
    if isinstance(value, dict):
        for key, one in value.items():
            if not isinstance(key, str):
                raise ValueError(f"it has the key {key!s:.60}, which is no text")
            _require_plain(one)
    elif isinstance(value, list):
        for one in value:
            _require_plain(one)
    elif not (value is None or isinstance(value, str | int | float)):
        raise ValueError(f"it has the value {value!s:.60}, which is neither text nor number")


def links_and_devices(folder: Path) -> Iterator[Path]:
    """The entries of a folder that are neither folders nor regular files of one name. Who writes to
    a file of several names (hard links) may change it elsewhere."""
    with os.scandir(folder) as entries:
        for entry in entries:
            about = entry.stat(follow_symlinks=False)
            alone = stat.S_ISREG(about.st_mode) and about.st_nlink <= 1
            if not alone and not stat.S_ISDIR(about.st_mode):
                yield Path(entry.path)


def as_type(hint: Any, value: Any, name: str = "") -> Any:
    """A value of a JSON file as a type: a dataclass, a tuple or a mapping of one type, or a plain
    one. A text becomes one line; keys that a dataclass lacks are left out. Raises ValueError, with
    the key, for a value of another type.

    name: the value's key, for the error.
    """
    kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    kind = next((kind for kind in kinds if _fits(kind, value)), None)
    if kind is None:
        expected = hint.__name__ if isinstance(hint, type) else hint
        raise ValueError(f"{name}={value!s:.60}: expected {expected}")
    inner = get_args(kind)
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        above = f"{name}." if name else ""
        own = {key: one for key, one in value.items() if key in hints}
        given = {key: as_type(hints[key], one, above + key) for key, one in own.items()}
        for one in fields(kind):
            if one.name not in given and {one.default, one.default_factory} == {MISSING}:
                raise ValueError(f"{above}{one.name} is missing")
        return kind(**given)  # type: ignore[operator]
    if isinstance(value, dict):
        return {key: as_type(inner[1], one, f"{name}.{key:.60}") for key, one in value.items()}
    if isinstance(value, list):
        return tuple(as_type(inner[0], one, name) for one in value)
    if isinstance(value, str):
        if len(value) > LONGEST_TEXT:
            raise ValueError(f"{name} has {len(value)} characters; at most {LONGEST_TEXT} are read")
        return " ".join(value.split())
    if kind is float and not abs(value) < FLOAT_LIMIT:
        raise ValueError(f"{name}={value!s:.60}: expected a finite number")
    return value


def _fits(kind: Any, value: Any) -> bool:
    """Whether a value of a JSON file has the outer type of a kind."""
    outer = get_origin(kind) or kind
    written = dict if is_dataclass(kind) or outer is Mapping else list if outer is tuple else outer
    return type(value) is written or (written is float and type(value) is int)
