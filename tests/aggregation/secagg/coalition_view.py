"""What a server, and silos that collude with it, can work out from the messages of one secure sum.

A message is the silo's input plus pads, each pad times 1 or -1. A pad whose secret the coalition
does not know is a free variable: pads are pseudorandom, so to the coalition they are independent
and uniform in the ring. Then its view is a linear system, and all that it tells about the honest
inputs is the value of those combinations of messages in which every unknown pad cancels. They are
found in the ring of integers modulo 2^bits itself: of any two of its elements one divides the
other, so Gaussian elimination works as in a field when the pivot divides all others in its column.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np

Functional = dict[str, int]
"""A combination of silos' inputs: their coefficients, modulo 2^bits."""


@dataclass
class ObservedRelease:
    """inputs, messages: by silo, (d,) ring elements each, of those who delivered. pads: every mask
    there is, by the one silo or the two that know it."""

    bits: int
    inputs: dict[str, np.ndarray]
    messages: dict[str, np.ndarray]
    pads: dict[frozenset[str], np.ndarray]

    def __post_init__(self) -> None:
        self.found = {name: self._pads_of(name) for name in self.messages}

    def _pads_of(self, name: str) -> dict[frozenset[str], int]:
        """Which pads stand between the silo's input and its message, with their signs; read off the
        numbers."""
        own = [pad for pad in self.pads if name in pad]
        signs, vectors = _signs(len(own)), np.array([self.pads[pad] for pad in own])
        difference = self.messages[name] - self.inputs[name]
        (match,) = np.flatnonzero((signs.astype(vectors.dtype) @ vectors == difference).all(axis=1))
        return {pad: sign for pad, sign in zip(own, signs[match].tolist()) if sign}

    def learned(self, colluding: set[str], known: set[frozenset[str]]) -> list[Functional]:
        """Combinations of honest silos' inputs that a coalition can compute which knows some of the
        pads; all others are combinations of these."""
        honest = sorted(set(self.messages) - colluding)
        hidden = sorted(set(self.pads) - known, key=sorted)
        rows = [
            [self.found[u].get(pad, 0) for pad in hidden] + [int(u == v) for v in honest]
            for u in honest
        ]
        return [
            dict(zip(honest, row))
            for row in eliminated(rows, len(hidden), 2**self.bits)
            if any(row)
        ]


@lru_cache
def _signs(count: int) -> np.ndarray:
    return np.array([*product((0, 1, -1), repeat=count)])


def eliminated(rows: list[list[int]], columns: int, ring: int) -> list[list[int]]:
    """Generators of all combinations of the rows that are zero in the first columns, without these
    columns; `ring` is a power of two."""
    left = [np.array(row, dtype=object) % ring for row in rows]
    for column in range(columns):
        left.sort(key=lambda row: _power_of_two(row[column], ring))
        if not left or not left[0][column]:
            continue
        pivot, *left = left
        power = _power_of_two(pivot[column], ring)
        inverse = pow(pivot[column] // power, -1, ring)
        left = [(row - row[column] // power * inverse * pivot) % ring for row in left]
        left.append(
            pivot * (ring // power) % ring
        )  # the pivot row's own multiples that are zero here
    return [row[columns:].tolist() for row in left]


def _power_of_two(number: int, ring: int) -> int:
    """The largest one that divides the number."""
    return number & -number if number else ring


def is_multiple_of_sum(functional: Functional, members: set[str]) -> bool:
    """Whether it is the sum of the members' inputs times some number."""
    inside = {factor for name, factor in functional.items() if name in members}
    outside = {factor for name, factor in functional.items() if name not in members}
    return len(inside) == 1 and outside <= {0}
