"""Record-level DP-SGD in one silo: Opacus clips, sums, scales and steps; the noise comes from the run's own streams.

Abadi et al., Deep learning with differential privacy, CCS 2016, Algorithm 1, with true Poisson sampling: every batch
is an independent coin per record, and an empty one takes its pure-noise step like any other. Symbols: L / N -> q ->
sampling_rate, L -> expected_batch, C -> clip, sigma -> noise_multiplier, eta_t -> lr, T -> steps.

Privacy: unit record (or group of records, see `dp_sgd`), adjacency add/remove, `steps` Poisson-sampled Gaussian
mechanisms. The numbers in `DpSgd` must not depend on the records beyond what is declared public.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fedpriv.mechanisms.grid_noise import noised
from fedpriv.streams import SystemGenerator
from fedpriv.tally import Tally
from fedpriv.tasks import Task
from fedpriv.training.record_dropout import RecordDropout
from fedpriv.training.shared_state import refuse_shared_state
from fedpriv.training.vectors import unflatten

Generator = np.random.Generator | SystemGenerator
Gradients = Callable[[Tensor, Tensor, Tensor, dict[str, Tensor]], Tensor]

MAX_NUMBERS_IN_MEMORY = 2**24
"""Numbers of per-record gradients in memory at once; a larger batch is summed in pieces."""


@dataclass(frozen=True)
class DpSgd:
    """`steps` steps: each record (group of records) enters with probability `sampling_rate`, its gradient is clipped to
    L2 norm `clip`, N(0, (noise_multiplier * clip)^2 I) is added to the sum, which is divided by `expected_batch`.

    expected_batch: a public constant, (number of groups) * sampling_rate; never the realised size of a batch.
    """

    steps: int
    sampling_rate: float
    clip: float
    noise_multiplier: float
    lr: float
    expected_batch: float


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
    tally: Tally | None = None,
) -> Tensor:
    """Final minus starting parameters (d,) float64 after training from `theta` (d,) on one silo's records.

    x: (n, ...), y: (n, ...), on the device of `theta`. Gradients are computed in the data type of `theta`, mostly
    float32; clips, sums, noise and steps are float64. The result is a deterministic function of the arguments, the
    coins and the state of the generator; torch's global generators and `model` are left as they were.

    coins: of a step's number, a uniform number from [0, 1) for each group, (n / group,). dropout_keys: (n / group,)
    uint64, from which each group draws its dropout in every step. What a group gets of either must not depend on which
    others are there: else removing one would change the others' gradients, and the sensitivity would not be `clip`.

    group: for losses that compare records (Cox): every `group` consecutive rows are one draw of the sampler, with one
    gradient, that of the mean loss of these rows, clipped as one. The unit of privacy is then the group. A record is in
    one group only, so it has the same guarantee, provided that who is grouped with whom does not depend on whether
    others are there; k records of one user, if they fill whole groups, are k / group units.

    A gradient with NaN or infinity counts as zero: that depends on its record and the public model alone, so the
    sensitivity stays `clip`. tally: counts them, all sampled gradients (`units`) and the clipped ones; not private.

    Raises ConfigError for networks with BatchNorm or with random numbers of other layers than dropout, ValueError for
    rows that do not fill whole groups.
    """
    refuse_shared_state(model)
    if len(x) % group or recipe.expected_batch <= 0:
        raise ValueError(f"{len(x)} rows in groups of {group}, expected batch {recipe.expected_batch}")
    x, y = (torch.unflatten(rows, 0, (len(rows) // group, group)) for rows in (x, y))
    dropout = RecordDropout(model, torch.zeros(x.shape[1:], dtype=x.dtype, device=x.device))
    gradients = per_group_gradients(dropout.model, task, group)
    vector = nn.Parameter(theta.to(torch.float64, copy=True))
    optimizer = _optimizer(vector, recipe, noise_rng)
    rows_at_once = max(1, MAX_NUMBERS_IN_MEMORY // len(theta))
    for step in range(recipe.steps):
        batch = np.flatnonzero(coins(step) < recipe.sampling_rate)
        # An empty batch is one empty piece.
        pieces = [batch[start : start + rows_at_once] for start in range(0, max(1, len(batch)), rows_at_once)]
        for i, rows in enumerate(pieces):
            index = torch.from_numpy(rows).to(theta.device)
            masks = dropout.masks(dropout_keys[rows], step)
            per_record = gradients(vector.detach().to(theta), x[index], y[index], masks).double()
            optimizer.take(_zero_unless_finite(per_record, recipe.clip, tally))
            optimizer.signal_skip_step(i + 1 < len(pieces))
            optimizer.step()
            optimizer.zero_grad()
    return vector.detach() - theta


def per_group_gradients(model: nn.Module, task: Task, group: int) -> Gradients:
    """A function of theta (d,), x (b, group, ...), y (b, group, ...) and each group's own buffers (b, ...) by name, {}
    for none, that gives the gradient of each group's mean loss, (b, d).

    Random numbers that the network itself draws depend on a group's place among the others: good where a record is
    replaced by another, not where one is removed.
    """

    def loss(parameters: dict[str, Tensor], x: Tensor, y: Tensor, buffers: dict[str, Tensor]) -> Tensor:
        outputs = functional_call(model, {**parameters, **buffers}, (x,))
        return task.loss(outputs, y, torch.full((group,), 1 / group, device=x.device))

    one_each = vmap(grad(loss), in_dims=(None, 0, 0, 0), randomness="different")

    def gradients(theta: Tensor, x: Tensor, y: Tensor, buffers: dict[str, Tensor]) -> Tensor:
        if not len(x):
            return theta.new_zeros((0, len(theta)))
        named = one_each(unflatten(model, theta), x, y, buffers)
        return torch.cat([piece.flatten(1) for piece in named.values()], dim=1)

    return gradients


def finite_norms(norms: Tensor, clip: float, tally: Tally | None) -> Tensor:
    """Which of the gradients' norms (b,) are finite, (b,) bool; `tally` counts all of them, and those above `clip`."""
    finite = norms.isfinite()
    if tally is not None:
        known = norms[finite]
        tally.units += len(norms)
        tally.nonfinite += len(norms) - len(known)
        tally.clipped += int((known > clip).sum())
        tally.norm_sum += float(known.sum())
    return finite


def _zero_unless_finite(gradients: Tensor, clip: float, tally: Tally | None) -> Tensor:
    """`gradients` (b, d) with zeros for rows whose norm is not finite, which clipping alone would turn into NaN."""
    finite = finite_norms(gradients.norm(dim=1), clip, tally)
    return gradients if bool(finite.all()) else gradients.where(finite.unsqueeze(1), 0.0)


def _optimizer(vector: nn.Parameter, recipe: DpSgd, rng: Generator) -> Any:
    optimizer = _flat_noise_optimizer()(
        torch.optim.SGD([vector], lr=recipe.lr),
        noise_multiplier=recipe.noise_multiplier,
        max_grad_norm=recipe.clip,
        expected_batch_size=recipe.expected_batch,
    )
    optimizer.rng = rng
    return optimizer


@cache
def _flat_noise_optimizer() -> Any:
    """Opacus takes seconds to import, so its optimizer is only subclassed when somebody trains with it."""
    from opacus.optimizers import DPOptimizer

    class FlatNoiseOptimizer(DPOptimizer):  # type: ignore[misc]
        """The whole network is one parameter (d,), so that clipping and noise see the flat vector.

        Only the noise differs from Opacus: it is drawn from `rng`.
        """

        rng: Generator

        def take(self, gradients: Tensor) -> None:
            """The gradients (b, d) of the next step, or of the next piece of it."""
            (vector,) = self.params
            vector.grad_sample = gradients

        def add_noise(self) -> None:
            (vector,) = self.params
            vector.grad = vector.summed_grad
            if self.noise_multiplier:
                total = vector.summed_grad.cpu().numpy()
                total = noised(total, self.noise_multiplier * self.max_grad_norm, self.rng)
                vector.grad = torch.from_numpy(total).to(vector)

    return FlatNoiseOptimizer
