"""The binomial mechanism of the shuffle model: contributions are whole levels, noise consists of
bits of which only the number of ones is known.

`fedpriv.encoding.levels` has the protocol P_vec, `fedpriv.accountants.shifted_binomial` its cost.
The noise has N bits a coordinate, spread evenly over the silos that add some.

Privacy: of one contribution, against an observer that sees sums alone. `event` takes the
sensitivity of the sum, with `rounding` in it, under the stated adjacency: 1 where a contribution is
replaced by none (the zero vector), 2 by any other. Two such sums are one random function of two
Gaussians (`shifted_binomial`). Every divergence between them is at most the Gaussians', so bounds
for sampled Gaussians by such divergences hold for sampled contributions too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.accountants.shifted_binomial import VARIANCE, gaussian_gap, least_trials
from fedpriv.encoding.base import LEAST_STEPS
from fedpriv.encoding.levels import Levels
from fedpriv.errors import require
from fedpriv.mechanisms.base import Mechanism, check_clip_and_noise
from fedpriv.mechanisms.binomial_sampling import binomial

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from fedpriv.encoding.base import Encoding
    from fedpriv.mechanisms.discrete_sampling import Generator

TAIL = 16.0
"""Standard deviations that bound a share when ranges are chosen."""
USE = "with aggregation=shuffle alone: it adds ones to counts"


@dataclass(frozen=True)
class Binomial(Mechanism):
    """Clip each contribution to L2 norm `clip`, round it to `levels` steps, add centred binomial
    noise.

    clip: bound on a contribution's L2 norm.
    noise_multiplier: standard deviation of the whole noise of the silos that add some, over clip.
    levels: g of P_vec, even. More levels are closer to a Gaussian of this deviation, and make a
        longer bit list.
    silent: fraction of the silos that may add no noise; the others add more instead.
    """

    clip: float = field()
    noise_multiplier: float = field()
    levels: int = 4096
    silent: float = 0.0

    def __post_init__(self) -> None:
        check_clip_and_noise(self.clip, self.noise_multiplier)
        fraction = "a fraction from 0 to less than 1"
        require(0 <= self.silent < 1, "mechanism.silent", self.silent, fraction)
        even = self.levels >= 2 and self.levels % 2 == 0
        require(even, "mechanism.levels", self.levels, "an even number, 2 or more")

    def counting(self) -> Binomial:
        return self

    def count_encoding(self, n_summed: int) -> Levels:
        return Levels(self.levels, self.clip, self.share_trials(n_summed), n_summed)

    def with_gaussian_cost(
        self, noise_multiplier: float, size: int, *, sensitivity: float = 2.0, shares: float = 1.0
    ) -> Binomial:
        left = self._unknown(shares)
        allowed = f"less than {shares:.3g}, the part of the noise that hides"
        require(left > 0, "mechanism.silent", self.silent, allowed)
        length = self._length(sensitivity) + math.sqrt(size)
        trials = least_trials(1 / noise_multiplier, length) / left
        return self.with_bits(self.levels, math.ceil(trials * (1 + 1e-12)))

    def with_bits(self, levels: int, bits: int) -> Binomial:
        noise_multiplier = math.sqrt(bits * VARIANCE) * 2 / levels
        return replace(self, levels=levels, noise_multiplier=noise_multiplier)

    def _unknown(self, shares: float) -> float:
        """The part of the noise that is certain to remain for an observer that does not know
        `shares` of it. The silent silos may be among these."""
        return max(shares - self.silent, 0.0) / (1 - self.silent)

    def _length(self, sensitivity: float) -> float:
        return sensitivity * self.levels / 2

    @property
    def trials(self) -> int:
        """N, noise bits of a coordinate over all silos, before they are rounded up to whole
        fours a silo."""
        return math.ceil(self._length(self.noise_multiplier) ** 2 / VARIANCE * (1 - 1e-12))

    def share_trials(self, shares: int) -> int:
        """Noise bits of one silo out of `shares`: a multiple of four."""
        noisy = shares - math.floor(self.silent * shares * (1 + 1e-12))
        return 4 * -(-self.trials // (4 * noisy))

    def encoding(self, n_summed: int, bound: float, *, real: bool = False) -> Encoding | None:
        raise self.refused(USE)

    def check_encoding(
        self,
        shares: int,
        encoding: Encoding | None,
        sensitivity: float = 1.0,
        *,
        least: int = LEAST_STEPS,
    ) -> None:
        if encoding != self.count_encoding(shares):
            raise self.refused(USE)
        if sensitivity != 1.0:
            raise self.refused("another where noise is made for other sensitivities")

    def assumptions(self, encoding: Encoding | None, *, real: bool) -> tuple[str, ...]:
        source = "of the operating system's bits" if real else "drawn by numpy"
        silent = f"at most {self.silent:g} of the silos add no noise"
        return f"binomial noise {source}", silent if self.silent else "every silo adds its noise"

    def noise_bound(self, shares: int, sensitivity: float = 1.0) -> float:
        return TAIL * math.sqrt(self.share_trials(shares) * VARIANCE) * 2 * self.clip / self.levels

    def noise_share(
        self,
        size: int,
        shares: int,
        rng: Generator,
        *,
        sensitivity: float = 1.0,
        encoding: Encoding | None = None,
    ) -> np.ndarray:
        self.check_encoding(shares, encoding, sensitivity)
        trials = self.share_trials(shares)
        return (binomial(trials, size, rng) - trials // 4) * self.count_encoding(shares).unit

    def event(self, *, sensitivity: float = 1.0, shares: float = 1.0) -> DpEvent:
        from dp_accounting import GaussianDpEvent, NonPrivateDpEvent

        gap = gaussian_gap(
            math.floor(self.trials * self._unknown(shares)), self._length(sensitivity)
        )
        return GaussianDpEvent(1 / gap) if 0 < gap < math.inf else NonPrivateDpEvent()
