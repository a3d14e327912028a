"""Partitions from one of them, moved round a circle: difference families, found by search.

The points are c copies of the integers modulo m, point x of copy i being i * m + x, and then f more
that stay where they are. A starter is one partition in which no two pairs are moved onto each
other: adding 1, ..., m - 1 to it gives m partitions in which no pair is twice. Where n = c * m, a
block with one point of each copy is a partition by itself when it is moved round: those are the
`fixed` blocks.

With triples these are Kirkman systems (n = 3 modulo 6) and nearly Kirkman systems (n divisible by
6), with groups of four resolvable designs (n = 4 modulo 12) and resolvable group-divisible ones of
groups of three (n divisible by 12). Every entry has floor((n - 1) / (size - 1)) partitions, so that
none can have more; a test moves and checks each.
"""

from __future__ import annotations

from fedpriv.topology.groups import Partitions, partition

STARTERS: dict[tuple[int, int], tuple[int, str, str]] = {
    # (n, size): (m, the starter's blocks one after the other, fixed blocks)
    (15, 3): (7, "0 2 11 1 4 7 3 8 14 5 6 13 9 10 12", ""),
    (21, 3): (7, "0 2 3 1 7 20 4 9 14 5 12 19 6 8 17 10 11 13 15 16 18", "0 8 16 0 10 20 0 11 15"),
    (24, 3): (11, "0 13 14 1 2 21 3 8 10 4 7 19 5 11 15 6 17 22 9 16 23 12 18 20", ""),
    (30, 3): (
        14,
        "0 20 29 1 7 18 2 11 26 3 16 25 4 22 23 5 14 17 6 27 28 8 10 24 9 12 13 15 19 21",
        "",
    ),
    (33, 3): (
        11,
        "0 2 3 1 21 25 4 10 17 5 9 24 6 18 31 7 11 12 8 26 29 13 15 20 14 30 32 16 19 28 22 23 27",
        "0 11 22 0 14 28 0 17 23 0 19 27 0 21 31",
    ),
    (36, 3): (
        17,
        "0 2 8 1 5 15 3 17 31 4 21 34 6 11 24 7 33 35 9 10 30 12 20 28 13 23 25 14 19 29 16 18 "
        "22 26 27 32",
        "",
    ),
    (39, 3): (
        19,
        "0 5 9 1 2 8 3 34 38 4 26 28 6 14 29 7 10 24 11 21 32 12 25 30 13 19 20 15 23 35 16 18 "
        "27 17 33 36 22 31 37",
        "",
    ),
    (42, 3): (
        20,
        "0 7 31 1 27 41 2 8 37 3 11 39 4 6 26 5 14 32 9 22 30 10 15 20 12 13 16 17 29 40 18 21 "
        "35 19 33 38 23 "
        "34 36 24 25 28",
        "",
    ),
    (48, 3): (
        23,
        "0 9 28 1 16 18 2 7 43 3 26 46 4 30 47 5 25 44 6 22 36 8 32 35 10 11 21 12 33 45 13 24 "
        "38 14 17 23 15 "
        "19 27 20 37 42 29 31 39 34 40 41",
        "",
    ),
    (51, 3): (
        25,
        "0 14 43 1 4 5 2 10 17 3 19 49 6 29 39 7 34 45 8 25 50 9 15 31 11 30 47 12 24 44 13 18 "
        "27 16 41 42 20 "
        "26 48 21 23 33 22 37 46 28 35 40 32 36 38",
        "",
    ),
    (54, 3): (
        26,
        "0 1 30 2 5 47 3 34 51 4 6 40 7 17 21 8 13 19 9 29 32 10 38 53 11 18 50 12 26 27 14 22 "
        "49 15 24 48 16 "
        "28 42 20 37 45 23 44 52 25 36 43 31 41 46 33 35 39",
        "",
    ),
    (57, 3): (
        19,
        "0 2 48 1 23 46 3 7 17 4 16 33 5 13 31 6 9 37 8 42 44 10 11 34 12 18 51 14 38 39 15 28 "
        "52 19 21 29 20 "
        "32 35 22 36 53 24 30 56 25 26 54 27 45 49 40 43 50 41 47 55",
        "0 19 38 0 20 40 0 21 42 0 25 50 0 27 54 0 30 41 0 33 47 0 34 49 0 35 51",
    ),
    (60, 3): (
        29,
        "0 6 13 1 10 46 2 36 51 3 14 54 4 12 50 5 29 32 7 11 21 8 31 41 9 40 48 15 27 33 16 30 "
        "53 17 38 49 18 "
        "20 23 19 34 59 22 47 52 24 25 37 26 45 58 28 56 57 35 42 44 39 43 55",
        "",
    ),
    (16, 4): (5, "0 4 5 8 1 3 10 14 2 9 12 15 6 7 11 13", ""),
    (24, 4): (7, "0 17 19 20 1 11 16 23 2 8 18 21 3 5 6 7 4 9 15 22 10 12 13 14", ""),
    (28, 4): (9, "0 4 12 22 1 11 14 15 2 17 23 27 3 10 18 19 5 6 8 25 7 9 16 21 13 20 24 26", ""),
    (36, 4): (
        11,
        "0 15 17 18 1 13 32 33 2 21 23 35 3 8 27 31 4 6 7 22 5 9 14 19 10 12 24 34 11 26 28 29 "
        "16 20 25 30",
        "",
    ),
    (40, 4): (
        13,
        "0 5 28 29 1 4 34 36 2 3 13 18 6 12 33 37 7 11 19 25 8 10 14 17 9 22 35 39 15 16 26 31 "
        "20 24 32 38 21 23 27 30",
        "",
    ),
    (44, 4): (
        14,
        "0 5 36 40 1 3 25 30 2 10 14 17 4 23 27 29 6 26 38 43 7 21 35 42 8 11 12 31 9 22 33 39 "
        "13 15 16 24 18 "
        "20 28 41 19 32 34 37",
        "",
    ),
    (48, 4): (
        15,
        "0 3 7 35 1 10 11 34 2 21 39 45 4 16 25 26 5 15 18 22 6 24 32 47 8 28 42 44 9 17 36 46 "
        "12 14 23 43 13 "
        "27 29 38 19 31 40 41 20 30 33 37",
        "",
    ),
    (52, 4): (
        17,
        "0 10 24 50 1 6 36 37 2 3 18 23 4 8 47 49 5 11 14 43 7 33 34 44 9 22 28 31 12 29 46 51 "
        "13 15 21 25 16 "
        "17 27 41 19 20 35 40 26 39 45 48 30 32 38 42",
        "",
    ),
    (56, 4): (
        18,
        "0 13 27 29 1 25 49 55 2 6 8 23 3 21 39 54 4 26 46 51 5 12 37 40 7 10 30 35 9 17 36 43 "
        "11 42 44 50 14 "
        "22 33 52 15 16 28 38 18 19 41 45 20 24 32 53 31 34 47 48",
        "",
    ),
    (60, 4): (
        19,
        "0 28 54 58 1 14 30 34 2 12 42 44 3 10 55 56 4 6 21 31 5 8 13 26 7 43 46 51 9 35 38 57 "
        "11 15 39 52 16 "
        "19 47 59 17 18 22 29 20 33 49 53 23 25 40 50 24 27 32 45 36 37 41 48",
        "",
    ),
}


def known_starter(n: int, size: int) -> Partitions:
    """The partitions of the starter in the table; none where there is none."""
    if (n, size) not in STARTERS:
        return ()
    modulus, starter, fixed = STARTERS[n, size]
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
    """The block with `by` added to those of its points that are below `moving`."""
    return [
        point // modulus * modulus + (point + by - point // modulus * modulus) % modulus
        if point < moving
        else point
        for point in block
    ]


def _blocks(numbers: str, size: int) -> list[tuple[int, ...]]:
    points = [int(number) for number in numbers.split()]
    return [tuple(points[start : start + size]) for start in range(0, len(points), size)]
