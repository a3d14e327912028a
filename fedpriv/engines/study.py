"""A study of several organisations: what they agree on before it begins. All of it is public.

A file of plain YAML, with the schema of its table beside it:

    study: fedpriv study 1
    settings: [algo=uldp_avg, data=table, data.schema=schema.yaml, data.user_scope=silo]
    users: {cleveland: 303, hungarian: 294}

settings: words of a command line; the coordinator's `engine.study=<file>` stands for them.
users: most users of each silo, by the names and in the order of the schema.
records: training records of each silo, for methods that take them as public; may be left out.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from fedpriv.errors import FedprivError
from fedpriv.util.pasted import hydra_text
from fedpriv.util.untrusted_files import SETTINGS_BYTES, read_bytes, read_plain_values, reason_of

VERSION = "fedpriv study 1"
GROUPS = "algo|aggregation|mechanism|accountant|optimizer|model|data|allocator"
WORD = re.compile(
    rf"({GROUPS}|rounds|seed|randomness)=\w+|experiment=\w+(/\w+)*|data\.schema=\w[\w.-]*"
    rf"|(?!data\.schema=)({GROUPS}|preset)(\.\w+)+=[^$]*"
)
"""What a study may set: nothing that belongs to one machine, nothing that reads another file or the
environment."""
OWN = ("data.root", "data.path", "data.test")
"""Keys that each organisation sets for itself."""
SCHEMA = "data.schema="
STUDY = "engine.study="


@dataclass(frozen=True)
class Study:
    """A study as its file says it.

    path: of the file.
    words: settings, and the folder that the schema is in.
    users: most users of each silo by name.
    records: training records of each silo by name; empty: not public.
    digest: SHA-256 of the file and of the schema.
    """

    path: Path
    words: tuple[str, ...]
    users: Mapping[str, int]
    records: Mapping[str, int] = field(default_factory=dict)
    digest: bytes = b""

    @staticmethod
    def read(path: Path) -> Study:
        """The study in a file. Raises FedprivError with one line that names the file and the
        key."""
        try:
            tree: Any = read_plain_values(path)
            words, users, records = _checked(tree)
            schema = path.parent / next(w for w in words if w.startswith(SCHEMA))[len(SCHEMA) :]
            contents = [read_bytes(one, SETTINGS_BYTES) for one in (path, schema)]
        except (OSError, ValueError, yaml.YAMLError) as error:
            named = getattr(error, "filename", None) or path
            raise FedprivError(f"{named}: not a readable study: {reason_of(error)}") from error
        digests = b"".join(hashlib.sha256(each).digest() for each in contents)
        root = f"data.root={hydra_text(str(path.resolve().parent))}"
        return Study(path, (*words, root), users, records, hashlib.sha256(digests).digest())

    def first_user(self, silo: int) -> int:
        """The number of the first user of a silo. Each silo numbers its own users from there."""
        return sum([*self.users.values()][:silo])


def with_study(words: Iterable[str]) -> list[str]:
    """The words of a command line, with those of `engine.study` in front. Raises FedprivError for a
    study that cannot be read."""
    words = list(words)
    named = [word[len(STUDY) :] for word in words if word.startswith(STUDY)]
    return [*(Study.read(Path(named[-1])).words if named else ()), *words]


def _checked(tree: Any) -> tuple[tuple[str, ...], dict[str, int], dict[str, int]]:
    if not isinstance(tree, dict) or tree.get("study") != VERSION:
        raise ValueError(f"its key study is not {VERSION!r}")
    unknown = sorted(map(str, tree.keys() - {"study", "settings", "users", "records"}))
    if unknown:
        raise ValueError(f"unknown key {unknown[0]:.60}")
    words = tree.get("settings")
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ValueError("settings: not a list of words such as algo=uldp_avg")
    for word in words:
        if not (WORD.fullmatch(word) and word.isprintable()) or word.startswith(OWN):
            raise ValueError(f"settings: {word:.80} is no setting that a study may have")
    keys = Counter(word.partition("=")[0] for word in words)
    if twice := next((key for key, count in keys.items() if count > 1), None):
        raise ValueError(f"settings: {twice} stands there twice")
    if not any(word.startswith(SCHEMA) for word in words):
        raise ValueError(f"settings: {SCHEMA}<file> is missing")
    return tuple(words), _numbers(tree, "users"), _numbers(tree, "records")


def _numbers(tree: dict[str, Any], key: str) -> dict[str, int]:
    found = tree.get(key, {})
    whole = isinstance(found, dict) and all(
        type(number) is int and 0 < number <= 10**6 for number in found.values()
    )
    if not whole:
        raise ValueError(f"{key}: not a number from 1 to 1000000 for each silo")
    return dict(found)
