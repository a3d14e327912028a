"""YAML and JSON of strangers as plain data: no code, no references, no key twice."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from fedpriv.errors import DataError
from fedpriv.util.untrusted_files import read_plain_yaml


class _Loader(yaml.SafeLoader):
    """No key twice, and texts as keys; 1e-5 is a number."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if not isinstance(key, str) or keys.count(key) > 1:
                wrong = "is given twice" if isinstance(key, str) else "is no text"
                raise ValueError(f"line {node.start_mark.line + 1}: key {key!r} {wrong}")
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
        return yaml.load(read_plain_yaml(path), Loader=_Loader)
    except (OSError, yaml.YAMLError, ValueError, RecursionError) as error:
        told = error.strerror if isinstance(error, OSError) else str(error)
        reason = " ".join(str(told).split())
        raise DataError(f"{path}: cannot be read: {reason[:200]}") from error
