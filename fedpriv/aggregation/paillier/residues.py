"""Fresh n-th residues for a party that knows n alone. To multiply by one re-randomises a ciphertext."""

from __future__ import annotations

import secrets
from typing import Protocol

from gmpy2 import mpz, powmod

from fedpriv.aggregation.paillier.keys import PublicKey


class Residues(Protocol):
    """A source of n-th residues, each for one use."""

    def draw(self, count: int) -> list[mpz]:
        """`count` fresh residues."""


class PublishedResidues:
    """s^n modulo n^2 for uniform s: exactly uniform, one long power each."""

    def __init__(self, public: PublicKey) -> None:
        self.public = public

    def draw(self, count: int) -> list[mpz]:
        """`count` independent uniform n-th residues. From the operating system's randomness."""
        n, square = self.public.modulus, self.public.square
        return [powmod(1 + secrets.randbelow(self.public.n - 1), n, square) for _ in range(count)]


def residues(public: PublicKey, expected: int) -> Residues:
    """The source that takes the least time for `expected` residues in a run, its preparation included."""
    return PublishedResidues(public)
