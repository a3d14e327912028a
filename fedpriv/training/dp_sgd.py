"""Record-level DP-SGD in one silo: gradients are clipped, summed and noised.

Abadi et al., Deep learning with differential privacy, CCS 2016, Algorithm 1, with true Poisson
sampling: every batch has an independent coin per record, and an empty batch takes a step of noise
alone. Symbols: L / N -> q -> sampling_rate, L -> expected_batch, C -> clip, sigma ->
noise_multiplier, eta_t -> lr, T -> steps.

Privacy: unit record (or group of records, see `dp_sgd`), adjacency add/remove, `steps`
Poisson-sampled Gaussian mechanisms. The numbers in `DpSgd` must not depend on the records beyond
what is declared public.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from fedpriv.mechanisms.base import TrainingNoise
from fedpriv.mechanisms.discrete_sampling import Generator
from fedpriv.models.tasks import Task
from fedpriv.training.clipped import ClippedGradients
from fedpriv.training.contributions import ContributionStats
from fedpriv.training.noisy_steps import NoisySteps


@dataclass(frozen=True)
class DpSgd:
    """`steps` steps: each record (group of records) enters with probability `sampling_rate`, its
    gradient is clipped to L2 norm `clip`, N(0, (noise_multiplier * clip)^2 I) is added to the sum,
    which is divided by `expected_batch`.

    expected_batch: a public constant, (number of groups) * sampling_rate; never the realised size
        of a batch.
    proximal: lambda; each step also follows the gradient of lambda / 2 |w - anchor|^2, which no
        record changes.
    """

    steps: int
    sampling_rate: float
    clip: float
    noise_multiplier: float
    lr: float
    expected_batch: float
    proximal: float = 0.0


def dp_sgd(
    recipe: DpSgd,
    *,
    model: nn.Module,
    theta: np.ndarray,
    x: Tensor,
    y: Tensor,
    task: Task,
    coins: Callable[[int], np.ndarray],
    noise_rng: Generator,
    dropout_keys: np.ndarray,
    stats: ContributionStats,
    group: int = 1,
    anchor: np.ndarray | float = 0.0,
    dtype: torch.dtype = torch.float32,
) -> NoisySteps:
    """Training from `theta` (d,) float64 on one silo's records.

    torch's global generators and `model` stay as they are. A gradient with NaN or infinity counts
    as zero. Whether it does depends on its record and the public model alone, so the sensitivity
    stays `clip`.

    x: (n, ...), y: (n, ...), on the training device.
    coins: returns, for a step's number, a uniform number from [0, 1) for each group, (n / group,).
    dropout_keys: (n / group,) uint64, from which each group draws its dropout in every step. A
        group's coin and key must not depend on which other groups are there: else removing one
        would change the others' gradients, and the sensitivity would not be `clip`.
    group: for losses that compare records (Cox). Every `group` consecutive rows are one draw of the
        sampler, with one gradient, that of the mean loss of these rows, clipped as one. The unit of
        privacy is then the group. A record is in one group only, so it has the same guarantee,
        provided that the grouping of records does not depend on whether others are there. k records
        of one user, if they fill whole groups, are k / group units.
    anchor: parameters (d,) that the proximal term pulls to.
    dtype: in which gradients are computed.
    stats: counts the sampled gradients (`units`), the clipped ones and those that are not finite;
        not private.

    Raises ConfigError for networks with BatchNorm, or with random numbers from layers other than
    dropout; ValueError for rows that do not fill whole groups.
    """
    if len(x) % group or recipe.expected_batch <= 0:
        raise ValueError(
            f"{len(x)} rows in groups of {group}, expected batch {recipe.expected_batch}"
        )
    multiplier = recipe.noise_multiplier
    deviation = multiplier * recipe.clip if multiplier else 0.0  # the clip may be infinite
    shape = tuple(x.shape[1:])
    if group > 1:
        x, y = (torch.unflatten(rows, 0, (len(rows) // group, group)) for rows in (x, y))
    return NoisySteps(
        gradients=ClippedGradients(
            model, task, recipe.clip, shape=shape, group=group if group > 1 else None, dtype=x.dtype
        ),
        theta=theta,
        x=x,
        y=y,
        batches=(
            np.flatnonzero(coins(step) < recipe.sampling_rate) for step in range(recipe.steps)
        ),
        batch_size=recipe.expected_batch,
        rates=np.full(recipe.steps, recipe.lr / recipe.expected_batch),
        noise=TrainingNoise(deviation),
        noise_rng=noise_rng,
        noised=recipe.steps,
        keys=dropout_keys,
        stats=stats,
        pull=recipe.proximal * recipe.expected_batch,
        anchor=anchor,
        dtype=dtype,
    )
