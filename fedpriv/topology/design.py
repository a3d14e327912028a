"""As many partitions of a number of peers as the constructions here give.

The better of two constructions comes first. If neither reaches the bound, seeded randomised runs
follow. The result depends only on the numbers, so that every peer computes the same groups.

Partitions from lines: s copies of the integers modulo g, or of the field of g elements where g
is a power of two, and the lines through them.

For slopes b = 0, ..., g - 1 the blocks {(c, a + c b) : c < s}, a = 0, ..., g - 1, are a partition
of the s g points; two lines of different slopes cross at most once as long as the differences of
two copies' numbers have inverses. In a field all but zero have; modulo g those of 1 to s - 1 must.
The copies themselves, of g points that no line joins, can be partitioned again. With g = s
a prime or 4 that is the affine plane (n = 9, 16, 25, 49); with g odd and triples it makes Kirkman
systems of size 3 g out of those of size g (n = 27, 45).

Partitions from one of them, moved round a circle: difference families.

The points are c copies of the integers modulo m, and f more points that stay where they are. Point
x of copy i is the number i * m + x. A starter is one partition in which no two pairs are moved onto
each other. Adding 1, ..., m - 1 to it gives m partitions in which no pair occurs twice. Where n = c
* m, a block with one point of each copy is a partition by itself when it is moved round. These are
the fixed blocks.

With triples these are Kirkman systems (n = 3 modulo 6) and nearly Kirkman systems (n divisible by
6). With groups of four they are resolvable designs (n = 4 modulo 12) and resolvable group-divisible
ones of groups of three (n divisible by 12). Every entry of the table has floor((n - 1) / (size -
1)) partitions, so that none can have more; a test moves and checks each.
"""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files
from math import gcd

from fedpriv.topology.groups import (
    Partitions,
    best_randomised,
    check,
    group_sizes,
    most_partitions,
    partition,
)


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


@cache
def starters() -> dict[tuple[int, int], tuple[int, str, str]]:
    """The table `starters.csv`: by n and size, the modulus m, the starter's blocks one after the
    other, and the fixed blocks."""
    text = files("fedpriv.topology").joinpath("starters.csv").read_text()
    return {
        (int(row["n"]), int(row["size"])): (int(row["modulus"]), row["blocks"], row["fixed"])
        for row in csv.DictReader(text.splitlines())
    }


def known_starter(n: int, size: int) -> Partitions:
    """The partitions from the table's starter; none if the table has no such entry."""
    if (n, size) not in starters():
        return ()
    modulus, starter, fixed = starters()[n, size]
    moving = n // modulus * modulus
    blocks = _blocks(starter, size)
    lines = _blocks(fixed, size)
    partitions = [
        partition(moved(block, by, modulus, moving) for block in blocks) for by in range(modulus)
    ]
    partitions += [
        partition(moved(line, by, modulus, moving) for by in range(modulus)) for line in lines
    ]
    return tuple(partitions)


def moved(block: tuple[int, ...], by: int, modulus: int, moving: int) -> list[int]:
    """The block after `by` is added to its points below `moving`."""
    return [
        point // modulus * modulus + (point + by - point // modulus * modulus) % modulus
        if point < moving
        else point
        for point in block
    ]


def _blocks(numbers: str, size: int) -> list[tuple[int, ...]]:
    points = [int(number) for number in numbers.split()]
    return [tuple(points[start : start + size]) for start in range(0, len(points), size)]


SEED = 20


@cache
def designed(n: int, size: int) -> Partitions:
    """Partitions of n peers into groups of `size`, or of `size` and `size` + 1 if n is not
    divisible; none if there are no such groups. They are checked."""
    sizes = group_sizes(n, size)
    if sizes is None:
        return ()
    partitions = _constructed(n, size) if n % size == 0 else ()
    if len(partitions) < most_partitions(sizes):
        partitions = max(partitions, best_randomised(sizes, SEED), key=len)
    check(partitions, n, sizes)
    return partitions


@cache
def _constructed(n: int, size: int) -> Partitions:
    """The better of the table's starter and of lines, whose copies are partitioned again; at least
    one partition."""
    one = (partition(range(start, start + size) for start in range(0, n, size)),)
    modulus = n // size
    lines = line_partitions(size, modulus)
    if modulus % size == 0:
        lines += side_by_side(_constructed(modulus, size), size, modulus) if lines else ()
    return max(one, known_starter(n, size), lines, key=len)
