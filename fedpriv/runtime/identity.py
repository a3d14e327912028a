"""What a run computes with, as digests: two runs with equal digests and seeds are the same run."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from fedpriv.errors import FedprivError
from fedpriv.rounds.code_digest import code_digest
from fedpriv.rounds.plan import Plan
from fedpriv.settings.experiment import GROUPS, Experiment
from fedpriv.util.authorship import is_built_in

RESUMED = {
    "records": "records (data)",
    "allocation": "owners or silos of records (allocator)",
    "effective": "noise, batch sizes or encodings",
}
"""Digests that a resumed run must have unchanged, and what they are of."""
CODE = (".py", ".cpp", ".h")


@dataclass(frozen=True)
class RunIdentity:
    """SHA-256 digests, hexadecimal.

    source: of the data, equal for all seeds (`fedpriv.data.shared.Loaded.source`).
    records: of the training and test records as loaded.
    allocation: of each training record's owner, silo, and whether it trains.
    effective: of the plan: noise after calibration, encodings, and the events of the first round,
        which depend on real batch sizes and sampling.
    code: of fedpriv's source, and of the source of components from elsewhere.
    """

    source: str
    records: str
    allocation: str
    effective: str
    code: str

    def require_unchanged(self, folder: Path, before: Mapping[str, str]) -> None:
        """Raise FedprivError when the run in a folder began with other records or another plan.

        before: digests of an earlier process.
        """
        now = asdict(self)
        changed = [meaning for name, meaning in RESUMED.items() if before.get(name) != now[name]]
        if changed:
            raise FedprivError(
                f"{folder}: began with other {' and other '.join(changed)}; put the former data "
                "back, or start a new run"
            )


def digest_plan(exp: Experiment, plan: Plan) -> str:
    """The digest of `RunIdentity.effective`."""
    events = [query.events for query in exp.algo.queries(1, plan)]
    groups = exp.algo.contributors.groups  # a file may list their users
    return _digest(repr((sorted(plan.query_parameters.items()), events, *groups)))


def digest_code(exp: Experiment) -> str:
    """The digest of `RunIdentity.code`."""
    own = [_package_digest()]
    for name in sorted(GROUPS):
        cls = type(getattr(exp, name))
        if not is_built_in(cls):
            own.append(f"{cls.__qualname__} {code_digest(cls)}")
    return _digest(" ".join(own))


@cache
def _package_digest() -> str:
    found = hashlib.sha256()
    for path, entry in sorted(_sources(files("fedpriv"), "")):
        text = entry.read_bytes()
        found.update(f"{path} {len(text)} ".encode() + text)
    return found.hexdigest()


def _sources(folder: Traversable, path: str) -> list[tuple[str, Traversable]]:
    found = []
    for entry in folder.iterdir():
        place = f"{path}/{entry.name}"
        if entry.is_dir():
            found += _sources(entry, place)
        elif entry.name.endswith(CODE):
            found.append((place, entry))
    return found


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
