"""Mechanisms: how one unit's contribution is bounded, and how the sum is noised.

Only this package knows a noise scale. Every party adds a share of the noise, so that no party knows
all of it. The events made here describe exactly the noise that `noise_share` draws.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, Self, cast

import numpy as np

from fedpriv.encoding.base import LEAST_STEPS
from fedpriv.errors import ConfigError, require
from fedpriv.mechanisms.discrete_sampling import Generator
from fedpriv.mechanisms.grid_noise import noised

if TYPE_CHECKING:
    import torch
    from dp_accounting import DpEvent

    from fedpriv.encoding.base import Encoding
    from fedpriv.encoding.levels import Levels
    from fedpriv.mechanisms.strategy import Strategy


@dataclass(frozen=True)
class TrainingNoise:
    """Noise on a sum of gradients.

    deviation: standard deviation of each coordinate; 0: no noise.
    """

    deviation: float

    def add(self, total: np.ndarray, rng: Generator) -> np.ndarray:
        """The noised sum (d,) float64, see `grid_noise.noised`."""
        return noised(total, self.deviation, rng) if self.deviation else total


NOT_IN_TRAINING = "gaussian: noise on gradients in training is real-valued"


class Mechanism(ABC):
    """Bounds contributions and noises their sum. Every mechanism is a frozen dataclass.

    A new mechanism has a constructor with the user's settings and these three methods:

    >>> from dataclasses import dataclass, field
    >>> from dp_accounting import GaussianDpEvent
    >>> @dataclass(frozen=True)
    ... class PlainGaussian(Mechanism):
    ...     clip: float = field()
    ...     noise_multiplier: float = field()
    ...
    ...     def noise_bound(self, shares, sensitivity=1.0):
    ...         return 16 * self.noise_multiplier * self.clip * sensitivity / math.sqrt(shares)
    ...
    ...     def noise_share(self, size, shares, rng, *, sensitivity=1.0, encoding=None):
    ...         return rng.standard_normal(size) * self.noise_bound(shares, sensitivity) / 16
    ...
    ...     def event(self, *, sensitivity=1.0, shares=1.0):
    ...         return GaussianDpEvent(self.noise_multiplier * math.sqrt(shares) / sensitivity)
    >>> mechanism = PlainGaussian(clip=1.0, noise_multiplier=2.0)
    >>> shares = [mechanism.noise_share(10_000, 4, np.random.default_rng(i)) for i in range(4)]
    >>> print(f"{sum(shares).std():.1f}")
    2.0
    >>> mechanism.event(sensitivity=2.0)
    GaussianDpEvent(noise_multiplier=1.0)
    """

    clip: float = math.inf
    """Bound on one contribution's length; infinite: contributions are not bounded."""
    norm: int = 2
    """Which length is bounded: 2, the L2 norm, or 1, the L1 norm."""
    noise_multiplier: float = 0.0
    """Standard deviation of the whole noise, relative to the sensitivity."""

    marks: int = 0
    """Number of coordinates that a bounded contribution has after those of its vector. They say
    whether the vector was within the bound; 0: the bound does not adapt to that."""

    @property
    def limit(self) -> float:
        """The bound on a vector in this round; `clip`, unless the bound adapts."""
        return self.clip

    @property
    def limits(self) -> tuple[float, float]:
        """The smallest and the largest bound of a round."""
        return self.clip, self.clip

    def at(self, limit: float) -> Mechanism:
        """The mechanism of a round with this bound."""
        return self

    def read(self, total: np.ndarray, units: float, round: int) -> tuple[np.ndarray, float]:
        """The sum (d,) of clipped vectors in a noised sum (d + marks,), and the next round's bound.

        units: public estimate of the total weight of the contributions.
        """
        return total, self.clip

    @property
    def clips(self) -> bool:
        """Whether contributions are bounded."""
        return self.clip < math.inf

    @property
    def mixing(self) -> Strategy | None:
        """How messages repeat the sums of earlier rounds, so that noise is correlated over rounds;
        None: they do not."""
        return None

    def with_noise(self, noise_multiplier: float) -> Self:
        """The same mechanism with another noise multiplier.

        Raises ConfigError for a mechanism without noise, or when its noise cannot be set to this.
        """
        return cast(Self, replace(cast(Any, self), noise_multiplier=noise_multiplier))

    def bound(self, vectors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Bound each row of (k, d). Returns (k, d + marks) float64 rows and the (k,) norms before
        bounding."""
        return clipped_rows(vectors, self.clip, self.norm)

    def marked(self, total: torch.Tensor, within: float, beyond: float) -> torch.Tensor:
        """The sum (d + marks,) of bounded rows, of the sum (d,) of vectors within `limit`.

        within, beyond: how many of them were within it before, and how many were not.
        """
        return total

    def encoding(self, n_summed: int, bound: float, *, real: bool = False) -> Encoding | None:
        """The grid of the messages where the aggregation leaves them real; None for real-valued
        noise.

        n_summed: silos that a sum covers.
        bound: no coordinate of a message exceeds it; infinite only if `real`.
        real: the noise protects somebody, so no message may contain it in floating point.

        Raises ConfigError when no grid fits.
        """
        return None

    def counting(self) -> CountNoise:
        """This mechanism's noise on counts. Raises ConfigError where it has none."""
        raise self.refused("binomial: aggregation=shuffle counts bits")

    def training_noise(self, sensitivity: float = 1.0) -> TrainingNoise:
        """The noise on a sum of gradients inside local training. Raises ConfigError where the
        mechanism has none.

        sensitivity: as for `noise_share`.
        """
        raise self.refused(NOT_IN_TRAINING)

    def refused(self, allowed: str) -> ConfigError:
        """The error for a use that this mechanism does not support; a mechanism's module has the
        name of its configuration file."""
        return ConfigError("mechanism", type(self).__module__.rpartition(".")[2], allowed)

    def check_encoding(  # noqa: B027
        self,
        shares: int,
        encoding: Encoding | None,
        sensitivity: float = 1.0,
        *,
        least: int = LEAST_STEPS,
    ) -> None:
        """Raise ConfigError when one of `shares` noise shares spans fewer than `least` grid steps,
        or too many to be sampled."""

    def assumptions(self, encoding: Encoding | None, *, real: bool) -> tuple[str, ...]:
        """What the events assume about this mechanism's noise.

        real: the noise comes from the operating system's random numbers.
        """
        return ()

    def rounding(self, encoding: Encoding | None, size: int) -> float:
        """What rounding messages of `size` coordinates adds to the sensitivity of their sum, in
        units of the bound."""
        return encoding.shift(size) / self.clip if encoding is not None else 0.0

    def spread(self, shares: int) -> float:
        """How far a sum's noise reaches: its weighted sum over coordinates, for weights of L2 norm
        1, lies this far from 0 or nearer, with probability 0.95. Raises ConfigError where nothing
        is known.

        shares: number of noise shares in the sum.
        """
        raise self.refused("gaussian, discrete_gaussian or laplace: intervals know its noise")

    @abstractmethod
    def noise_bound(self, shares: int, sensitivity: float = 1.0) -> float:
        """A size that no coordinate of a noise share reaches; arguments as for `noise_share`."""

    @abstractmethod
    def noise_share(
        self,
        size: int,
        shares: int,
        rng: Generator,
        *,
        sensitivity: float = 1.0,
        encoding: Encoding | None = None,
    ) -> np.ndarray:
        """One party's noise, (size,) float64. `shares` independent shares add up to the whole
        noise.

        sensitivity: largest change of the sum that the noise is made for, in units of the bound on
            one contribution.
        encoding: the grid of the messages; None: they are real numbers.

        Raises ValueError for noise that protects somebody without a grid.
        """

    @abstractmethod
    def event(self, *, sensitivity: float = 1.0, shares: float = 1.0) -> DpEvent:
        """What one release costs.

        sensitivity: largest change of the sum that one unit causes, in units of the bound on one
            contribution.
        shares: fraction of the noise shares that the observer does not know.
        """


class CountNoise(Protocol):
    """Noise that consists of bits, of which a shuffler counts the ones."""

    def count_encoding(self, n_summed: int) -> Levels:
        """The levels of contributions, with the noise bits of `n_summed` silos."""

    def with_gaussian_cost(
        self, noise_multiplier: float, size: int, *, sensitivity: float = 2.0, shares: float = 1.0
    ) -> Mechanism:
        """The mechanism with the least noise whose release of `size` coordinates costs no more than
        a Gaussian of `noise_multiplier`, relative to `sensitivity`. The other arguments are those
        of `event`, without what rounding adds."""

    def with_bits(self, levels: int, bits: int) -> Mechanism:
        """The mechanism with so many levels, and noise bits a coordinate over all parties."""


LEAST = 1e-100
"""Smallest bound: the squares of vectors near it would be zero soon, and their norms with them."""


def clipped_rows(
    vectors: torch.Tensor, clip: float, norm: int = 2
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of (k, d) scaled down to length `clip` where theirs is larger; `norm` as in `Mechanism`.
    Returns (k, d) float64 rows and their (k,) lengths before."""
    import torch

    exact = vectors.to(torch.float64, copy=clip < math.inf)
    norms = torch.linalg.vector_norm(exact, norm, dim=1)
    if clip == math.inf:
        return exact, norms
    # A zero row stays zero. A row with NaN or infinity keeps them: the caller decides about it.
    scale = (clip / norms.clamp_min(clip)).unsqueeze(1)
    return exact.mul_(scale), norms  # in place: new memory costs more than the product


def check_clip_and_noise(clip: float, noise_multiplier: float) -> None:
    """Raise ConfigError for settings that no mechanism with noise has."""
    bounded = f"a finite bound of at least {LEAST:g} (mechanism=none to not clip)"
    require(LEAST <= clip < math.inf, "algo.clip", clip, bounded)
    noisy = 0 <= noise_multiplier < math.inf
    finite = "zero or a positive finite number"
    require(noisy, "algo.noise_multiplier", noise_multiplier, finite)
