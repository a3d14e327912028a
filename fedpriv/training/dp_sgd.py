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

from fedpriv.mechanisms.discrete_sampling import Generator
from fedpriv.mechanisms.grid_noise import noised
from fedpriv.models.tasks import Task
from fedpriv.training.batch_sums import BatchSums
from fedpriv.training.contributions import ContributionStats


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
    theta: Tensor,
    x: Tensor,
    y: Tensor,
    task: Task,
    coins: Callable[[int], np.ndarray],
    noise_rng: Generator,
    dropout_keys: np.ndarray,
    group: int = 1,
    anchor: Tensor | None = None,
    stats: ContributionStats | None = None,
) -> Tensor:
    """Final minus starting parameters (d,) float64 after training from `theta` (d,) on one silo's
    records.

    Gradients are computed in the data type of `theta`, mostly float32; clips, sums, noise and steps
    are float64. The result is a deterministic function of the arguments, the coins and the state of
    the generator. torch's global generators and `model` stay as they are. A gradient with NaN or
    infinity counts as zero. Whether it does depends on its record and the public model alone, so
    the sensitivity stays `clip`.

    x: (n, ...), y: (n, ...), on the device of `theta`.
    coins: returns, for a step's number, a uniform number from [0, 1) for each group, (n / group,).
    dropout_keys: (n / group,) uint64, from which each group draws its dropout in every step. A
        group's coin and key must not depend on which other groups are there: else removing one
        would change the others' gradients, and the sensitivity would not be `clip`.
    group: for losses that compare records (Cox). Every `group` consecutive rows are one draw of the
        sampler, with one gradient, that of the mean loss of these rows, clipped as one. The unit of
        privacy is then the group. A record is in one group only, so it has the same guarantee,
        provided that the grouping of records does not depend on whether others are there. k records
        of one user, if they fill whole groups, are k / group units.
    anchor: parameters (d,) that the proximal term pulls to; None: there is no such term.
    stats: counts the sampled gradients (`units`), the clipped ones and those that are not finite;
        not private.

    Raises ConfigError for networks with BatchNorm, or with random numbers from layers other than
    dropout; ValueError for rows that do not fill whole groups.
    """
    if len(x) % group or recipe.expected_batch <= 0:
        raise ValueError(
            f"{len(x)} rows in groups of {group}, expected batch {recipe.expected_batch}"
        )
    x, y = (torch.unflatten(rows, 0, (len(rows) // group, group)) for rows in (x, y))
    sums = BatchSums(recipe.clip, model, task, x, y, dropout_keys.__getitem__, stats)
    vector = theta.to(torch.float64, copy=True)
    for step in range(recipe.steps):
        batch = np.flatnonzero(coins(step) < recipe.sampling_rate)
        total = sums.sum(vector.to(theta), batch, step)
        if recipe.noise_multiplier:
            deviation = recipe.noise_multiplier * recipe.clip
            total = torch.from_numpy(noised(total.cpu().numpy(), deviation, noise_rng)).to(total)
        change = recipe.lr / recipe.expected_batch * total
        if anchor is not None:
            change += recipe.lr * recipe.proximal * (vector - anchor)
        vector -= change
    return vector - theta
