"""Partitions from lines: s copies of the integers modulo g, or of the field of g elements where g
is a power of two, and the lines through them.

For slopes b = 0, ..., g - 1 the blocks {(c, a + c b) : c < s}, a = 0, ..., g - 1, are a partition
of the s g points; two lines of different slopes cross at most once as long as the differences of
two copies' numbers have inverses. In a field all but zero have; modulo g those of 1 to s - 1 must.
The copies themselves, of g points that no line joins, can be partitioned again. With g = s
a prime or 4 that is the affine plane (n = 9, 16, 25, 49); with g odd and triples it makes Kirkman
systems of size 3 g out of those of size g (n = 27, 45).
"""

from __future__ import annotations

from math import gcd

from fedpriv.topology.groups import Partitions, partition


def line_partitions(size: int, modulus: int) -> Partitions:
    """The `modulus` partitions of size * modulus points, point (c, a) being c * modulus + a; none
    if lines would cross twice."""
    if modulus >= size and modulus in POLYNOMIALS:
        return tuple(
            partition(
                [c * modulus + (a ^ product(c, b, modulus)) for c in range(size)]
                for a in range(modulus)
            )
            for b in range(modulus)
        )
    if any(gcd(difference, modulus) > 1 for difference in range(1, size)):
        return ()
    return tuple(
        partition(
            [c * modulus + (a + c * b) % modulus for c in range(size)] for a in range(modulus)
        )
        for b in range(modulus)
    )


POLYNOMIALS = {4: 0b111, 8: 0b1011, 16: 0b10011}
"""Irreducible ones over the field of two elements, by the number of elements of the field that they
make. An element is the number whose bits are the coefficients of a polynomial; sums are exclusive
ors."""


def product(x: int, y: int, elements: int) -> int:
    """The product of two elements of the field."""
    total = 0
    while y:
        if y & 1:
            total ^= x
        x = x << 1
        y = y >> 1
        if x & elements:
            x ^= POLYNOMIALS[elements]
    return total


def side_by_side(partitions: Partitions, copies: int, modulus: int) -> Partitions:
    """Partitions of `modulus` points, applied to each of `copies` copies at once."""
    return tuple(
        partition(
            [c * modulus + point for point in group] for c in range(copies) for group in groups
        )
        for groups in partitions
    )
