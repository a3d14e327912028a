"""Noise with the right variance however many silos drop out: too much is added, and what is too
much is taken out.

Z. Jiang, W. Wang, R. Chen, Efficient federated learning with dropout-resilient differential privacy
(EuroSys 2024), "XNoise". A sum over n of at least L and at most M silos shall hold noise of
variance s^2. Each silo adds independent parts whose variances are

    s^2 / M,  and for j = 1 .. M - L:  s^2 / ((M - j) (M - j + 1)) = s^2 / (M - j) - s^2 / (M - j +
    1),

so that its parts 0 .. M - n together have s^2 / n. Once n is known, everybody in the sum lets go of
the parts beyond M - n. They are independent of those that stay, whoever sees them.

    symbol        here       meaning
    |U|           most       M, silos that may be in the sum
    |U| - T       least      L, fewest that may be left
    n_{i, k}      part k     of silo i; part 0 is drawn from a generator and never leaves it

Beyond the paper, the parts hang on a chain: secret j + 1 is a digest of secret j, and part j is
made of a generator that secret j starts. So a silo lets go of all parts from j on by one secret of
32 bytes, secrets before it stay hidden since SHA-256 is one-way, and the chain's end, told
beforehand, commits to all of it.

Parts are integers on the messages' grid, drawn exactly and worth the Gaussian of their variance
(`grid_noise`), so that they are taken out to the last bit. Their sum is as good as one discrete
Gaussian: two that span a and b steps differ from it, at every integer, by a factor within 1 +- 5
exp(-2 pi^2 a^2 b^2 / (a^2 + b^2)) (Poisson summation, as there), and every part spans at least
`LEAST_PART` steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.crypto.digest import digest
from fedpriv.crypto.prg import KEY_BYTES, SeededGenerator

if TYPE_CHECKING:
    from fedpriv.encoding.base import Encoding
    from fedpriv.mechanisms.base import Mechanism
    from fedpriv.mechanisms.discrete_sampling import Generator

SECRET_BYTES = KEY_BYTES
LEAST_PART = 256
"""Grid steps that a part's deviation spans at least. Integer parameters are rounded up, to 257
there, and variances then exceed their targets by at most 0.8 percent."""


@dataclass(frozen=True)
class RemovableNoise:
    """The noise of one sum that may cover `least` to `most` silos.

    size: of the sum.
    mechanism, sensitivity, encoding: what the noise is, as for `Mechanism.noise_share`.
    """

    mechanism: Mechanism
    least: int
    most: int
    size: int
    sensitivity: float
    encoding: Encoding

    @property
    def parts(self) -> int:
        """How many parts of a silo's noise can be taken out."""
        return self.most - self.least

    def kept(self, silos: int) -> int:
        """How many of them stay in a sum over so many silos."""
        return self.most - silos

    def chain(self, secret: bytes) -> list[bytes]:
        """The secrets of all removable parts, from the first one, and the chain's end, which
        commits to them."""
        links = [secret]
        for _ in range(self.parts):
            links.append(_next(links[-1]))
        return links

    def leads_to(self, end: bytes, link: bytes, kept: int) -> bool:
        """Whether `link` is the secret after `kept` others of the chain with this end."""
        for _ in range(self.parts - kept):
            link = _next(link)
        return link == end

    def share(self, rng: Generator, secret: bytes) -> np.ndarray:
        """All of a silo's noise, (size,) float64 on the grid.

        rng: for the part that nobody takes out.
        secret: the first of the chain, `SECRET_BYTES` that nobody knows.
        """
        fixed = self.mechanism.noise_share(
            self.size, self.most, rng, sensitivity=self.sensitivity, encoding=self.encoding
        )
        whole: np.ndarray = self.encoding.nearest(fixed) + self.surplus([secret], kept=0)
        return whole

    def surplus(self, links: Sequence[bytes], kept: int) -> np.ndarray:
        """What is too much in a sum, (size,) float64 on the grid.

        links: the secret after `kept` others of each silo in the sum.
        """
        total = np.zeros(self.size)
        # Part by part: samplers keep tables for a few deviations only.
        for part, secrets in self._each(links, kept):
            shares = (self.most - part) * (self.most - part + 1)
            for secret in secrets:
                total += self._drawn(shares, secret)
        return total

    def _each(self, links: Sequence[bytes], kept: int) -> Iterator[tuple[int, Sequence[bytes]]]:
        for part in range(kept + 1, self.parts + 1):
            yield part, links
            links = [_next(link) for link in links]

    def _drawn(self, shares: int, secret: bytes) -> np.ndarray:
        generator = SeededGenerator(secret, b"removable noise")
        return self.mechanism.noise_share(
            self.size, shares, generator, sensitivity=self.sensitivity, encoding=self.encoding
        )


def _next(link: bytes) -> bytes:
    return digest("removable noise", link)


def smallest_part(least: int, most: int) -> int:
    """The smallest part of the noise is one of so many equal ones that make up the whole."""
    return most * (most - 1) if most > least else most
