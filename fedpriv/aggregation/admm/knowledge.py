"""What some colluding peers know after an aggregation, by exact linear algebra.

Every message of an iteration, and every partial sum, is a public linear function of the peers'
vectors w and their first dual variables lambda^0 (see `penalty`), the same in every coordinate.
What is determined is what lies in the span of the rows that the colluders have; it is found by
elimination modulo a prime, so that no rounding can blur it. A vector that is not determined may
still be known closely: see `Penalty.widths`.

A vector that is in several aggregations (because one was aborted and repeated, which the protocol
never does) is one unknown; each aggregation has dual variables of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations
from typing import NamedTuple

from fedpriv.aggregation.admm.penalty import Penalty
from fedpriv.topology.groups import Partitions

PRIME = 2**61 - 1
"""A row is taken for dependent though it is not with probability about 1e-18."""

Column = tuple[str, Hashable, str]
"""An unknown: "vector" or "dual", of which model or aggregation, and of which peer."""


class Observation(NamedTuple):
    """The weighted sum of some peers' messages in one iteration.

    shares: each peer's weight; one peer with weight 1 is its message itself.
    model: names the vectors that are aggregated; equal names mean equal vectors.
    """

    aggregation: Hashable
    model: Hashable
    iteration: int
    shares: Mapping[str, Fraction]


@dataclass
class Knowledge:
    """A span of rows over unknowns, in reduced echelon form modulo `PRIME`."""

    rows: dict[Column, dict[Column, int]] = field(default_factory=dict)

    def add(self, row: Mapping[Column, int]) -> None:
        """Learn a linear function of the unknowns."""
        rest = {column: value % PRIME for column, value in row.items() if value % PRIME}
        for pivot in [column for column in rest if column in self.rows]:
            rest = _minus(rest, self.rows[pivot], rest.get(pivot, 0))
        if not rest:
            return
        pivot, value = next(iter(rest.items()))
        inverse = pow(value, -1, PRIME)
        rest = {column: number * inverse % PRIME for column, number in rest.items()}
        for column, other in self.rows.items():
            if pivot in other:
                self.rows[column] = _minus(other, rest, other[pivot])
        self.rows[pivot] = rest

    def determines(self, column: Column) -> bool:
        """Whether the unknown has one value alone."""
        return self.rows.get(column) == {column: 1}


def _minus(row: dict[Column, int], other: Mapping[Column, int], factor: int) -> dict[Column, int]:
    left = dict(row)
    for column, value in other.items():
        left[column] = (left.get(column, 0) - factor * value) % PRIME
    return {column: value for column, value in left.items() if value}


def residue(number: Fraction) -> int:
    """A rational number modulo `PRIME`."""
    return number.numerator * pow(number.denominator, -1, PRIME) % PRIME


def row_of(seen: Observation, penalty: Penalty) -> dict[Column, Fraction]:
    """The unknowns' coefficients in an observation."""
    a, b = penalty.coefficients(seen.iteration)[-1]
    row: dict[Column, Fraction] = {}
    for peer, share in seen.shares.items():
        row["vector", seen.model, peer] = share * a
        row["dual", seen.aggregation, peer] = share * b
    return row


class Coalition:
    """What colluding peers have gathered.

    penalty: of all aggregations.
    """

    def __init__(self, colluders: Collection[str], penalty: Penalty) -> None:
        self.colluders = frozenset(colluders)
        self.penalty = penalty
        self.known = Knowledge()
        self.others: dict[tuple[Hashable, str], None] = {}

    def sees(self, seen: Observation) -> None:
        """Add an observation. Of the colluders' own part everything is known."""
        shares = {peer: share for peer, share in seen.shares.items() if peer not in self.colluders}
        self.others |= dict.fromkeys((seen.model, peer) for peer in shares)
        row = row_of(seen._replace(shares=shares), self.penalty)
        self.known.add({column: residue(value) for column, value in row.items()})

    def determined(self) -> frozenset[tuple[Hashable, str]]:
        """Which vectors of others, by (model, peer), have one value alone."""
        return frozenset(
            (m, peer) for m, peer in self.others if self.known.determines(("vector", m, peer))
        )


def planned(
    partitions: Partitions, iteration: int, colluders: Collection[int], *, masked: bool = False
) -> Iterable[Observation]:
    """What an iteration without faults shows to colluding peers, by number, all weights being
    equal: the messages in their groups unless they are masked, and every group's partial sum."""
    n = sum(map(len, partitions[0]))
    for group in partitions[(iteration - 1) % len(partitions)]:
        if not masked and not set(colluders).isdisjoint(group):
            for peer in group:
                yield Observation(0, 0, iteration, {str(peer): Fraction(1)})
        yield Observation(0, 0, iteration, {str(peer): Fraction(1, n) for peer in group})


def first_leak(
    partitions: Partitions,
    penalty: Penalty,
    iterations: int,
    *,
    colluders: int = 1,
    masked: bool = False,
) -> int | None:
    """The first of so many iterations after which some `colluders` peers determine another's
    vector, if one is."""
    n = sum(map(len, partitions[0]))
    first = iterations + 1
    for chosen in combinations(range(n), colluders):
        coalition = Coalition([str(peer) for peer in chosen], penalty)
        for iteration in range(1, first):
            for seen in planned(partitions, iteration, chosen, masked=masked):
                coalition.sees(seen)
            if coalition.determined():
                first = iteration
                break
    return first if first <= iterations else None
