"""Groups of users by a column: a public file says which user is in which group.

It is a file of its own, beside the records: who is in which group must be public, and fixed before
any data are read.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from fedpriv.errors import ConfigError, require
from fedpriv.util.untrusted_files import read_bytes

COLUMNS = ("user", "group")
MOST_BYTES = 2**26


@lru_cache(maxsize=16)
def listed_groups(path: str, key: str) -> Mapping[str, tuple[int, ...]]:
    """The users of each group in a CSV file with the columns `user`, numbers from 0, and `group`;
    other columns are ignored. Read once a process.

    key: setting that names the file, for errors.

    Raises ConfigError for a file that cannot be read, that lacks a column, or that has a line
    without a user's number or without a group, or a user twice.
    """
    try:
        text = read_bytes(Path(path), MOST_BYTES).decode("utf-8-sig")
        lines = csv.DictReader(text.splitlines(), strict=True)
        rows = list(lines)
    except (OSError, ValueError, csv.Error) as error:
        raise ConfigError(key, path, f"a CSV file that can be read ({error})") from error
    names = lines.fieldnames or []
    for column in COLUMNS:
        require(names.count(column) == 1, key, path, f"a file with one column {column!r}")
    found: dict[str, list[int]] = {}
    seen: set[int] = set()
    for line, row in enumerate(rows, start=2):
        user, group = row["user"] or "", row["group"]
        number = int(user) if user.isascii() and user.isdecimal() and len(user) < 10 else -1
        new = number >= 0 and number not in seen
        require(new, f"{key}, line {line}", user, "numbers of users from 0, each once")
        require(bool(group), f"{key}, line {line}", "no group", "the name of the user's group")
        seen.add(number)
        found.setdefault(group, []).append(number)
    return {group: tuple(users) for group, users in found.items()}
