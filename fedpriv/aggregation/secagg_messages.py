"""What silos and server of a secure sum say to each other, what they sign, and how shares travel.

Every message is (phase, content). The session, a digest of the round and of all candidates' fresh public keys, enters
every signature of a set, every encryption and every mask, so nothing of one round means anything in another.
"""

from __future__ import annotations

from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from fedpriv.aggregation.fixed_point import FixedPoint
from fedpriv.aggregation.masks import agree, digest

ADVERTISE = "AdvertiseKeys"
SHARE = "ShareKeys"
COLLECT = "MaskedInputCollection"
CHECK = "ConsistencyCheck"
UNMASK = "Unmasking"

Advert = tuple[bytes, bytes, bytes]
"""A silo's public keys for this round, of the channel (c_u) and of the masks (s_u), and its signature on them."""

Sharing = tuple[bytes, dict[str, bytes]]
"""A silo's commitment to its own mask's seed, and its shares of both secrets, sealed, by receiver."""

NONCE = bytes(12)
"""A channel's key serves for one message, so the nonce may be constant."""


@dataclass(frozen=True)
class Terms:
    """The public numbers of one round: Th, E, E0, and how sums are decoded."""

    round: int
    threshold: int
    cohort: int
    candidates: int
    code: FixedPoint


def new_signing_key() -> tuple[bytes, bytes]:
    """A fresh Ed25519 key and its verification key, 32 bytes each."""
    key = Ed25519PrivateKey.generate()
    return key.private_bytes_raw(), key.public_key().public_bytes_raw()


def sign(key: bytes, statement: bytes) -> bytes:
    """A signature, 64 bytes."""
    return Ed25519PrivateKey.from_private_bytes(key).sign(statement)


def verifies(verification_key: bytes, signature: bytes, statement: bytes) -> bool:
    """Whether the owner of the key has signed the statement."""
    try:
        Ed25519PublicKey.from_public_bytes(verification_key).verify(signature, statement)
    except InvalidSignature:
        return False
    return True


def keys_statement(round: int, name: str, channel: bytes, masking: bytes) -> bytes:
    """What a silo signs about its keys."""
    return digest("secagg keys", round, name, channel, masking)


def set_statement(session: bytes, members: list[str]) -> bytes:
    """What a silo signs about the set whose sum is to be revealed."""
    return digest("secagg set", session, *sorted(members))


def session_of(round: int, roster: dict[str, Advert]) -> bytes:
    """The digest that ties a message to this round and these keys."""
    keys = [part for name in sorted(roster) for part in (name, *roster[name][:2])]
    return digest("secagg session", round, *keys)


def points(roster: dict[str, Advert]) -> dict[str, int]:
    """Each candidate's point on the polynomials."""
    return {name: index + 1 for index, name in enumerate(sorted(roster))}


def seed_between(private: bytes, public: bytes, session: bytes) -> bytes:
    """The seed of a pair's mask, the same for both."""
    return agree(private, public, digest("secagg mask", session))


def seed_commitment(session: bytes, name: str, seed: bytes) -> bytes:
    """What shows later that a seed is the one this silo shared in this round; 256 random bits cannot be guessed."""
    return digest("secagg seed", session, name, seed)


def seal(private: bytes, public: bytes, session: bytes, sender: str, receiver: str, shares: bytes) -> bytes:
    """Both names (as a digest) and the shares, encrypted for the receiver."""
    key = _channel(private, public, session, sender, receiver)
    return AESGCM(key).encrypt(NONCE, digest(sender, receiver) + shares, None)


def unseal(private: bytes, public: bytes, session: bytes, sender: str, receiver: str, sealed: bytes) -> bytes:
    """The shares. Raises InvalidTag for an altered message, ValueError for one that names others."""
    opened = AESGCM(_channel(private, public, session, sender, receiver)).decrypt(NONCE, sealed, None)
    names = digest(sender, receiver)
    if opened[: len(names)] != names:
        raise ValueError("it names others")
    return opened[len(names) :]


def _channel(private: bytes, public: bytes, session: bytes, sender: str, receiver: str) -> bytes:
    return agree(private, public, digest("secagg channel", session, sender, receiver))
