"""Which users a round samples when nobody may know: the server orders ciphertexts, the silos choose a place.

For a rate a / b the server offers b ciphertexts for each user, a of them real, in a uniformly random order, and all
silos take the one at the same uniformly random place. Server and silos each know half of what decides; a user is
sampled with probability a / b, independently of other users and rounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.aggregation.masks import digest
from fedpriv.aggregation.private_weighting_integers import shared_integers
from fedpriv.errors import ConfigError

if TYPE_CHECKING:
    from fedpriv.algorithms.base import Plan

MOST_OPTIONS = 100


@dataclass(frozen=True)
class Options:
    """real (a) of all (b) ciphertexts for a user hold the inverse, the others zero."""

    real: int
    all: int

    @property
    def hides(self) -> bool:
        """Whether there is anything to hide."""
        return self.real < self.all


def as_options(rate: float) -> Options:
    """The fraction that `rate` is. Raises ConfigError unless one with a denominator up to `MOST_OPTIONS` is."""
    fraction = Fraction(rate).limit_denominator(MOST_OPTIONS)
    if float(fraction) != rate:
        allowed = f"with aggregation.oblivious=true a fraction a / b with b up to {MOST_OPTIONS}, such as 0.25 or 0.3"
        raise ConfigError("algo.user_rate", rate, allowed)
    return Options(fraction.numerator, fraction.denominator)


def orders(options: Options, users: int, plan: Plan) -> np.ndarray:
    """The server's half: (users, all) bool, `real` of every row true."""
    drawn = plan.streams.secret("oblivious order", plan.round).random(users * options.all)
    return np.argsort(drawn.reshape(users, options.all), axis=1) < options.real


def choices(options: Options, users: int, plan: Plan, seed: bytes) -> list[int]:
    """The silos' half: a place 0..all-1 for each user, the same in every silo, from the seed that they share. A seeded
    simulation draws it from its own stream, so that the sample repeats."""
    if plan.streams.system:
        return shared_integers(options.all, users, seed, digest("private weighting choice", plan.round))
    return plan.streams.generator("oblivious choice", plan.round).integers(0, options.all, users).tolist()
