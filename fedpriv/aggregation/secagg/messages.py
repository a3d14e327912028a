"""Messages of a secure sum: their schemas, what is signed in them, and how shares travel.

Every message is signed by its sender (`parties.post`). The session is a digest of the set-up, the
query's serial and all candidates' fresh public keys. It enters every receipt, every signature of a
set, every encryption and every mask, so that nothing of one query is valid in another.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from fedpriv.aggregation.secagg.graph import Complete, Sparse
from fedpriv.crypto.digest import DIGEST_BYTES, digest
from fedpriv.crypto.sealing import TAG_BYTES, seal, unseal
from fedpriv.crypto.secret_sharing import LIMBS, PRIME
from fedpriv.crypto.signatures import SIGNATURE_BYTES
from fedpriv.crypto.x25519 import KEY_BYTES, PrivateKey, PublicKey
from fedpriv.encoding.fixed_point import FixedPoint
from fedpriv.parties.schema import Array, Parts, Raw, Schema, Table
from fedpriv.parties.signer import Statement

ADVERTISE = "AdvertiseKeys"
SHARE = "ShareKeys"
COLLECT = "MaskedInputCollection"
CHECK = "ConsistencyCheck"
UNMASK = "Unmasking"

SHARE_BYTES = 4 * LIMBS
SEALED = 2 * SHARE_BYTES + DIGEST_BYTES + TAG_BYTES
"""Bytes of the sealed shares of both masks' secrets, with both names."""

ADVERT = Parts((Raw(KEY_BYTES), Raw(KEY_BYTES), Raw(SIGNATURE_BYTES)))
"""Schema of an `Advert`."""

Advert = tuple[bytes, bytes, bytes]
"""A silo's public keys for this query: of the channel (c_u), of the masks (s_u); and its signature
on both."""

Stamp = tuple[bytes, int, int, bytes]
"""The set-up, round and place of a query, and the digest of what the server has sent down. Silos
that were told different things do not accept each other's keys."""

Delivery = tuple[np.ndarray, bytes]
"""A silo's masked vector, (size,), and its receipt: its signature on the list of silos for which it
has masked."""

Sharing = tuple[bytes, dict[str, bytes]]
"""A silo's commitment to its own mask's seed, and its sealed shares of both secrets by
receiver."""


def sealed_schema(secrets: int) -> Raw:
    """Schema of the sealed shares of this many secrets, with both names."""
    return Raw(SEALED + (secrets - 2) * SHARE_BYTES)


def shares_schema(owners: Collection[str], *, whole: bool) -> Table:
    """Schema of shares by owner: of all owners, or of some unless `whole`."""
    return Table(owners, Array(np.uint32, (LIMBS,), high=PRIME - 1), whole=whole)


def receipt_schema(receipts: bool) -> Raw:
    """Schema of a receipt, empty on a graph without `receipts`."""
    return Raw(SIGNATURE_BYTES if receipts else 0)


def delivery_schema(vector: Schema, receipts: bool) -> Parts:
    """Schema of a `Delivery`."""
    return Parts((vector, receipt_schema(receipts)))


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The public numbers of one query.

    stamp: of the query.
    threshold: Th.
    cohort: E.
    candidates: E0.
    topology: who shares with whom.
    encoding: of messages.
    """

    stamp: Stamp
    threshold: int
    cohort: int
    candidates: int
    topology: Complete | Sparse
    encoding: FixedPoint


@dataclass(frozen=True, kw_only=True)
class Envelope:
    """Hides one silo's shares for another from the server.

    own: channel key of the party that holds the envelope.
    peer: channel key of the other party.
    session: of the query.
    sender: name of the silo that shares.
    receiver: name of the silo that gets the shares.
    """

    own: PrivateKey
    peer: PublicKey
    session: bytes
    sender: str
    receiver: str

    def seal(self, shares: bytes) -> bytes:
        """Encrypt a digest of both names and the shares for the receiver. Raises ValueError for a
        peer's key of low order."""
        return seal(self._key(), self._names() + shares)

    def unseal(self, sealed: bytes) -> bytes:
        """Decrypt the shares. Raises SealBrokenError for an altered message, ValueError for one
        with other names."""
        opened = unseal(self._key(), sealed)
        names = self._names()
        if opened[: len(names)] != names:
            raise ValueError("it names others")
        return opened[len(names) :]

    def _key(self) -> bytes:
        """The key of this one message; it depends on the direction."""
        purpose = digest("secagg channel", self.session, self.sender, self.receiver)
        return self.own.derive_shared_seed(self.peer, purpose)

    def _names(self) -> bytes:
        return digest(self.sender, self.receiver)


def keys_statement(stamp: Stamp, name: str, keys: tuple[bytes, bytes]) -> bytes:
    """What a silo signs about its keys: the channel's and the masks'."""
    return digest("secagg keys", *stamp, name, *keys)


def sharing_digest(session: bytes, sharing: Iterable[str]) -> bytes:
    """The purpose of all masks of a query. Masks of silos that received different sets U3 do not
    cancel."""
    return digest("secagg sharing", session, *sorted(sharing))


def receipt_statement(sharing: bytes) -> Statement:
    """What a silo signs about the list of silos for which it has masked.

    sharing: the `sharing_digest`.
    """
    return "secagg receipt", sharing


def set_statement(sharing: bytes, members: Iterable[str]) -> bytes:
    """What a silo signs about the set whose sum is revealed.

    sharing: the `sharing_digest`.
    """
    return digest("secagg set", sharing, *sorted(members))


def session_of(stamp: Stamp, roster: Mapping[str, Advert]) -> bytes:
    """The digest that binds a message to this set-up, query and keys."""
    keys = [part for name in sorted(roster) for part in (name, *roster[name][:2])]
    return digest("secagg session", *stamp, *keys)


def points(roster: Iterable[str]) -> dict[str, int]:
    """The point on the polynomial of each share holder, by name."""
    return {name: index + 1 for index, name in enumerate(sorted(roster))}


def pair_seed(own: PrivateKey, peer: PublicKey, session: bytes) -> bytes:
    """The seed of a pair's mask, the same for both. Raises ValueError for a peer's key of low
    order."""
    return own.derive_shared_seed(peer, digest("secagg mask", session))


def seed_commitment(session: bytes, name: str, seed: bytes) -> bytes:
    """A commitment: it shows later that a seed is the one that this silo shared in this query. 256
    random bits cannot be guessed."""
    return digest("secagg seed", session, name, seed)
