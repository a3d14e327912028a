"""The most partitions that are known here for a number of peers.

Constructions first (`transversal`, `starters`), the better of them; where neither reaches the
bound, an exact search for a starter within a fixed number of steps (`search`), and seeded
randomised runs. The result depends on the numbers alone, so that every peer comes to the same
groups.
"""

from __future__ import annotations

from functools import cache

from fedpriv.topology.groups import Partitions, check, group_sizes, most_partitions, partition
from fedpriv.topology.randomised import best_randomised
from fedpriv.topology.search import found_starter
from fedpriv.topology.starters import known_starter
from fedpriv.topology.transversal import line_partitions, side_by_side

SEED = 20


@cache
def designed(n: int, size: int) -> Partitions:
    """Partitions of n peers into groups of `size`, checked; of `size` and `size` + 1 where n is not
    divisible, and none where there are no such groups either."""
    sizes = group_sizes(n, size)
    if sizes is None:
        return ()
    partitions = _constructed(n, size) if n % size == 0 else ()
    if len(partitions) < most_partitions(sizes):
        partitions = max(partitions, found_starter(n, size), key=len)
    if len(partitions) < most_partitions(sizes):
        partitions = max(partitions, best_randomised(sizes, SEED), key=len)
    check(partitions, n, sizes)
    return partitions


@cache
def _constructed(n: int, size: int) -> Partitions:
    """The better of a starter from the table and lines, whose copies are partitioned in their turn;
    a single partition there always is."""
    one = (partition(range(start, start + size) for start in range(0, n, size)),)
    modulus = n // size
    lines = line_partitions(size, modulus)
    if modulus % size == 0:
        lines += side_by_side(_constructed(modulus, size), size, modulus) if lines else ()
    return max(one, known_starter(n, size), lines, key=len)
