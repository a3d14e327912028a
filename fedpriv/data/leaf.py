"""LEAF's JSON files (Caldas et al., LEAF: a benchmark for federated settings, 2018): records by
user.

LEAF's preprocessing with `-t sample --tf 0.9` writes folders train and test with one or more files
each and the same users in both. A file holds {"users": [name, ...], "num_samples": [n, ...],
"user_data": {name: {"x": [...], "y": [...]}}}.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedpriv.data.files import chosen_folder, noted
from fedpriv.errors import DataError
from fedpriv.util.untrusted_files import read_bytes

MAX_BYTES = 2**32
"""Size limit of a file."""
HOME = "https://github.com/TalwalkarLab/leaf"
PARTS = ("train", "test")

Part = tuple[np.ndarray, np.ndarray]
"""Features (n, ...) and labels (n,) of one user."""


@dataclass(frozen=True)
class LeafFolder:
    """The folder of data set `name`: `name`/data below `root`, as in LEAF's repository."""

    name: str
    root: str | None

    @property
    def path(self) -> Path:
        return chosen_folder(self.root)[1] / self.name / "data"

    @property
    def exists(self) -> bool:
        """Whether both parts have files."""
        return all(self._files(part) for part in PARTS)

    def read_users(self, parse: Callable[[list[Any], list[Any]], Part]) -> list[tuple[Part, Part]]:
        """Training and test records of every user with training records, sorted by name.

        parse: turns lists of features and labels into arrays; raises ValueError for wrong ones.
        """
        train, test = (self._read(part, parse) for part in PARTS)
        nothing = parse([], [])
        return [
            (train[name], test.get(name, nothing)) for name in sorted(train) if len(train[name][1])
        ]

    def _read(self, part: str, parse: Callable[[list[Any], list[Any]], Part]) -> dict[str, Part]:
        """The records of each user in one of `PARTS`. Raises DataError."""
        files = self._files(part)
        if not files:
            raise DataError(
                f"{self.path / part}: no .json file in this folder; create the files with LEAF's "
                f"preprocessing ({HOME})"
            )
        users: dict[str, Part] = {}
        for file in files:
            for name, (x, y) in _users(noted(file)).items():
                try:
                    if name in users:
                        raise ValueError("is in an earlier file too")
                    users[name] = parse(x, y)
                except ValueError as error:
                    raise DataError(f"{file}: user {name}: {error}") from error
        return users

    def _files(self, part: str) -> list[Path]:
        return sorted((self.path / part).glob("*.json"))


def _users(file: Path) -> dict[str, tuple[list[Any], list[Any]]]:
    """Each user's features and labels, as they are in a file."""
    try:
        content = json.loads(read_bytes(file, MAX_BYTES))
        users = {name: (own["x"], own["y"]) for name, own in content["user_data"].items()}
        counts = dict(zip(content["users"], content["num_samples"], strict=True))
        lists = all(isinstance(one, list) for pair in users.values() for one in pair)
        sizes = {name: (len(x), len(y)) for name, (x, y) in users.items()}
        if not lists or sizes != {name: (count, count) for name, count in counts.items()}:
            raise ValueError("users and num_samples do not describe user_data")
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{file}: not a LEAF file: {reason:.200}") from error
    return users
