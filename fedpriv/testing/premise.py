"""An assumption of a certificate as a test of a hypothesis: what was measured, how likely that is
if the assumption holds, and the smallest error that the test would have found."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.stats import binom, chi2

LEVEL = 1e-4
"""Probability that a check of code that is right raises an alarm, over all of its tests."""
FOUND = 0.9
"""Probability with which a test finds an error of the stated size."""

Power = Callable[[float], float]
"""From the probability of a false alarm to the smallest error that is found with `FOUND`."""


@dataclass(frozen=True)
class Premise:
    """One assumption of a certificate, measured.

    observer: the observer; "" for an assumption of every observer's certificate.
    name: what is measured, and where.
    measured: the measured value.
    assumed: the value that the certificate assumes.
    chance: probability of a measurement as bad as this one if the assumption holds.
    kind: what an error is a share of: "noise", "bound" or "rate"; "" if errors have no size.
    power: the smallest error that it finds.
    tests: number of measurements that share `LEVEL`.
    """

    observer: str
    name: str
    measured: float
    assumed: float
    chance: float
    kind: str = ""
    power: Power = field(default=lambda level: math.inf, compare=False, repr=False)
    tests: int = 1

    @property
    def alarm(self) -> bool:
        """Whether the measurement refutes the assumption."""
        return self.chance * self.tests < LEVEL

    @property
    def smallest(self) -> float:
        """The smallest error, as a share of what is assumed, that is found with `FOUND`."""
        return self.power(LEVEL / self.tests)

    def __str__(self) -> str:
        return (
            f"{self.name}: measured {self.measured:.4g}, the certificate assumes {self.assumed:.4g}"
        )


def sharing_level(found: Iterable[Premise]) -> list[Premise]:
    """The premises as tests that share one probability of a false alarm."""
    found = list(found)
    return [replace(premise, tests=len(found)) for premise in found]


def power_lines(found: Iterable[Premise]) -> list[str]:
    """For each kind of error, the smallest that would have been found, and by what."""
    sized = sorted((one for one in found if one.smallest < math.inf), key=lambda one: one.smallest)
    best = {one.kind: one for one in reversed(sized) if one.kind}
    return [
        f"smallest error of {kind} that would have been found: {one.smallest:.2%} ({one.name})"
        for kind, one in sorted(best.items())
    ]


def worst_of(found: list[Premise]) -> Premise:
    """The least likely of some premises, as a test that has looked at all of them."""
    worst, number = min(found, key=lambda one: one.chance), len(found)
    chance = min(1.0, number * worst.chance)
    return replace(worst, chance=chance, power=lambda level: worst.power(level / number))


def too_little(
    observer: str, name: str, sums: np.ndarray, sizes: np.ndarray, places: list[str]
) -> Premise:
    """Whether sums (k,) of squares of `sizes` (k,) unit Gaussians are as large as they should be,
    in the place where they are least."""
    chances = np.asarray(chi2.cdf(sums, sizes))
    worst = int(np.lexsort((sums / sizes, chances))[0])
    number, size = len(sums), float(sizes[worst])

    def smallest(level: float) -> float:
        return 1 - math.sqrt(chi2.ppf(level / number, size) / chi2.ppf(FOUND, size))

    measured = math.sqrt(sums[worst] / size)
    chance = min(1.0, number * float(chances[worst]))
    return Premise(observer, name + places[worst], measured, 1.0, chance, "noise", smallest)


def too_often(observer: str, name: str, hits: int, draws: int, rate: float) -> Premise:
    """Whether hits are more frequent than a rate allows."""

    def smallest(level: float) -> float:
        least = float(binom.isf(level, draws, rate)) + 1
        above = np.linspace(rate, 1.0, 2000)
        found = above[binom.sf(least - 1, draws, above) >= FOUND]
        return float(found[0]) / rate - 1 if len(found) else math.inf

    chance = float(binom.sf(hits - 1, draws, rate)) if hits <= draws else 0.0
    return Premise(observer, name, hits / draws, rate, chance, "rate", smallest)


def too_long(name: str, ratio: float, rounding: float) -> Premise:
    """Whether a length is at most its bound, but for rounding.

    ratio: length over bound. NaN is too long.
    rounding: share of a length that counts as rounding.
    """

    def smallest(level: float) -> float:
        return (1 + rounding) / ratio - 1 if ratio else math.inf

    return Premise("", name, ratio, 1.0, 1.0 if ratio <= 1 + rounding else 0.0, "bounds", smallest)
