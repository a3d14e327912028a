"""Lemmas 2 and 3 of Huang, for losses whose moments are exact.

Lemma 2 bounds one step's progress of the owners' mean model. Its proof exchanges its two cases, but
the bound holds: the mean of the owners' models is unbiased after a sum over E of them.

Lemma 3 bounds how far the owners' models lie apart, with a bound H on gradients alone. The steps of
Algorithm 1 have noise, and owners outside the sum are never brought back. So both of its bounds are
zero for flat losses, whose owners drift apart by noise; see `drift_of_flat_losses`.
"""

from __future__ import annotations

import numpy as np


def progress(
    models: np.ndarray,
    *,
    curvature: np.ndarray,
    centres: np.ndarray,
    lr: float,
    noise: float,
    n_summed: int,
    synchronised: bool,
) -> tuple[float, float]:
    """Both sides of Lemma 2 for one step from given models: E |mean model - theta*|^2 after it, and
    the bound (3). Owner j's loss is J_j(theta) = curvature_j / 2 |theta - centre_j|^2.

    models: of the owners, (m, d).
    curvature: of each loss, (m,); lambda is the least and L the largest.
    centres: minimisers of each loss, (m, d).
    lr: eta, at most 1 / (4 L).
    noise: sigma.
    n_summed: E.
    synchronised: whether all owners continue from the sum's average after this step.
    """
    m, d = models.shape
    optimum = curvature @ centres / curvature.sum()
    least = float(np.mean(curvature / 2 * ((optimum - centres) ** 2).sum(axis=1)))
    moved = models - lr * curvature[:, None] * (models - centres)
    step = float(((moved.mean(axis=0) - optimum) ** 2).sum()) + lr**2 * d * noise**2 / m
    spread = float(((moved - moved.mean(axis=0)) ** 2).sum()) / (m - 1) + lr**2 * d * noise**2
    left_out = spread * (1 / n_summed - 1 / m) if synchronised else 0.0
    mean = models.mean(axis=0)
    drift = float(((models - mean) ** 2).sum(axis=1).mean())
    bound = (
        (1 - lr * float(curvature.min())) * float(((mean - optimum) ** 2).sum())
        + 6 * float(curvature.max()) * lr**2 * least
        + 2 * drift
        + lr**2 * d * noise**2
        + left_out
    )
    return step + left_out, bound


def drift_of_flat_losses(
    owners: int, *, steps: int, lr: float, noise: float, parameters: int
) -> float:
    """E of the owners' mean squared distance from their mean, `steps` steps after all models were
    equal, if every gradient is zero. Lemma 3 bounds it by 4 eta^2 (K - 1)^2 H^2 with H = 0."""
    return steps * lr**2 * parameters * noise**2 * (owners - 1) / owners
