"""YAML and JSON of strangers as plain data: no code, no references, no key twice."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from fedpriv.errors import DataError
from fedpriv.util.untrusted_files import PlainValues, read_plain_values, reason_of, require_no_link


class _Loader(PlainValues):
    """1e-5 is a number."""


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
        require_no_link(path)
        return read_plain_values(path, _Loader)
    except (OSError, yaml.YAMLError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: cannot be read: {reason_of(error):.200}") from error
