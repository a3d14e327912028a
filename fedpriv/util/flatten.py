"""Nested settings, flattened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def flat(node: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values of nested mappings by their keys, joined by dots. An empty mapping is a value."""
    found: dict[str, Any] = {}
    for key, value in node.items():
        deeper = isinstance(value, Mapping) and bool(value)
        found |= flat(value, f"{prefix}{key}.") if deeper else {f"{prefix}{key}": value}
    return found
