"""An exact search for a starter (see `starters`): backtracking over the blocks of the point with
the fewest choices. It ends with a starter, or without one after a fixed number of steps."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from fedpriv.topology.groups import Group, Partitions, most_partitions, partition
from fedpriv.topology.starters import moved

STEPS = 400
RUNS = 10
SEED = 7


def found_starter(n: int, size: int, *, steps: int = STEPS, runs: int = RUNS) -> Partitions:
    """As many partitions as `most_partitions` allows, from a starter with size - 1 copies; none if
    the search fails.

    steps: blocks that one of `runs` attempts tries.
    """
    if n % size:
        return ()
    modulus = most_partitions((size,) * (n // size))
    moving = (size - 1) * modulus
    if modulus == 1 or n - moving > size:
        return ()
    search = _Search(n, size, modulus, moving)
    for run in range(runs):
        blocks = search.attempt(np.random.default_rng((SEED, run)), steps)
        if blocks is not None:
            return tuple(
                partition(moved(block, by, modulus, moving) for block in blocks)
                for by in range(modulus)
            )
    return ()


class _Search:
    """A search for the blocks of a starter.

    orbit: (n, n), number of the orbit of each pair of points under moves; -1 if the orbit is too
        short.
    """

    def __init__(self, n: int, size: int, modulus: int, moving: int) -> None:
        self.n = n
        self.size = size
        names: dict[tuple[int, ...], int] = {}
        self.orbit = np.full((n, n), -1)
        for pair in combinations(range(n), 2):
            orbit = [tuple(sorted(moved(pair, by, modulus, moving))) for by in range(modulus)]
            if len(set(orbit)) == modulus:
                name = names.setdefault(min(orbit), len(names))
                self.orbit[pair] = self.orbit[pair[::-1]] = name
        self.n_orbits = len(names)

    def attempt(self, rng: np.random.Generator, steps: int) -> list[Group] | None:
        """A starter's blocks, or None when `steps` blocks have led to none."""
        used = np.zeros(self.n_orbits + 1, dtype=bool)
        left = [steps]
        used[-1] = True  # the place of pairs that are never allowed
        return self._extended([], frozenset(range(self.n)), used, rng=rng, left=left)

    def _extended(
        self,
        blocks: list[Group],
        free: frozenset[int],
        used: np.ndarray,
        *,
        rng: np.random.Generator,
        left: list[int],
    ) -> list[Group] | None:
        if not free:
            return blocks
        choices = self._choices(free, used)
        for at in rng.permutation(len(choices)).tolist():
            left[0] -= 1
            if left[0] < 0:
                return None
            block = choices[at]
            taken = used.copy()
            taken[[self.orbit[pair] for pair in combinations(block, 2)]] = True
            found = self._extended([*blocks, block], free - set(block), taken, rng=rng, left=left)
            if found is not None:
                return found
        return None

    def _choices(self, free: frozenset[int], used: np.ndarray) -> list[Group]:
        """All blocks for the point that has the fewest partners left."""
        points = np.array(sorted(free))
        allowed = ~used[self.orbit[np.ix_(points, points)]]
        point = points[allowed.sum(1).argmin()]
        return list(self._blocks((int(point),), points[allowed[points == point][0]].tolist(), used))

    def _blocks(self, block: Group, partners: list[int], used: np.ndarray) -> Iterator[Group]:
        """`block` made full with partners, in ascending order, no two pairs of the same orbit."""
        if len(block) == self.size:
            yield block
            return
        for place, partner in enumerate(partners):
            orbits = [self.orbit[pair] for pair in combinations((*block, partner), 2)]
            if len(set(orbits)) == len(orbits) and not used[orbits].any():
                yield from self._blocks((*block, partner), partners[place + 1 :], used)
