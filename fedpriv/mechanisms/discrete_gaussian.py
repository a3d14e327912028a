"""The discrete Gaussian mechanism: integer noise, sampled exactly, spread over the parties, accounted as a Gaussian.

C. Canonne, G. Kamath, T. Steinke, The discrete Gaussian for differential privacy (NeurIPS 2020): noise with probability
proportional to exp(-k^2 / (2 s^2)) on the integers. P. Kairouz, Z. Liu, T. Steinke, The distributed discrete Gaussian
mechanism for federated learning with secure aggregation (ICML 2021): a sum of n independent shares differs from one
discrete Gaussian with S^2 = n s^2, in each coordinate and at every integer, by a factor within exp(+-tau),
tau = 10 * sum over k = 1 .. n - 1 of exp(-2 pi^2 s^2 k / (k + 1)); a share spans at least `LEAST_STEPS` steps.

Why it costs what a Gaussian costs, in any dimension, sampled or not. Let X be Gaussian with variance S^2 - t^2 around
an integer vector, and round each coordinate at random, to k with probability proportional to
exp(-(k - X)^2 / (2 t^2)). By Poisson summation the sum of these weights over all integers k is sqrt(2 pi) t (1 + e)
whatever X is, with |e| <= eta = 2.1 exp(-2 pi^2 t^2); and the two densities convolve to that of variance S^2. So the
rounded X has, up to a factor within (1 + eta) / (1 - eta) a coordinate, the probabilities of the same integer vector
under discrete noise S: on integer signals the mechanism is a function of a Gaussian mechanism's output, and every
certificate of that one holds for it, whatever the sampling, the group and the accountant (post-processing; cf.
C. Peikert, An efficient and parallel Gaussian sampler for lattices, CRYPTO 2010, Theorem 3.1). With t = `ROUNDING`
steps eta is 1.1e-34 and tau below 1e-270 n: for d coordinates in T releases, epsilon and ln(delta) move by less than
1e-33 d T, which float64 does not show. Each share is drawn with s^2 + t^2 in place of s^2, so that what is left of any
of them is the declared Gaussian.

No floating-point tail and no low-order bits of a continuous sampler enter the release.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.encoding.fixed_point import FixedPoint
from fedpriv.errors import ConfigError
from fedpriv.mechanisms.discrete_sampling import MAX_SIGMA, discrete_gaussian
from fedpriv.mechanisms.gaussian import Gaussian

if TYPE_CHECKING:
    from fedpriv.encoding.base import Encoding
    from fedpriv.streams import SystemGenerator

ROUNDING = 2.0
"""t: grid steps of deviation that a share has beyond the declared ones."""


@dataclass(frozen=True)
class DiscreteGaussian(Gaussian):
    """Clip each contribution to `clip`, add integer multiples of the messages' grid step: clip * noise_multiplier is
    the standard deviation of the Gaussian that the whole noise is worth. A share's is larger by `ROUNDING` steps, added
    as variances, and rounded up to whole steps: by 1.7 parts in 8 at most, and by 2e-5 of it from 50,000 steps on."""

    def encoding(self, n_summed: int, bound: float) -> FixedPoint:
        return FixedPoint(64, bound, n_summed)

    def check_inside_training(self) -> None:
        raise ConfigError("mechanism", "discrete_gaussian", "gaussian: noise on gradients in training is real-valued")

    def check_encoding(self, shares: int, encoding: Encoding | None, sensitivity: float = 1.0) -> None:
        super().check_encoding(shares, encoding, sensitivity)
        if encoding is None:
            return
        steps = self.share_deviation(shares, sensitivity) / encoding.unit
        if steps > MAX_SIGMA:
            raise encoding.too_fine(steps)

    def assumptions(self, encoding: Encoding | None, *, real: bool) -> tuple[str, ...]:
        return ("integer noise, exactly sampled",)

    def noise_share(
        self,
        size: int,
        shares: int,
        rng: np.random.Generator | SystemGenerator,
        *,
        sensitivity: float = 1.0,
        encoding: Encoding | None = None,
    ) -> np.ndarray:
        if encoding is None:
            raise ValueError("discrete noise needs the grid that messages lie on")
        steps = whole_steps(self.share_deviation(shares, sensitivity) / encoding.unit)
        return discrete_gaussian(steps, size, rng) * encoding.unit if steps else np.zeros(size)


def whole_steps(declared: float) -> int:
    """Parameter of the integer noise that hides what a Gaussian share of `declared` steps hides; 0 for no noise."""
    return math.ceil(math.hypot(declared, ROUNDING)) if declared else 0
