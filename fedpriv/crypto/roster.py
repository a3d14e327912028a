"""The roster: every party's long-term verification key.

All parties hold the same roster before a run; a key that is not in it signs nothing that anybody
believes. Keys are exchanged outside of the protocol, and their owners compare fingerprints.

A roster is a CSV file with the columns party, number, key, fingerprint and state. `number` counts a
party's keys from 1. A party rotates its key by a line with the next number; the line before becomes
revoked. The only key of a party that is not revoked is in use. Each change has to reach every
party's copy. `fedpriv keys` makes keys and rosters; private keys are in files of their own
(`crypto.key_files`).

>>> ann, bob = (SigningKey.generate() for _ in range(2))
>>> roster = Roster.of({"silo0": ann, "server": bob})
>>> roster.key("silo0") == ann.verification_key
True
>>> rotated = roster.rotated("silo0", SigningKey.generate().verification_key)
>>> rotated.key("silo0") == ann.verification_key, len(rotated.entries)
(False, 3)
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from fedpriv.crypto.digest import digest
from fedpriv.crypto.signatures import Ed25519Signer, SigningKey, VerificationKey
from fedpriv.errors import FedprivError
from fedpriv.util.durable_files import replace_file
from fedpriv.util.untrusted_files import RECORD_BYTES, read_bytes

PROTOCOL_VERSION = 2
"""Changes with every change of what parties send or sign."""
COLUMNS = ("party", "number", "key", "fingerprint", "state")
ACTIVE, REVOKED = "active", "revoked"


@dataclass(frozen=True)
class RosterEntry:
    """One key of one party.

    party: its name.
    number: of the party's key, from 1.
    key: the verification key.
    state: active or revoked.
    """

    party: str
    number: int
    key: VerificationKey
    state: str = ACTIVE


@dataclass(frozen=True)
class Roster:
    """Everybody's keys, sorted by party and number.

    entries: all keys, the revoked ones too.

    Raises FedprivError for two active keys of one party, for one key of two entries, for a key of
    low order, and for numbers that are not 1, 2, and so on.
    """

    entries: tuple[RosterEntry, ...]
    _last: tuple[bytes, dict[str, VerificationKey]] | None = field(
        default=None, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        ordered = tuple(sorted(self.entries, key=lambda entry: (entry.party, entry.number)))
        object.__setattr__(self, "entries", ordered)
        keys = [entry.key.raw for entry in ordered]
        if len(set(keys)) != len(keys):
            raise FedprivError("roster: a key stands in two lines")
        for entry in ordered:
            if entry.key.low_order:
                raise FedprivError(f"roster: the key of {entry.party} has a low order")
        numbers: dict[str, list[int]] = {}
        active: Counter[str] = Counter()
        for entry in ordered:
            numbers.setdefault(entry.party, []).append(entry.number)
            active[entry.party] += entry.state == ACTIVE
        for party, found in numbers.items():
            if found != list(range(1, len(found) + 1)):
                raise FedprivError(f"roster: the keys of {party} are not numbered 1, 2, ...")
            if active[party] > 1:
                raise FedprivError(f"roster: {party} has two keys that are not revoked")

    @staticmethod
    def of(keys: Mapping[str, SigningKey]) -> Roster:
        """The first roster of parties with these keys."""
        return Roster(
            tuple(RosterEntry(name, 1, key.verification_key) for name, key in keys.items())
        )

    @staticmethod
    def read(path: Path) -> Roster:
        """The roster in a file. Raises FedprivError that names the file and the line."""
        entries = []
        try:
            lines = csv.reader(read_bytes(path, RECORD_BYTES).decode().splitlines())
            if tuple(next(lines, ())) != COLUMNS:
                raise FedprivError(f"{path}: the first line must be {','.join(COLUMNS)}")
            for number, line in enumerate(lines, start=2):
                try:
                    party, count, key, fingerprint, state = line
                    if state not in (ACTIVE, REVOKED) or not party or not party.isprintable():
                        raise ValueError("a line without a printable party, or with another state")
                    found = VerificationKey(bytes.fromhex(key))
                    if found.fingerprint != fingerprint:
                        raise ValueError(f"the key's fingerprint is {found.fingerprint}")
                    entries.append(RosterEntry(party, int(count), found, state))
                except ValueError as error:
                    raise FedprivError(f"{path}, line {number}: {error}") from error
            return Roster(tuple(entries))
        except OSError as error:
            raise FedprivError(f"{path}: {error.strerror or error}") from error
        except (ValueError, csv.Error) as error:
            raise FedprivError(f"{path}: cannot be read ({error})") from error

    def write(self, path: Path) -> None:
        """Replace the file."""
        text = io.StringIO()
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow(COLUMNS)
        lines.writerows(
            (e.party, e.number, e.key.raw.hex(), e.key.fingerprint, e.state) for e in self.entries
        )
        replace_file(path, text.getvalue().encode())

    @cached_property
    def keys(self) -> dict[str, bytes]:
        """The keys in use, by party."""
        return {entry.party: entry.key.raw for entry in self.entries if entry.state == ACTIVE}

    @cached_property
    def digest(self) -> bytes:
        """32 bytes that all parties with this roster agree on."""
        lines = ((e.party, e.number, e.key.raw, e.state) for e in self.entries)
        return digest("fedpriv roster", *(part for line in lines for part in line))

    def key(self, party: str) -> VerificationKey:
        """The key in use. Raises FedprivError for a party without one."""
        if party not in self.keys:
            raise FedprivError(f"roster: {party} has no key that is not revoked")
        return VerificationKey(self.keys[party])

    def bound_keys(self, context: bytes) -> dict[str, VerificationKey]:
        """The keys in use, for signatures bound to `context`. The last result is kept, since all
        parties of a process ask for the same."""
        if self._last is None or self._last[0] != context:
            found = {name: VerificationKey(raw, context) for name, raw in self.keys.items()}
            object.__setattr__(self, "_last", (context, found))
            return found
        return self._last[1]

    def revoked(self, party: str) -> Roster:
        """The roster without the party's key. Its signatures count for nothing from now on."""
        self.key(party)
        return Roster(
            tuple(
                replace(entry, state=REVOKED) if entry.party == party else entry
                for entry in self.entries
            )
        )

    def rotated(self, party: str, key: VerificationKey) -> Roster:
        """The roster with a new key of the party. The key before is revoked."""
        number = 1 + sum(entry.party == party for entry in self.entries)
        before = self.revoked(party) if party in self.keys else self
        return Roster((*before.entries, RosterEntry(party, number, key)))


@dataclass(frozen=True, repr=False)
class Identity:
    """A party with its private key, and the roster that it believes.

    name: of the party.
    key: its private key.
    roster: everybody's keys.

    Raises FedprivError unless the roster holds this key as the party's.
    """

    name: str
    key: SigningKey
    roster: Roster

    def __post_init__(self) -> None:
        if self.roster.key(self.name) != self.key.verification_key:
            raise FedprivError(f"roster: the key in use of {self.name} is another one")

    def identity(self) -> Identity:
        """This identity, as of `KeyFiles`."""
        return self

    def signer(self, settings: bytes, session: bytes) -> Ed25519Signer:
        """The signer for all messages up to the next set-up.

        settings: digest of the run's settings as this party knows them.
        session: identifier of the set-up.

        Its signatures, and those that it accepts, are bound to the protocol's version, to both
        arguments and to the roster.
        """
        context = digest("fedpriv", PROTOCOL_VERSION, settings, session, self.roster.digest)
        return Ed25519Signer(replace(self.key, context=context), self.roster.bound_keys(context))


def new_identities(parties: Iterable[str], before: Roster | None = None) -> dict[str, Identity]:
    """Fresh keys for all parties of a simulation, from the operating system, and their roster.

    before: the roster of an earlier process of the same run, whose keys are revoked. Private keys
        are never written down.
    """
    keys = {name: SigningKey.generate() for name in parties}
    roster = Roster.of(keys)
    if before is not None:
        entries = [replace(entry, state=REVOKED) for entry in before.entries]
        numbers = Counter(entry.party for entry in entries)
        new = (replace(e, number=numbers[e.party] + 1) for e in roster.entries)
        roster = Roster((*entries, *new))
    return {name: Identity(name, key, roster) for name, key in keys.items()}
