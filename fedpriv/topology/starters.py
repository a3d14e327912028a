"""Partitions from one of them, moved round a circle: difference families.

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

from fedpriv.topology.groups import Partitions, partition


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
