"""The penalty rho of each iteration, and what it does to messages.

With public penalties a peer's message is y^i = a_i w + b_i lambda^0 + (a multiple of public z's),
for its vector w and its first dual variable lambda^0, uniform on [0, 1) in every coordinate. The
recursion, from Algorithm 1 of SecureD-FL with lambda^i = rho_i (y^i - z^i):

    a_1 = 2 / (2 + rho_1)                         b_1 = a_1 / rho_1
    a_i = c_i (1 + a_(i-1) rho_(i-1) / rho_i)     b_i = c_i b_(i-1) rho_(i-1) / rho_i,     c_i = 2 /
    (2 + rho_i)
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from fedpriv.errors import require, require_positive


@dataclass(frozen=True)
class Penalty:
    """A schedule of penalties.

    rho: penalty of the first iterations.
    decay: factor on the penalty after every `period` iterations.
    period: iterations between two such changes.
    """

    rho: float
    decay: float = 1.0
    period: int = 1

    def __post_init__(self) -> None:
        require_positive("aggregation", self, "rho", "decay")
        require(
            self.period >= 1, "aggregation.period", self.period, "a positive number of iterations"
        )

    def at(self, iteration: int) -> float:
        """rho in an iteration, counted from 1."""
        return self.rho * self.decay ** ((iteration - 1) // self.period)

    def coefficients(self, iterations: int) -> tuple[tuple[Fraction, Fraction], ...]:
        """(a_i, b_i) of each iteration, exactly for the penalties as floating-point numbers."""
        return _coefficients(self, iterations)

    def widths(self, iterations: int) -> list[float]:
        """For each iteration, the width of the interval that its message leaves for a coordinate of
        w: |b_i / a_i|. It does not depend on what was known about w before. The first width is 1 /
        rho; later ones are narrower."""
        return [float(abs(b / a)) for a, b in self.coefficients(iterations)]


@lru_cache(maxsize=512)
def _coefficients(penalty: Penalty, iterations: int) -> tuple[tuple[Fraction, Fraction], ...]:
    a = Fraction(0)
    b = Fraction(0)
    last = Fraction(0)
    found = []
    for iteration in range(1, iterations + 1):
        rho = Fraction(penalty.at(iteration))
        c = 2 / (2 + rho)
        a, b = (c * (1 + a * last / rho), c * b * last / rho) if iteration > 1 else (c, c / rho)
        last = rho
        found.append((a, b))
    return tuple(found)


PRESETS: dict[str, tuple[int, Penalty]] = {
    "tuned_1": (1, Penalty(3.0)),
    "tuned_2": (2, Penalty(3.0, 3e-4, 1)),
    "tuned_3": (3, Penalty(7.0, 0.01, 1)),
    "tuned_4": (4, Penalty(70.0, 7e-6, 2)),
    "tuned_5": (5, Penalty(50.0, 7e-6, 3)),
    "tuned_6": (6, Penalty(100.0, 7e-6, 3)),
    "tuned_7": (7, Penalty(100.0, 7e-6, 4)),
    "script_4": (4, Penalty(0.005, 0.9, 2)),
    "script_7": (7, Penalty(0.1, 0.9, 4)),
}
"""Iterations and penalties of SecureD-FL's authors: tuned for their error curve, and from their
scripts of runs."""
