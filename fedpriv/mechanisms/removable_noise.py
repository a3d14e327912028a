"""Noise with the right variance however many silos drop out: silos add too much noise, and the
surplus is removed.

Z. Jiang, W. Wang, R. Chen, Efficient federated learning with dropout-resilient differential privacy
(EuroSys 2024), "XNoise". A sum over n of at least L and at most M silos shall hold noise of
variance s^2. Each silo adds independent parts whose variances are

    s^2 / M,  and for j = 1 .. M - L:  s^2 / ((M - j) (M - j + 1)) = s^2 / (M - j) - s^2 / (M - j +
    1),

so that its parts 0 .. M - n together have variance s^2 / n. Once n is known, every silo in the sum
reveals its parts beyond M - n. They are independent of the parts that stay, so revealing them is
safe.

    symbol        here       meaning
    |U|           most       M, silos that may be in the sum
    |U| - T       least      L, fewest silos in the sum
    n_{i, k}      part k     of silo i; part 0 comes from the silo's generator and stays secret

Beyond the paper, the parts come from a chain of secrets: secret j + 1 is a digest of secret j, and
part j comes from a generator with seed secret j. So a silo reveals all parts from j on by one
secret of 32 bytes. Earlier secrets stay hidden, since SHA-256 is one-way. The chain's end, sent
beforehand, commits to all of them.

Parts are integers on the messages' grid, drawn exactly, and cost what a Gaussian of their variance
costs (`grid_noise`). So they are removed to the last bit. Their sum is as good as one discrete
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
"""Least number of grid steps in a part's deviation. Integer parameters are rounded up, to 257
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
        """How many parts of a silo's noise can be removed."""
        return self.most - self.least

    def kept(self, silos: int) -> int:
        """How many removable parts stay in a sum over so many silos."""
        return self.most - silos

    def chain(self, secret: bytes) -> list[bytes]:
        """The secrets of all removable parts, from the first one on, and the chain's end, which
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

        rng: for the part that is never removed.
        secret: the first of the chain, `SECRET_BYTES` that only the silo knows.
        """
        fixed = self.mechanism.noise_share(
            self.size, self.most, rng, sensitivity=self.sensitivity, encoding=self.encoding
        )
        whole: np.ndarray = self.encoding.nearest(fixed) + self.surplus([secret], kept=0)
        return whole

    def surplus(self, links: Sequence[bytes], kept: int) -> np.ndarray:
        """The surplus noise of a sum, (size,) float64 on the grid.

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
