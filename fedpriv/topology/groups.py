"""Partitions of n peers into groups, so that no two peers share a group twice.

Peers are the numbers 0 to n - 1. The partitions are parallel classes of a resolvable design, or
rounds of social golfers. As long as no pair shares a group twice, a curious peer sees each other
peer's message at most once in as many iterations as there are partitions (the "gap" of Jeon et al.,
SecureD-FL).
"""

from __future__ import annotations

import random
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


ROLLBACK = 1000
TRIALS = 20_000
"""Most draws. The authors' program takes 1,000,000, which find up to twice as many partitions for
fifty peers and more."""
RUNS = 20


def randomised(
    sizes: Sequence[int],
    rng: random.Random,
    *,
    rollback: int | None = ROLLBACK,
    trials: int = TRIALS,
) -> Partitions:
    """Partitions of sum(sizes) peers into groups of these sizes, by the randomised construction of
    Jeon et al. (SecureD-FL, Algorithm 2).

    Draw as many free peers as a group has. If no two of them have shared a group before, they form
    one. As printed, a partition that cannot be finished blocks everything after it. With rollback
    the unfinished partition is dropped and started again after `rollback` failed draws.

    rollback: failed draws after which the unfinished partition is dropped; None: never, as
        printed.
    trials: most draws.
    """
    everybody = list(range(sum(sizes)))
    most = most_partitions(sizes)
    used: set[tuple[int, int]] = set()
    found: list[Partition] = []
    free = everybody
    unfinished = list[Group]()
    misses = 0
    for _ in range(trials):
        group = tuple(sorted(rng.sample(free, sizes[len(unfinished)])))
        if used.isdisjoint(combinations(group, 2)):
            used.update(combinations(group, 2))
            unfinished.append(group)
            free = [peer for peer in free if peer not in group]
            misses = 0
        else:
            misses += 1
        if not free:
            found.append(partition(unfinished))
            free = everybody
            unfinished = []
            if len(found) == most:
                break
        elif rollback is None and misses == ROLLBACK:
            size = sizes[len(unfinished)]
            if all(used & {*combinations(each, 2)} for each in combinations(sorted(free), size)):
                break  # no later draw can succeed
        elif rollback is not None and misses >= rollback:
            for group in unfinished:
                used.difference_update(combinations(group, 2))
            free = everybody
            unfinished = []
            misses = 0
    return tuple(found)


def best_randomised(sizes: Sequence[int], seed: int, *, runs: int = RUNS) -> Partitions:
    """The most partitions that any of `runs` seeded runs finds; of equally many, the first."""
    every = (randomised(sizes, random.Random(f"{seed}/{run}")) for run in range(runs))
    return max(every, key=len)
