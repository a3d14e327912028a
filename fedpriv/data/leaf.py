"""LEAF's JSON files (Caldas et al., LEAF: a benchmark for federated settings, 2018): records by
user.

What its preprocessing leaves with `-t sample --tf 0.9`: folders train and test of one or more
files, with the same users in both, {"users": [name, ...], "num_samples": [n, ...], "user_data":
{name: {"x": [...], "y": [...]}}}.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedpriv.data.files import chosen_folder
from fedpriv.errors import DataError

HOME = "https://github.com/TalwalkarLab/leaf"
PARTS = ("train", "test")

UserRecords = Mapping[str, tuple[list[Any], list[Any]]]
"""Each user's features and labels as the files have them."""


@dataclass(frozen=True)
class LeafFolder:
    """Where the files of data set `name` are looked for: `name`/data below `root`, as in LEAF's own
    repository."""

    name: str
    root: str | None

    @property
    def path(self) -> Path:
        return chosen_folder(self.root)[1] / self.name / "data"

    @property
    def exists(self) -> bool:
        """Whether both parts have files."""
        return all(self._files(part) for part in PARTS)

    def read(self, part: str) -> dict[str, tuple[list[Any], list[Any]]]:
        """The records of each user in one of `PARTS`. Raises DataError with one line that names the
        file."""
        files = self._files(part)
        if not files:
            raise DataError(
                f"{self.path / part}: no .json file in this folder; LEAF's preprocessing makes "
                f"them ({HOME})"
            )
        users: dict[str, tuple[list[Any], list[Any]]] = {}
        for file in files:
            for name, records in _read(file).items():
                if name in users:
                    raise DataError(f"{file}: user {name} is in an earlier file too")
                users[name] = records
        return users

    def _files(self, part: str) -> list[Path]:
        return sorted((self.path / part).glob("*.json"))


def _read(file: Path) -> dict[str, tuple[list[Any], list[Any]]]:
    try:
        content = json.loads(file.read_text())
        users = {str(name): (own["x"], own["y"]) for name, own in content["user_data"].items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{file}: not a file of LEAF's: {reason:.200}") from error
    for name, (x, y) in users.items():
        if not isinstance(x, list) or not isinstance(y, list) or len(x) != len(y):
            raise DataError(f"{file}: user {name} has not as many labels as features")
    return users
