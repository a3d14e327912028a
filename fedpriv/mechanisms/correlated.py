"""Gaussian noise that is correlated over rounds: errors of one round are taken back in later ones.

Each silo repeats its own earlier sums, unnoised, in its message, with the weights of a strategy
(`fedpriv.mechanisms.strategy`). It adds a fresh noise share. The party that learned the sums undoes
the strategy. So signals are mixed, not noises: every message has its full, independent noise, also
where silos drop out, and no past noise share has to be remembered.

A silo remembers sums without noise: see `fedpriv.rounds.mixing`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fedpriv.errors import require
from fedpriv.mechanisms.base import TrainingNoise
from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.mechanisms.strategy import Strategy, optimised, square_root

STRATEGIES = ("optimised", "square_root")
MOST_BANDS = 4096


@dataclass(frozen=True)
class Correlated(Gaussian):
    """Clip as `Gaussian` does; messages repeat earlier sums.

    clip: C, bound on a contribution's L2 norm.
    noise_multiplier: standard deviation of the noise of a round, over the distance that one round's
        bounded sum moves all messages together. At equal values, a user who takes part once, or
        whose rounds lie at least `bands` apart, has the epsilon of independent noise.
    strategy: "optimised" for prefix sums over all rounds, or "square_root", cut to the bands.
    bands: b, number of rounds whose messages contain one round's sum.
    rounds: T, number of rounds that the strategy is optimised for.
    """

    clip: float = field()
    noise_multiplier: float = field()
    strategy: str = field()
    bands: int = field()
    rounds: int = field()

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = ", ".join(STRATEGIES)
        require(self.strategy in STRATEGIES, "mechanism.strategy", self.strategy, allowed)
        allowed = (
            f"from 2 to {MOST_BANDS}; mechanism=correlated takes algo.cycle unless it is set, as "
            "mechanism.bands=8; it gains most where users take turns (algo.cycle)"
        )
        require(2 <= self.bands <= MOST_BANDS, "mechanism.bands", self.bands, allowed)
        allowed = "at least mechanism.bands"
        require(self.rounds >= self.bands, "mechanism.rounds", self.rounds, allowed)

    @property
    def mixing(self) -> Strategy:
        if self.strategy == "square_root":
            return square_root(self.bands)
        return optimised(self.bands, self.rounds)

    def training_noise(self, sensitivity: float = 1.0) -> TrainingNoise:
        raise self.refused("gaussian: only sums of rounds have correlated noise")
