"""What is read of a run's folder, which a stranger may have written: plain values of bounded size.

Nothing here imports or calls what a file names. Texts lose the characters that a reader cannot see,
among them those that turn the direction of writing around.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
from pathlib import Path
from typing import Any

from fedpriv.errors import FedprivError
from fedpriv.util import untrusted_files
from fedpriv.util.plain_numbers import plain_number
from fedpriv.util.printing import printable
from fedpriv.util.untrusted_files import read_bytes, read_plain_values, readable

TABLE_BYTES = 2**28
"""Size limit of a table."""
MODEL_BYTES = 2**36
"""Size limit of a file of which only the digest is taken."""
LONGEST = 4000
"""Characters of a text that are shown."""

Row = dict[str, str]
Facts = dict[str, Any]


def read_settings(folder: Path) -> dict[str, Any]:
    """config.yaml as plain values; empty without the file. Raises FedprivError if it cannot be
    read."""
    path = folder / "config.yaml"
    if not path.exists():
        return {}
    with readable(path):
        values = read_plain_values(path)
    return values if isinstance(values, dict) else {}


def read_overrides(folder: Path) -> list[str] | None:
    """The words of the run's command; None if they were not recorded, or cannot be read."""
    path = folder / ".hydra" / "overrides.yaml"
    try:
        with readable(path):
            words = read_plain_values(path)
    except FedprivError:
        return None
    return [text(word) for word in words] if isinstance(words, list) else None


def read_rows(path: Path) -> list[Row]:
    """The rows of a table; empty without the file. Raises FedprivError if it cannot be read."""
    if not path.exists():
        return []
    with readable(path):
        content = read_bytes(path, TABLE_BYTES).decode()
        rows = list(csv.DictReader(io.StringIO(content), strict=True))
        if any(None in row or None in row.values() for row in rows):
            raise ValueError("rows of different lengths")
    return rows


def file_digest(path: Path) -> str:
    """SHA-256 of a regular file, hexadecimal. Raises FedprivError if it cannot be read."""
    with readable(path):
        return untrusted_files.file_digest(path, MODEL_BYTES)


def digest_of(value: Any) -> str:
    """SHA-256 of plain values as canonical JSON, hexadecimal."""
    shown = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(shown.encode()).hexdigest()


def text(value: object) -> str:
    """A value as text that can be shown: of bounded length, every invisible character escaped."""
    shown = "" if value is None else str(value)
    shown = " ".join(shown[: LONGEST + 1].split())
    if len(shown) > LONGEST:
        shown = shown[:LONGEST] + " ..."
    return printable(shown)


def evenly(values: list[Any], most: int) -> list[Any]:
    """At most `most` of the values, evenly chosen, the last among them."""
    step = -(-len(values) // most) or 1
    return values[(len(values) - 1) % step :: step]


def number(value: object) -> float | None:
    """A number, or None for anything else, NaN among it."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = plain_number(value)
    except (ValueError, OverflowError):
        return None
    return None if math.isnan(found) else found


def finite(value: object) -> float | None:
    """A finite number, or None for anything else: JSON has no infinity."""
    found = number(value)
    return found if found is not None and math.isfinite(found) else None


def count(value: object) -> int | None:
    """A whole number from 0 on, or None for anything else."""
    found = finite(value)
    if found is None or found < 0 or found != int(found):
        return None
    return int(found)
