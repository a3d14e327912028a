"""The binomial mechanism of the shuffle model: whole levels, and noise bits of which only the ones
are counted.

See `fedpriv.encoding.levels` for the protocol P_vec and `fedpriv.accountants.shifted_binomial` for
what it costs. The noise has N bits a coordinate, spread evenly over the silos that add some.

Privacy: of one contribution, of whoever sees sums alone; `event` takes the sensitivity of the sum,
with `rounding` in it, under the stated adjacency: 1 where a contribution is replaced by none (the
zero vector), 2 by any other. Two such sums are one random function of two Gaussians
(`shifted_binomial`): every divergence between them is at most the Gaussians', and so what is known
of sampled Gaussians by such divergences holds for sampled contributions too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.accountants.shifted_binomial import VARIANCE, gaussian_gap, least_trials
from fedpriv.encoding.base import LEAST_STEPS
from fedpriv.encoding.levels import Levels
from fedpriv.errors import ConfigError, require
from fedpriv.mechanisms.base import Mechanism
from fedpriv.mechanisms.binomial_sampling import binomial
from fedpriv.mechanisms.clipping import clipped_rows

if TYPE_CHECKING:
    import torch
    from dp_accounting import DpEvent

    from fedpriv.encoding.base import Encoding
    from fedpriv.util.streams import SystemGenerator

TAIL = 16.0
"""Standard deviations beyond which no share is expected."""
USE = "with aggregation=shuffle alone: it adds ones to counts"


@dataclass(frozen=True)
class Binomial(Mechanism):
    """Clip each contribution to L2 norm `clip`, round it to `levels` steps, add centred binomial
    noise.

    noise_multiplier: standard deviation of the whole noise of those silos that add some, over clip.
    levels: g of P_vec, even; the more, the closer to a Gaussian of this deviation, and the longer a
        bit list would be.
    silent: fraction of the silos that may add no noise; the others add so much more.
    """

    clip: float = field()
    noise_multiplier: float = field()
    levels: int = 4096
    silent: float = 0.0

    def __post_init__(self) -> None:
        require(0 < self.clip < math.inf, "algo.clip", self.clip, "a positive finite bound")
        ok = 0 <= self.noise_multiplier < math.inf
        require(
            ok, "algo.noise_multiplier", self.noise_multiplier, "zero or a positive finite number"
        )
        require(
            0 <= self.silent < 1,
            "mechanism.silent",
            self.silent,
            "a fraction from 0 to less than 1",
        )
        even = self.levels >= 2 and self.levels % 2 == 0
        require(even, "mechanism.levels", self.levels, "an even number, 2 or more")

    def with_noise(self, noise_multiplier: float) -> Binomial:
        return replace(self, noise_multiplier=noise_multiplier)

    def hiding(
        self, noise_multiplier: float, size: int, *, sensitivity: float = 2.0, shares: float = 1.0
    ) -> Binomial:
        left = self._unknown(shares)
        require(
            left > 0,
            "mechanism.silent",
            self.silent,
            f"less than {shares:.3g}, the part of the noise that hides",
        )
        length = self._length(sensitivity) + 2 * math.sqrt(size)
        return self.of_bits(
            self.levels, math.ceil(least_trials(1 / noise_multiplier, length) / left * (1 + 1e-12))
        )

    def of_bits(self, levels: int, bits: int) -> Binomial:
        return replace(
            self, levels=levels, noise_multiplier=math.sqrt(bits * VARIANCE) * 2 / levels
        )

    def _unknown(self, shares: float) -> float:
        """The part of the noise that is certain to be there for whoever does not know `shares` of
        it: it cannot know which silos are silent, and may have to do without the noise of all of
        them."""
        return max(shares - self.silent, 0.0) / (1 - self.silent)

    def _length(self, sensitivity: float) -> float:
        return sensitivity * self.levels / 2

    @property
    def trials(self) -> int:
        """N, noise bits of a coordinate over all silos, before they are shared out in whole
        fours.
        """
        return math.ceil(self._length(self.noise_multiplier) ** 2 / VARIANCE * (1 - 1e-12))

    def share_trials(self, shares: int) -> int:
        """Noise bits of one silo out of `shares`: a multiple of four."""
        noisy = shares - math.floor(self.silent * shares * (1 + 1e-12))
        return 4 * -(-self.trials // (4 * noisy))

    def bound(self, vectors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return clipped_rows(vectors, self.clip)

    def encoding(self, n_summed: int, bound: float) -> Encoding | None:
        raise ConfigError("mechanism", "binomial", USE)

    def count_encoding(self, n_summed: int) -> Levels:
        return Levels(self.levels, self.clip, self.share_trials(n_summed), n_summed)

    def check_encoding(
        self,
        shares: int,
        encoding: Encoding | None,
        sensitivity: float = 1.0,
        *,
        least: int = LEAST_STEPS,
    ) -> None:
        self._own(encoding, shares)
        require(
            sensitivity == 1.0,
            "mechanism",
            "binomial",
            "another where noise is made for other sensitivities",
        )

    def check_inside_training(self) -> None:
        raise ConfigError(
            "mechanism", "binomial", "gaussian: noise on gradients in training is real-valued"
        )

    def assumptions(self, encoding: Encoding | None, *, real: bool) -> tuple[str, ...]:
        drawn = (
            "binomial noise of the operating system's bits"
            if real
            else "binomial noise drawn by numpy"
        )
        quiet = (
            f"at most {self.silent:g} of the silos add no noise"
            if self.silent
            else "every silo adds its noise"
        )
        return (drawn, quiet)

    def noise_bound(self, shares: int, sensitivity: float = 1.0) -> float:
        return TAIL * math.sqrt(self.share_trials(shares) * VARIANCE) * 2 * self.clip / self.levels

    def noise_share(
        self,
        size: int,
        shares: int,
        rng: np.random.Generator | SystemGenerator,
        *,
        sensitivity: float = 1.0,
        encoding: Encoding | None = None,
    ) -> np.ndarray:
        self.check_encoding(shares, encoding, sensitivity)
        trials = self.share_trials(shares)
        return (binomial(trials, size, rng) - trials // 4) * self.count_encoding(shares).unit

    def noised(
        self,
        total: np.ndarray,
        rng: np.random.Generator | SystemGenerator,
        *,
        sensitivity: float = 1.0,
        divisor: int = 1,
    ) -> tuple[np.ndarray, np.ndarray | float]:
        raise ConfigError("mechanism", "binomial", USE)

    def event(self, *, sensitivity: float = 1.0, shares: float = 1.0) -> DpEvent:
        from dp_accounting import GaussianDpEvent, NonPrivateDpEvent

        gap = gaussian_gap(
            math.floor(self.trials * self._unknown(shares)), self._length(sensitivity)
        )
        return GaussianDpEvent(1 / gap) if 0 < gap < math.inf else NonPrivateDpEvent()

    def _own(self, encoding: Encoding | None, shares: int) -> None:
        require(encoding == self.count_encoding(shares), "mechanism", "binomial", USE)
