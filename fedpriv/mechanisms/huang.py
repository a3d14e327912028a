"""The noise of Huang, A federated algorithm for privacy-preserving empirical risk minimization,
relative to G / n."""

from __future__ import annotations

import math


def paper_noise(steps: int, silos: int, epsilon: float, delta: float) -> float:
    """Equation (2), sigma^2 = 8 G^2 T ln(1 / delta) / (m^2 n_(1)^2 epsilon^2), as a multiple of G /
    n_(1).

    The m^2 is right for a single noise vector on the mean of all m users' gradients. Here every
    user adds a vector of this size to its own gradient, so the claim fails by a factor of up to m.
    The formula is here to show that.
    """
    return math.sqrt(8 * steps * math.log(1 / delta)) / (silos * epsilon)
