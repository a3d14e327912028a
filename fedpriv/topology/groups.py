"""Partitions of n peers into groups, so that no two peers share a group twice.

Peers are the numbers 0 to n - 1. The partitions are parallel classes of a resolvable design, or
rounds of social golfers. As long as no pair shares a group twice, a curious peer sees each other
peer's message at most once in as many iterations as there are partitions (the "gap" of Jeon et al.,
SecureD-FL).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

Group = tuple[int, ...]
Partition = tuple[Group, ...]
Partitions = tuple[Partition, ...]


def partition(groups: Iterable[Iterable[int]]) -> Partition:
    """The groups and their members in ascending order, the same for every party."""
    return tuple(sorted(tuple(sorted(group)) for group in groups))


def check(partitions: Partitions, n: int, sizes: Sequence[int]) -> None:
    """Raise ValueError unless each partition has groups of these sizes that hold every peer once,
    and no pair of peers is in one group twice."""
    pairs: set[tuple[int, int]] = set()
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
                if pair in pairs:
                    raise ValueError(f"partition {number}: peers {pair} shared a group before")
                pairs.add(pair)


def most_partitions(sizes: Sequence[int]) -> int:
    """An upper bound on the number of partitions into groups of these sizes.

    A peer shares its group with at least min(sizes) - 1 others each time. If a group has more
    members than there are groups, a second partition would have to put two of them together again.
    """
    return (sum(sizes) - 1) // (min(sizes) - 1) if max(sizes) <= len(sizes) else 1


def group_sizes(n: int, size: int) -> tuple[int, ...] | None:
    """Sizes of the groups of n peers: `size`, and as few as possible of size + 1. None if n peers
    cannot be grouped so."""
    larger = n % size
    smaller = (n - larger * (size + 1)) // size
    return (
        (size,) * smaller + (size + 1,) * larger
        if n >= larger * (size + 1) > 0 or larger == 0
        else None
    )
