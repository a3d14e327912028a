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

import yaml

from fedpriv.errors import FedprivError
from fedpriv.util.plain_numbers import plain_number
from fedpriv.util.untrusted_files import read_bytes, read_json, read_plain_values, require_regular

TABLE_BYTES = 2**28
"""Size limit of a table."""
MODEL_BYTES = 2**36
"""Size limit of a file of which only the digest is taken."""
LONGEST = 4000
"""Characters of a text that are shown."""
CHUNK = 2**20

Row = dict[str, str]


def read_status(folder: Path) -> dict[str, Any]:
    """status.json. Raises FedprivError if it cannot be read."""
    path = folder / "status.json"
    try:
        return read_json(path)
    except (OSError, ValueError) as error:
        raise FedprivError(f"{path}: cannot be read ({_reason(error)})") from error


def read_settings(folder: Path) -> dict[str, Any]:
    """config.yaml as plain values; empty without the file. Raises FedprivError if it cannot be
    read."""
    path = folder / "config.yaml"
    if not path.exists():
        return {}
    try:
        values = read_plain_values(path)
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        raise FedprivError(f"{path}: cannot be read ({_reason(error)})") from error
    return values if isinstance(values, dict) else {}


def read_overrides(folder: Path) -> list[str] | None:
    """The words of the run's command; None if they were not recorded, or cannot be read."""
    try:
        words = read_plain_values(folder / ".hydra" / "overrides.yaml")
    except (OSError, ValueError, yaml.YAMLError, RecursionError):
        return None
    return [text(word) for word in words] if isinstance(words, list) else None


def read_rows(path: Path) -> list[Row]:
    """The rows of a table; empty without the file. Raises FedprivError if it cannot be read."""
    if not path.exists():
        return []
    try:
        content = read_bytes(path, TABLE_BYTES).decode()
        rows = list(csv.DictReader(io.StringIO(content), strict=True))
    except (OSError, ValueError, csv.Error) as error:
        raise FedprivError(f"{path}: cannot be read ({_reason(error)})") from error
    if any(None in row or None in row.values() for row in rows):
        raise FedprivError(f"{path}: cannot be read (rows of different lengths)")
    return rows


def read_json_file(path: Path) -> dict[str, Any]:
    """A JSON file. Raises FedprivError if it cannot be read."""
    try:
        return read_json(path)
    except (OSError, ValueError) as error:
        raise FedprivError(f"{path}: cannot be read ({_reason(error)})") from error


def file_digest(path: Path) -> str:
    """SHA-256 of a regular file, hexadecimal. Raises FedprivError if it cannot be read."""
    found = hashlib.sha256()
    try:
        require_regular(path, MODEL_BYTES)
        with open(path, "rb") as file:
            while chunk := file.read(CHUNK):
                found.update(chunk)
    except (OSError, ValueError) as error:
        raise FedprivError(f"{path}: cannot be read ({_reason(error)})") from error
    return found.hexdigest()


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
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in shown)


def number(value: object) -> float | None:
    """A number, or None for anything else, NaN among it."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = plain_number(value)
    except (ValueError, OverflowError):
        return None
    return None if math.isnan(found) else found


def count(value: object) -> int | None:
    """A whole number from 0 on, or None for anything else."""
    found = number(value)
    if found is None or math.isinf(found) or found < 0 or found != int(found):
        return None
    return int(found)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return text(error) or type(error).__name__
