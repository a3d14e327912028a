"""What a run computes with, as digests: two runs with equal digests and seeds are the same run.

A digest of private records confirms a right guess of them. Those that private records, their owners
or the plan enter are keyed with the holder's secret (HMAC-SHA256): equal data of one holder have
equal digests, and nobody else can check a guess. The secret is a file of its own outside all run
folders, `$XDG_STATE_HOME/fedpriv/holder.key`, by default below ~/.local/state.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from fedpriv.crypto.key_files import read_key, write_key
from fedpriv.crypto.signatures import SigningKey
from fedpriv.errors import FedprivError
from fedpriv.rounds.plan import Plan
from fedpriv.runtime.own_records import OwnRecords
from fedpriv.settings.experiment import GROUPS, Experiment
from fedpriv.util.durable_files import state_folder
from fedpriv.util.logs import LOGGER
from fedpriv.util.source_commit import source_digest


def keyed(text: str) -> str:
    """The digest of a text, hexadecimal, which only the holder can make."""
    return hmac.new(_secret(secret_path()), text.encode(), "sha256").hexdigest()


def secret_path() -> Path:
    """Where the secret is on this machine."""
    return state_folder() / "holder.key"


@cache
def _secret(path: Path) -> bytes:
    """The secret in a file, which is made if it is missing. Raises FedprivError for a file that is
    no secret, or that others can read."""
    try:
        if not path.exists():
            fresh = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
            write_key(fresh, SigningKey.generate())
            with suppress(FileExistsError):  # another process was faster
                os.link(fresh, path)
            fresh.unlink()
    except OSError as error:
        LOGGER.warning(
            "%s: cannot be written (%s): no other process can resume or compare this run; set "
            "XDG_STATE_HOME to a folder that can be written",
            path,
            error.strerror,
        )
        return secrets.token_bytes(32)
    return read_key(path).raw


RESUMED = {
    "records": "records (data)",
    "allocation": "owners or silos of records (allocator)",
    "effective": "noise, batch sizes or encodings",
}
"""Digests that a resumed run must have unchanged, and what they are of."""
SWEPT = RESUMED | {"code": "source code (fedpriv or a component)"}
"""Digests that all runs of a sweep must have unchanged, however often it is started."""


@dataclass(frozen=True)
class RunIdentity:
    """SHA-256 digests, hexadecimal; all but `code` are keyed.

    holder: of nothing: equal for runs whose digests were keyed with the same secret.
    source: of the data, equal for all seeds (`fedpriv.data.shared.Loaded.source`).
    records: of the training and test records as loaded.
    allocation: of each training record's owner, silo, and whether it trains.
    effective: of the plan: noise after calibration, encodings, and the events of the first round,
        which depend on real batch sizes and sampling.
    code: of the source of this package, and of the top-level packages and modules of components
        from elsewhere.
    """

    holder: str
    source: str
    records: str
    allocation: str
    effective: str
    code: str

    @staticmethod
    def of(exp: Experiment, own: OwnRecords, plan: Plan) -> RunIdentity:
        """The identity of a run with these records and this plan."""
        return RunIdentity(
            holder=keyed(""),
            source=keyed(own.source),
            records=keyed(own.records),
            allocation=keyed(own.allocation),
            effective=keyed(digest_plan(exp, plan)),
            code=digest_code(exp),
        )

    def require_unchanged(
        self, folder: Path, before: Mapping[str, str], kept: Mapping[str, str] = RESUMED
    ) -> None:
        """Raise FedprivError when the run in a folder began with something else.

        before: digests of an earlier process.
        kept: the digests that must be equal, and what they are of.
        """
        now = asdict(self)
        if before.get("holder") != self.holder:
            raise FedprivError(
                f"{folder}: its data cannot be compared with those of now, since the digests were "
                f"keyed with another secret than {secret_path()}; copy the former one there, or "
                "start a new run"
            )
        changed = [meaning for name, meaning in kept.items() if before.get(name) != now[name]]
        if changed:
            raise FedprivError(
                f"{folder}: began with other {' and other '.join(changed)}; put the former ones "
                "back, or start a new run in another folder"
            )


def digest_plan(exp: Experiment, plan: Plan) -> str:
    """The digest of `RunIdentity.effective`, without the key."""
    events = [query.events for query in exp.algo.queries(1, plan)]
    groups = exp.algo.contributors.groups  # a file may list their users
    return _digest(repr((sorted(plan.query_parameters.items()), events, *groups)))


def digest_code(exp: Experiment) -> str:
    """The digest of `RunIdentity.code`."""
    classes = [type(getattr(exp, name)) for name in GROUPS]
    packages = {cls.__module__.partition(".")[0] for cls in classes} | {"fedpriv"}
    return _digest(" ".join(source_digest(name) for name in sorted(packages)))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
