import math

import pytest
from scipy.stats import chisquare

from fedpriv.crypto.paillier import residues
from fedpriv.crypto.paillier.keys import EncryptionKey, generate_key
from fedpriv.crypto.paillier.residues import (
    PublishedResidues,
    TableResidues,
    exponent_bits,
)

P, Q = 7, 11
TINY = EncryptionKey(P * Q)  # 60 residues: their distribution can be seen whole. 77 is prime to 60.
SOURCES = [PublishedResidues, TableResidues]


@pytest.mark.parametrize("source", SOURCES)
def test_residues_are_uniform_among_all_of_them(source):
    drawn = [int(r) for r in source(TINY).draw(6000)]
    every = sorted(pow(s, P * Q, (P * Q) ** 2) for s in range(P * Q) if math.gcd(s, P * Q) == 1)
    assert len(set(every)) == 60
    assert set(drawn) == set(every)
    assert chisquare([drawn.count(r) for r in every]).pvalue > 1e-6


def test_powers_of_one_residue_would_miss_most():
    # Why the tables hold many generators: one spans at most a half, here lcm(6, 10) = 30 of 60.
    for s in range(1, P * Q):
        if math.gcd(s, P * Q) == 1:
            h = pow(s, P * Q, (P * Q) ** 2)
            assert len({pow(h, x, (P * Q) ** 2) for x in range(60)}) <= 30


@pytest.mark.parametrize("source", SOURCES)
def test_residues_are_fresh_and_encrypt_zero(source):
    key = generate_key(256)
    drawn = source(key.public).draw(20)
    assert len({int(r) for r in drawn}) == 20
    assert all(key.decrypt(r) == 0 for r in drawn)


@pytest.mark.parametrize("bits", [512, 2048, 3072, 4096])
def test_the_stated_distance_from_uniform(bits):
    # The bound of the module's text, with the exact probabilities that two exponents agree modulo
    # m.
    k, width = residues.GENERATORS, exponent_bits(bits)
    size = 2**width

    def agree(m):
        a, b = divmod(size, m)
        return (b * (a + 1) ** 2 + (m - b) * a**2) / size**2

    orders = [m for m in range(3, min(size, 4096)) if m & (m - 1)]
    squares = [
        (8 if m == 3 else m**2) * agree(m) ** k for m in orders
    ]  # beyond 4096: below 2^-1000 together
    distance = 3 * 2.0**-k + math.sqrt(2.0 ** (bits - k * width) + sum(squares)) / 2
    assert distance < 2.0**-128
