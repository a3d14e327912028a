"""Lemmas 7 and 8 of Hu, Guo, Gong: what the average over the chosen devices can be off by.

n devices, of which a uniformly random set of r is averaged. v_i is device i's noisy batch gradient:
its mean is grad f_i, a batch of gamma records adds a variance of at most beta^2 / gamma, the noise
d sigma^2. Every device's model is read as what it would be if the device had been chosen; then the
set does not depend on the models, and both lemmas hold:

- Lemma 7. Noise and batches give at most (d sigma^2 + beta^2 / gamma) / r. Drawing r of n gives
  (n - r) / (r (n - 1)) times the mean of |grad f_i - grad f|^2, and n^2 <= 4 r (n - 1) (n - r) for
  1 <= r < n, so this is at most 4 (n - r)^2 / n^3 times the sum of |grad f_i|^2.
- Lemma 8. After s steps a model lies eta times the sum of its s deviations v_i - mean v from the
  average. Their mean square over the chosen devices is at most that of v_i, and the square of a
  sum of s vectors at most s times the sum of their squares.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def average_variance(
    gradients: np.ndarray, *, cohort: int, noise: float, variance: float, batch_size: int
) -> float:
    """Lemma 7, equation (18): bound on E |mean over r of v_i - mean over n of grad f_i|^2.

    gradients: grad f_i of all devices, (n, d).
    cohort: r.
    noise: sigma.
    variance: beta^2.
    batch_size: gamma.
    """
    n, d = gradients.shape
    chosen = 4 * (n - cohort) ** 2 / n**3 * float((gradients**2).sum())
    return float(d * noise**2 / cohort + variance / batch_size + chosen)


def network_error(
    gradients: Sequence[np.ndarray],
    *,
    lr: float,
    cohort: int,
    noise: float,
    variance: float,
    batch_size: int,
) -> float:
    """Lemma 8, equation (19): bound on the mean squared distance of the chosen devices' models from
    their average.

    gradients: grad f_i at the models before each of the s steps since the round's start, s arrays
        (n, d).
    lr: eta.
    The others as in `average_variance`.
    """
    steps = len(gradients)
    n, d = gradients[0].shape
    random = d * noise**2 * (cohort + 1) / cohort + 2 * variance / batch_size
    squares = sum(float((each**2).sum()) for each in gradients)
    devices = (2 * (n - cohort) ** 2 + n**2) / n**3
    return float(lr**2 * (2 * steps**2 * random + 4 * steps * devices * squares))
