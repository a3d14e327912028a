"""Partitions of n peers into groups, such that no two peers are in one group twice.

Peers are the numbers 0 to n - 1. In the field's words the partitions are parallel classes: those of
a resolvable design, or of a round of social golfers. As long as no pair meets twice, a peer that is
curious sees each other peer's message at most once in as many iterations as there are partitions
(the "gap" of Jeon et al., SecureD-FL).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

Group = tuple[int, ...]
Partition = tuple[Group, ...]
Partitions = tuple[Partition, ...]


def partition(groups: Iterable[Iterable[int]]) -> Partition:
    """The same groups with their members, and themselves, in ascending order: one spelling for
    every party."""
    return tuple(sorted(tuple(sorted(group)) for group in groups))


def check(partitions: Partitions, n: int, sizes: Sequence[int]) -> None:
    """Raise ValueError unless each partition has groups of these sizes that hold every peer once,
    and no pair of peers is in one group twice."""
    met: set[tuple[int, int]] = set()
    for number, groups in enumerate(partitions):
        if sorted(map(len, groups)) != sorted(sizes):
            raise ValueError(
                f"partition {number} has groups of {sorted(map(len, groups))}, not of "
                f"{sorted(sizes)}"
            )
        if sorted(peer for group in groups for peer in group) != list(range(n)):
            raise ValueError(f"partition {number} does not hold each of {n} peers once")
        for group in groups:
            for pair in combinations(sorted(group), 2):
                if pair in met:
                    raise ValueError(
                        f"partition {number}: peers {pair[0]} and {pair[1]} have met before"
                    )
                met.add(pair)


def most_partitions(sizes: Sequence[int]) -> int:
    """A bound that no set of partitions into groups of these sizes exceeds.

    A peer meets at least min(sizes) - 1 others each time. Where a group has more members than there
    are groups, the second partition would have to put two of the same group together again.
    """
    return (sum(sizes) - 1) // (min(sizes) - 1) if max(sizes) <= len(sizes) else 1


def group_sizes(n: int, size: int) -> tuple[int, ...] | None:
    """Groups of `size`, and as few as need be of size + 1, that n peers fall into; None where they
    do not."""
    larger = n % size
    smaller = (n - larger * (size + 1)) // size
    return (
        (size,) * smaller + (size + 1,) * larger
        if n >= larger * (size + 1) > 0 or larger == 0
        else None
    )
