"""The randomised construction of Jeon et al. (SecureD-FL, Algorithm 2), for any sizes of groups.

Draw as many free peers as a group has. If no two of them have shared a group before, they form one.
As printed, a partition that cannot be finished blocks everything after it. With rollback the
unfinished partition is dropped and started again after `rollback` failed draws.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations

from fedpriv.topology.groups import Group, Partition, Partitions, most_partitions, partition

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
    """Partitions of sum(sizes) peers into groups of these sizes.

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
