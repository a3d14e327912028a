"""Which silos share secrets and masks in a secure sum: all, or neighbours on a random ring.

The sparse graph is that of J. Bell, K. Bonawitz, A. Gascon, T. Lepoint, M. Raykova, Secure
single-server aggregation with (poly)logarithmic overhead (CCS 2020), section 3: Harary's graph over
the candidates in random order. It joins each silo on a ring to the degree / 2 nearest silos on
either side. The order is a function of the query's session, the digest of all candidates' fresh
keys (`messages.session_of`). Every silo computes it, and no message contains it. Nobody chooses the
order. But the server sees all honest silos' keys first. It can try several sets of candidates, or
several keys of colluding silos, and take the order that it likes best. `degrees` allows for
2^`GRINDING` tries.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from random import SystemRandom
from typing import ClassVar

import numpy as np

from fedpriv.crypto.prg import add_masks


@dataclass(frozen=True)
class Graph:
    """One query's candidates and the symmetric relation of neighbours. Here all are neighbours, so
    that any set holds together.

    names: of the candidates, sorted.
    """

    names: tuple[str, ...]

    def around(self, name: str) -> tuple[str, ...]:
        """The silo and its neighbours, sorted by name. They hold shares of its secrets."""
        return self.names

    def holds_together(self, chosen: Collection[str]) -> bool:
        """Whether masks among these silos hide all but their sum, whichever silos collude."""
        return True

    def witnesses(self, delivered: set[str], chosen: set[str]) -> set[str]:
        """The silos that sign the chosen set and reveal shares: all that have delivered.

        Without receipts it would have to be the chosen silos only: the mask keys of the others are
        revealed, and open their masks with every silo that was told another list of sharers
        (`threat_model`).
        """
        return delivered


@dataclass(frozen=True)
class Complete:
    """The part of the graph that is fixed before a query: all candidates are neighbours (Bonawitz
    et al. 2017).

    receipts: whether each silo signs, with its message, for whom it has masked, and witnesses sign
        a set only after they have seen the receipts of all its silos.
    shares: how many shares reveal a secret. A silo refuses a neighbourhood with fewer silos.
    """

    receipts: ClassVar[bool] = True
    shares: int

    def graph(self, session: bytes, names: Iterable[str]) -> Graph:
        """The graph over these candidates."""
        return Graph(tuple(sorted(names)))

    def drawn(self, signers: Collection[str]) -> list[str]:
        """The signers whose signatures a silo checks."""
        return sorted(signers)


@dataclass(frozen=True)
class Sparse:
    """The same, for neighbours on a random ring (Bell et al. 2020).

    degree: neighbours of a silo, an even number.
    shares: shares that reveal a secret, out of degree + 1.
    slack: most silos out of degree / 2 in a row that may be left out of a sum.
    checked: signatures that a silo verifies; each silo draws them from private randomness.
    """

    receipts: ClassVar[bool] = False
    degree: int
    shares: int
    slack: int
    checked: int

    def graph(self, session: bytes, names: Iterable[str]) -> Graph:
        """The graph over these candidates."""
        return RingGraph(tuple(sorted(names)), session, self.degree // 2, self.slack)

    def drawn(self, signers: Collection[str]) -> list[str]:
        """The signers whose signatures a silo checks."""
        return SystemRandom().sample(sorted(signers), min(self.checked, len(signers)))


@dataclass(frozen=True)
class RingGraph(Graph):
    """A random ring.

    session: determines the order.
    half: neighbours on either side.
    slack: as in `Sparse`.
    """

    session: bytes
    half: int
    slack: int

    @cached_property
    def order(self) -> np.ndarray:
        """Indices of names, (n,), in their order on the ring. It is uniformly random if SHA-256 and
        AES behave like random functions."""
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
        separate only if whole stretches between them are left out or collude."""
        inside = set(chosen)
        missing = np.array([name not in inside for name in self.names])[self.order]
        counts = np.concatenate([[0], np.cumsum(np.concatenate([missing, missing[: self.half]]))])
        return bool((counts[self.half :] - counts[: -self.half] <= self.slack).all())

    def witnesses(self, delivered: set[str], chosen: set[str]) -> set[str]:
        """The chosen silos only. With the others, whose masks are known, it would be easier to cut
        the ring."""
        return chosen
