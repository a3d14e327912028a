"""Reading small files that a stranger may have written.

A file is read only if it is a regular file of bounded size, so a pipe or a device never blocks, and
a huge file never fills the memory. Values are plain: YAML has no tags, no anchors, no references (a
few hundred bytes of references can describe gigabytes) and no key twice, and nesting is bounded.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

SETTINGS_BYTES = 2**20
"""Size limit of a configuration file."""
RECORD_BYTES = 2**26
"""Size limit of a JSON file."""
TABLE_BYTES = 2**30
"""Size limit of a table."""
MAX_DEPTH = 20
"""Limit of nested mappings and lists in a configuration file."""

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


def read_bytes(path: Path, most: int) -> bytes:
    """The content of a regular file of at most `most` bytes. Raises ValueError or OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # opening a pipe would otherwise block
    with os.fdopen(handle, "rb") as file:
        require_regular(handle, most)
        return file.read(most)


def read_json(path: Path) -> dict[str, Any]:
    """The mapping in a JSON file. Raises ValueError or OSError."""
    try:
        values = json.loads(read_bytes(path, RECORD_BYTES))
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
        keys = [str(key.value) for key, _ in node.value]
        twice = [key for key in keys if keys.count(key) > 1]
        if twice:
            raise ValueError(f"it has the key {twice[0]:.60} twice")
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
