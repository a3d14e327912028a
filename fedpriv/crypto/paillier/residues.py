"""Fresh n-th residues for a party that knows n alone. To multiply by one re-randomises a
ciphertext.

The server must not distinguish such a residue from a uniform one, and the server holds the primes.
So it does not help to assume that factoring, or deciding residues, is hard: the residue must be
statistically close to uniform. The usual shortcut, h^x for one fixed n-th residue h, is not. The
n-th residues are the product of two cyclic groups of even orders p - 1 and q - 1, so the powers of
h are a proper subgroup, and the coset of a product reveals a linear function of the secret
exponents. If h is a square, even the Jacobi symbol, which needs no primes, stays unchanged.

`TableResidues` multiplies random powers of k independent uniform residues instead: h_1^x_1 ...
h_k^x_k with every x_i uniform on 0..2^B - 1, kB >= bits(n) + 256. Its distance from uniform, on
average over h, follows from characters. The residues have fewer than 2^bits(n) characters, and at
most m^2 of them have order m. Under one of order m, h_i is a uniform m-th root of unity, so that
the mean square of E[chi(h_i^x_i)] is c_m, the probability that two x are equal modulo m; for the
whole product it is c_m^k. c_m = 2^-B for m >= 2^B, and about 1/m below. For m = 2^j <= 2^B the
expectation is exactly zero unless chi(h_i) = 1 for all i, which happens for some such character
with probability at most 3 * 2^-k. With Cauchy and Schwarz over all other characters, the distance
is at most

    3 * 2^-k + sqrt(2^(bits(n) - kB) + 8 c_3^k + sum over m >= 5 of m^2 c_m^k) / 2  <  2^-128    for
    k = 168,

where the generators serve for any number of residues: distances add up.
"""

from __future__ import annotations

import secrets

from gmpy2 import gcd, mpz

from fedpriv.crypto.paillier import pairs
from fedpriv.crypto.paillier.keys import EncryptionKey

GENERATORS = 168
"""k: 8 * 3^-k is below 2^-263."""
WINDOW = 8
"""Exponent bits that one table covers: 2^8 products, about 0.9 kB each for 3072 bits."""
EXTRA_BITS = 256
"""Twice the bits of the statistical distance."""
TABLES_PAY = 250
"""So many residues make up for the preparation of tables."""


class PublishedResidues:
    """s^n modulo n^2 for uniform s, as in Paillier's paper: exactly uniform, one long power
    each."""

    def __init__(self, public: EncryptionKey) -> None:
        self.public = public

    def draw(self, count: int) -> list[mpz]:
        """`count` independent uniform n-th residues. From the operating system's randomness."""
        return [pairs.join(uniform_residue(self.public), self.public.modulus) for _ in range(count)]


class TableResidues:
    """Products from precomputed tables, within 2^-128 of uniform; about seven times as fast, after
    a preparation of `GENERATORS` long powers."""

    def __init__(self, public: EncryptionKey) -> None:
        self.public = public
        n = public.modulus
        bases = []
        for _ in range(GENERATORS):
            base = uniform_residue(public)
            for _ in range(exponent_bits(public.bits)):
                bases.append(base)
                base = pairs.doublings(base, 1, n)
        self.tables = [
            pairs.subset_products(bases[k : k + WINDOW], n) for k in range(0, len(bases), WINDOW)
        ]

    def draw(self, count: int) -> list[mpz]:
        """`count` residues, each from exponents drawn afresh from the operating system."""
        n = self.public.modulus
        results = []
        for _ in range(count):
            result = (mpz(1), mpz(0))
            for table, index in zip(
                self.tables, secrets.token_bytes(len(self.tables)), strict=True
            ):
                result = pairs.times(result, table[index], n)
            results.append(pairs.join(result, n))
        return results


def exponent_bits(bits: int) -> int:
    """B, bits of one generator's exponent for n of `bits` bits."""
    return -(-(bits + EXTRA_BITS) // GENERATORS)


def uniform_residue(public: EncryptionKey) -> pairs.Pair:
    """s^n for s uniform among the units modulo n; s -> s^n maps them one to one onto the n-th
    residues modulo n^2."""
    while gcd(root := mpz(secrets.randbelow(public.n)), public.modulus) != 1:
        pass
    return pairs.power((root, mpz(0)), public.n, public.modulus)
