"""Mechanisms: how one unit's contribution is bounded and how the sum is noised.

The only place that knows a noise scale. Every party adds a share of the noise, so that nobody holds
all of it; the events made here describe exactly the noise that `noise_share` draws.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.encoding.base import LEAST_STEPS
from fedpriv.errors import ConfigError

if TYPE_CHECKING:
    import torch
    from dp_accounting import DpEvent

    from fedpriv.encoding.base import Encoding
    from fedpriv.encoding.levels import Levels
    from fedpriv.util.streams import SystemGenerator


class Mechanism(ABC):
    """Bounding and noising of contributions. Every mechanism is a frozen dataclass; its fields are
    what a person sets, and one that has no clip or no noise leaves these as they are."""

    clip: float = math.inf
    """Bound on one contribution's L2 norm."""
    noise_multiplier: float = 0.0
    """Standard deviation of the whole noise, relative to the sensitivity."""

    @property
    def clips(self) -> bool:
        """Whether contributions are bounded at all."""
        return self.clip < math.inf

    @abstractmethod
    def with_noise(self, noise_multiplier: float) -> Mechanism:
        """The same mechanism with another noise multiplier. Raises ConfigError where there is no
        noise to scale, or when it cannot be scaled to this."""

    @abstractmethod
    def bound(self, vectors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Bound each row of (k, d). Returns (k, d) float64 rows and their (k,) norms before
        bounding."""

    def encoding(self, n_summed: int, bound: float) -> Encoding | None:
        """How messages are made of integers where the aggregation leaves them real: None for
        real-valued noise.

        n_summed: silos that a sum covers.
        bound: no coordinate of a message exceeds it. Raises ConfigError when nothing fits.
        """
        return None

    def real_encoding(self, n_summed: int, bound: float) -> Encoding | None:
        """`encoding` where noise must protect somebody, so that no message may have it in floating
        point; an infinite bound is taken for `UNBOUNDED_RANGE`."""
        return self.encoding(n_summed, bound)

    def count_encoding(self, n_summed: int) -> Levels:
        """How contributions become levels that a shuffler adds up, with noise bits of `n_summed`
        silos. Raises ConfigError for a mechanism without such noise."""
        raise self._counts_nothing()

    def hiding(
        self, noise_multiplier: float, size: int, *, sensitivity: float = 2.0, shares: float = 1.0
    ) -> Mechanism:
        """With the least noise on counts whose release of `size` coordinates costs no more than a
        Gaussian of `noise_multiplier`, standard deviation over `sensitivity`. The other arguments
        as for `event`, without what rounding adds. Raises as `count_encoding`."""
        raise self._counts_nothing()

    def of_bits(self, levels: int, bits: int) -> Mechanism:
        """With so many levels, and noise bits a coordinate of all parties together. Raises as
        `count_encoding`."""
        raise self._counts_nothing()

    def _counts_nothing(self) -> ConfigError:
        return ConfigError(
            "mechanism", type(self).__name__.lower(), "binomial: aggregation=shuffle counts bits"
        )

    def check_encoding(  # noqa: B027
        self,
        shares: int,
        encoding: Encoding | None,
        sensitivity: float = 1.0,
        *,
        least: int = LEAST_STEPS,
    ) -> None:
        """Raise ConfigError when noise in `shares` shares cannot be told in whole grid steps,
        `least` or more."""

    def check_inside_training(self) -> None:  # noqa: B027
        """Raise ConfigError when this mechanism cannot noise the gradients of local training."""

    def assumptions(self, encoding: Encoding | None, *, real: bool) -> tuple[str, ...]:
        """What the events rest on as far as this mechanism's noise goes.

        real: it is the operating system's.
        """
        return ()

    def rounding(self, encoding: Encoding | None, size: int) -> float:
        """What rounding messages of `size` coordinates adds to the sensitivity of their sum, in
        units of the bound."""
        return encoding.shift(size) / self.clip if encoding is not None else 0.0

    def noise_bound(self, shares: int, sensitivity: float = 1.0) -> float:
        """A size that no coordinate of a noise share reaches; arguments as for `noise_share`."""
        return 0.0

    @abstractmethod
    def noise_share(
        self,
        size: int,
        shares: int,
        rng: np.random.Generator | SystemGenerator,
        *,
        sensitivity: float = 1.0,
        encoding: Encoding | None = None,
    ) -> np.ndarray:
        """One party's noise, (size,) float64, such that `shares` independent shares add up to the
        whole noise.

        sensitivity: largest change of the sum that the noise is made for, in units of the bound on
            one contribution.
        encoding: the grid that messages lie on; None: they are real numbers. Raises ValueError for
            noise that is to protect somebody without a grid.
        """

    @abstractmethod
    def noised(
        self,
        total: np.ndarray,
        rng: np.random.Generator | SystemGenerator,
        *,
        sensitivity: float = 1.0,
        divisor: int = 1,
    ) -> tuple[np.ndarray, np.ndarray | float]:
        """A sum (d,) float64 inside local training, and noise for total / divisor: a step goes
        along total / divisor + noise. Real noise is in the total already, since the two are
        integers as long as they are apart, and zero remains.

        sensitivity: as for `noise_share`, of the quotient.
        """

    def simulated_deviation(self, sensitivity: float = 1.0) -> float | None:
        """The standard deviation of what `noised` draws from a numpy generator: a Gaussian number a
        coordinate, in order and whatever the total is. None where it does otherwise.

        sensitivity: as for `noised`.
        """
        return None

    @abstractmethod
    def event(self, *, sensitivity: float = 1.0, shares: float = 1.0) -> DpEvent:
        """What one release costs.

        sensitivity: largest change of the sum that one unit causes, in units of the bound on one
            contribution.
        shares: fraction of the noise shares that the observer does not know.
        """
