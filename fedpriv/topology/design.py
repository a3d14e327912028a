"""As many partitions of a number of peers as the constructions here give.

The better of two constructions comes first (`transversal`, `starters`). If neither reaches the
bound, seeded randomised runs follow. The result depends only on the numbers, so that every peer
computes the same groups.
"""

from __future__ import annotations

from functools import cache

from fedpriv.topology.groups import Partitions, check, group_sizes, most_partitions, partition
from fedpriv.topology.randomised import best_randomised
from fedpriv.topology.starters import known_starter
from fedpriv.topology.transversal import line_partitions, side_by_side

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
