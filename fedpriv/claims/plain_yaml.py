"""YAML and JSON of strangers as plain data: no code, no aliases, no key twice."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from fedpriv.errors import DataError

LARGEST_FILE = 2**20
"""Bytes; a claim has a few kilobytes."""


class _Loader(yaml.SafeLoader):
    """Plain data only: no aliases, no tags, no key twice; 1e-5 is a number."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise DataError("aliases are not read")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if not isinstance(key, str):
                raise DataError(f"line {node.start_mark.line + 1}: key {key!r} is no text")
            if keys.count(key) > 1:
                raise DataError(f"line {node.start_mark.line + 1}: key {key!r} is given twice")
        return super().construct_mapping(node, deep=True)


_OWN_TAGS = (":float", ":int", ":timestamp")
"""YAML 1.1 reads 1e-5 as a text, 010 as 8 and 1:30 as 90."""
_Loader.yaml_implicit_resolvers = {
    sign: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(_OWN_TAGS)]
    for sign, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][-+]?\d+)?$|^[-+]?\.(inf|Inf)$|^\.nan$"),
    list("-+.0123456789"),
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"^[-+]?(0|[1-9]\d*)$"), list("-+0123456789")
)


def load(path: Path) -> Any:
    """The plain data of a YAML or JSON file. Raises DataError if it is not readable as such."""
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from error
    if len(raw) > LARGEST_FILE:
        raise DataError(f"{path}: larger than {LARGEST_FILE} bytes")
    try:
        return yaml.load(raw.decode(), Loader=_Loader)
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text") from error
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path}: not YAML: {reason[:200]}") from error
