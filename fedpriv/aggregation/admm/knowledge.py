"""What colluding peers know after an aggregation, by exact linear algebra.

Every message of an iteration, and every partial sum, is a public linear function of the peers'
vectors w and their first dual variables lambda^0 (see `penalty`), the same in every coordinate.
The colluders determine everything in the span of the rows that they have. Elimination modulo a
prime finds it without rounding. A vector that is not determined may still be known closely: see
`Penalty.widths`.

A vector in several aggregations is one unknown. (An aborted aggregation could be repeated; the
protocol never does so.) Each aggregation has its own dual variables.
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
"""With probability about 1e-18 an independent row is taken for dependent."""

Column = tuple[str, Hashable, str]
"""An unknown: "vector" or "dual"; the model or aggregation; the peer."""


class Observation(NamedTuple):
    """The weighted sum of some peers' messages in one iteration.

    aggregation: names the aggregation.
    model: names its vectors; equal names mean equal vectors.
    iteration: from 1.
    shares: weight by peer; one peer with weight 1 is its message itself.
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
        """Whether the unknown has only one possible value."""
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
    """The knowledge of colluding peers.

    colluders: their names.
    penalty: rho of each iteration, the same in all aggregations.
    """

    def __init__(self, colluders: Collection[str], penalty: Penalty) -> None:
        self.colluders = frozenset(colluders)
        self.penalty = penalty
        self.known = Knowledge()
        self.others: dict[tuple[Hashable, str], None] = {}

    def sees(self, seen: Observation) -> None:
        """Add an observation. The colluders know their own part of it."""
        shares = {peer: share for peer, share in seen.shares.items() if peer not in self.colluders}
        self.others |= dict.fromkeys((seen.model, peer) for peer in shares)
        row = row_of(seen._replace(shares=shares), self.penalty)
        self.known.add({column: residue(value) for column, value in row.items()})

    def determined(self) -> frozenset[tuple[Hashable, str]]:
        """The determined vectors of other peers, by (model, peer)."""
        return frozenset(
            (m, peer) for m, peer in self.others if self.known.determines(("vector", m, peer))
        )


def faultless(
    partitions: Partitions, iteration: int, colluders: Collection[int], *, masked: bool
) -> Iterable[Observation]:
    """What colluding peers, given by number, see of an iteration without faults and with equal
    weights: the unmasked messages in their groups, and every group's partial sum."""
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
    """The first iteration after which some `colluders` peers determine another peer's vector; None
    if there is none up to `iterations`."""
    n = sum(map(len, partitions[0]))
    first = iterations + 1
    for chosen in combinations(range(n), colluders):
        coalition = Coalition([str(peer) for peer in chosen], penalty)
        for iteration in range(1, first):
            for seen in faultless(partitions, iteration, chosen, masked=masked):
                coalition.sees(seen)
            if coalition.determined():
                first = iteration
                break
    return first if first <= iterations else None
