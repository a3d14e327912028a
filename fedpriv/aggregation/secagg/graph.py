"""Who shares secrets and masks with whom in a secure sum: everybody, or the neighbours on a random
ring.

The sparse graph is that of J. Bell, K. Bonawitz, A. Gascon, T. Lepoint, M. Raykova, Secure
single-server aggregation with (poly)logarithmic overhead (CCS 2020), section 3: Harary's graph, in
which everybody on a ring is joined to the degree / 2 nearest on either side, over the candidates in
random order. The order is a function of the query's session, the digest of all candidates' fresh
keys (`messages.session_of`), so that every silo works it out for itself and no message says what it
is. Nobody chooses it, but who sees all honest silos' keys first, as the server does, can try
several sets of candidates, or keys of silos that it has, and take the order that it likes best:
`degrees` reckons with 2^`GRINDING` tries.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from random import SystemRandom

import numpy as np

from fedpriv.crypto.prg import add_masks


@dataclass(frozen=True)
class Graph(ABC):
    """One query's candidates, in the order of their names, and who is whose neighbour;
    symmetric.
    """

    names: tuple[str, ...]

    @abstractmethod
    def around(self, name: str) -> tuple[str, ...]:
        """The silo and its neighbours, in the order of their names; those who hold shares of its
        secrets."""

    @abstractmethod
    def holds_together(self, chosen: Collection[str]) -> bool:
        """Whether masks among these silos hide all but their sum, whichever silos collude."""

    @abstractmethod
    def witnesses(self, delivered: set[str], chosen: set[str]) -> set[str]:
        """Who signs the set of the chosen and reveals shares."""


class Topology(ABC):
    """What is fixed of the graph before a query: how many shares reveal a secret, how the graph is
    drawn."""

    @property
    @abstractmethod
    def shares(self) -> int:
        """Shares that reveal a secret; a neighbourhood with fewer silos is refused."""

    @abstractmethod
    def graph(self, session: bytes, names: Iterable[str]) -> Graph:
        """The graph over these candidates."""

    @abstractmethod
    def drawn(self, signers: Collection[str]) -> list[str]:
        """Whose signatures a silo checks."""


@dataclass(frozen=True)
class Complete(Topology):
    """Everybody is everybody's neighbour (Bonawitz et al. 2017)."""

    threshold: int

    @property
    def shares(self) -> int:
        return self.threshold

    def graph(self, session: bytes, names: Iterable[str]) -> CompleteGraph:
        return CompleteGraph(tuple(sorted(names)))

    def drawn(self, signers: Collection[str]) -> list[str]:
        return sorted(signers)


@dataclass(frozen=True)
class CompleteGraph(Graph):
    """All candidates are neighbours, so any set holds together; the chosen need no more help than
    others."""

    def around(self, name: str) -> tuple[str, ...]:
        return self.names

    def holds_together(self, chosen: Collection[str]) -> bool:
        return True

    def witnesses(self, delivered: set[str], chosen: set[str]) -> set[str]:
        return delivered


@dataclass(frozen=True)
class Sparse(Topology):
    """degree: neighbours of a silo, even.
    share_threshold: shares that reveal a secret, of the degree + 1 that there are.
    slack: most silos of degree / 2 in a row that may be left out of a sum.
    checked: signatures that a silo verifies, drawn anew by each with randomness that nobody else
        sees.
    """

    degree: int
    share_threshold: int
    slack: int
    checked: int

    @property
    def shares(self) -> int:
        return self.share_threshold

    def graph(self, session: bytes, names: Iterable[str]) -> RingGraph:
        return RingGraph(tuple(sorted(names)), session, self.degree // 2, self.slack)

    def drawn(self, signers: Collection[str]) -> list[str]:
        return SystemRandom().sample(sorted(signers), min(self.checked, len(signers)))


@dataclass(frozen=True)
class RingGraph(Graph):
    """half: neighbours on either side."""

    session: bytes
    half: int
    slack: int

    @cached_property
    def order(self) -> np.ndarray:
        """Indices of names, (n,), in the order in which they stand on the ring: uniformly random as
        long as SHA-256 and AES behave like random functions."""
        numbers = add_masks(
            np.zeros(len(self.names), np.uint64), [self.session], purpose=b"secagg ring"
        )
        return np.argsort(numbers, kind="stable")

    @cached_property
    def _places(self) -> dict[str, int]:
        return {self.names[index]: place for place, index in enumerate(self.order.tolist())}

    def around(self, name: str) -> tuple[str, ...]:
        steps = np.arange(-self.half, self.half + 1)
        indices = self.order.take(self._places[name] + steps, mode="wrap")
        return tuple(self.names[index] for index in np.unique(indices).tolist())

    def holds_together(self, chosen: Collection[str]) -> bool:
        """Whether no stretch of `half` silos misses more than `slack`. Two parts of the ring are
        only apart when whole stretches between them are left out or collude."""
        inside = set(chosen)
        missing = np.array([name not in inside for name in self.names])[self.order]
        counts = np.concatenate([[0], np.cumsum(np.concatenate([missing, missing[: self.half]]))])
        return bool((counts[self.half :] - counts[: -self.half] <= self.slack).all())

    def witnesses(self, delivered: set[str], chosen: set[str]) -> set[str]:
        """The chosen alone: those left out, whose masks are known, would make it easier to part the
        ring."""
        return chosen
