"""Gradients of single records (or groups of them), and clipping by their norms."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from fedpriv.models.tasks import Task
from fedpriv.training.cached_by_model import cached_by_model
from fedpriv.training.contributions import ContributionStats
from fedpriv.training.layers.own_gradients import NUMBERS_AT_ONCE
from fedpriv.training.network_checks import (
    Memory,
    first_pass_changes,
    remembers,
    torch_func_obstacle,
    vmap_batches,
)
from fedpriv.training.untouched import has_hidden_attributes
from fedpriv.training.vectors import backward, call, taken_gradient, unflatten

Gradients = Callable[[Tensor, Tensor, Tensor, dict[str, Tensor]], Tensor]

MAX_NUMBERS_IN_MEMORY = 2**24
"""Numbers of per-record gradients in memory at once; a larger batch is summed in pieces."""
BYTES_A_NUMBER = 64
"""Bytes of a GPU's memory for each number of per-record gradients: a third of it holds them, in
float32 and float64, and what they are computed from."""


def per_group_gradients(model: nn.Module, task: Task, group: int) -> Gradients:
    """A function that computes the gradient of each group's mean loss, (b, d). Its arguments are
    theta (d,), x (b, group, ...), y (b, group, ...), and each group's own buffers (b, ...) by name.

    Random numbers that the network itself draws depend on a group's place in the batch. That is
    sound where neighbours replace a record, not where they remove one.
    """

    def mean_loss(outputs: Tensor, y: Tensor) -> Tensor:
        return task.loss(outputs, y, torch.full((group,), 1 / group, device=outputs.device))

    def batched(
        theta: Tensor, x: Tensor, y: Tensor, buffers: dict[str, Tensor], own: nn.Module
    ) -> Tensor:
        def loss(
            parameters: dict[str, Tensor], x: Tensor, y: Tensor, buffers: dict[str, Tensor]
        ) -> Tensor:
            return mean_loss(call(own, parameters, x, buffers), y)

        each = vmap(grad(loss), in_dims=(None, 0, 0, 0), randomness="different")
        named = each(unflatten(model, theta), x.clone(), y, buffers)  # which it may overwrite
        return torch.cat([piece.reshape(len(x), -1) for piece in named.values()], dim=1)

    def one_by_one(
        theta: Tensor, x: Tensor, y: Tensor, buffers: dict[str, Tensor], copies: bool
    ) -> Tensor:
        """For networks that torch.func cannot compute, such as those with a GRU. Their gradients
        are autograd's, at the parameters of a copy.

        copies: whether each record needs its own.
        """
        own = _own_copy(model)
        for part, template in zip(own.modules(), model.modules()):
            part.training = template.training
        memory = Memory(own)
        found = []
        for i in range(len(x)):
            if copies:
                own = copy.deepcopy(model)
            leaves = list(own.parameters())
            for leaf, piece in zip(leaves, unflatten(own, theta).values()):
                leaf.data = piece.clone()
                leaf.grad = None
            masks = {name: buffer[i] for name, buffer in buffers.items()}
            with torch.enable_grad():
                read = x[i].clone()  # which it may overwrite
                outputs = functional_call(own, masks, (read,)) if masks else own(read)
                backward(mean_loss(outputs, y[i]))
            found.append(torch.cat([taken_gradient(leaf).flatten() for leaf in leaves]))
        if memory.changed:  # what a record leaves would move the gradients of the next ones
            raise remembers(model)
        return torch.stack(found)

    def gradients(theta: Tensor, x: Tensor, y: Tensor, buffers: dict[str, Tensor]) -> Tensor:
        if not len(x):
            return theta.new_zeros((0, len(theta)))
        obstacle = torch_func_obstacle(model, x.shape[2:], x.dtype)
        if obstacle is not None:
            raise obstacle
        # A pass may leave tensors of torch.func in a network, where other records would meet them.
        copies = has_hidden_attributes(model) or first_pass_changes(model, x.shape[2:], x.dtype)
        if not vmap_batches(model, x.shape[1:], x.dtype):
            return one_by_one(theta, x, y, buffers, copies)
        return batched(theta, x, y, buffers, _structure(model) if copies else model)

    return gradients


@cached_by_model
def _own_copy(model: nn.Module) -> nn.Module:
    """A copy with parameters of its own."""
    return copy.deepcopy(model, {id(each): each for each in model.buffers()})


def _structure(model: nn.Module) -> nn.Module:
    """A copy with the same parameters, for passes that are given others."""
    return copy.deepcopy(model, {id(own): own for own in model.parameters()})


def most_numbers(device: torch.device) -> int:
    """Numbers of per-record gradients in memory at once."""
    if device.type != "cuda":
        return MAX_NUMBERS_IN_MEMORY
    total: int = torch.cuda.get_device_properties(device).total_memory
    return total // BYTES_A_NUMBER


def output_gradients(task: Task, rows: Tensor, y: Tensor) -> Tensor:
    """The gradient of each record's loss by its outputs (n, 1, ...).

    Functions such as exp are computed for several numbers at once, and by other code for those that
    are left over. Where a record has a single output, zeros are added so that none is left over:
    its bits then do not depend on n. Several outputs are a row of their own.
    """
    n = len(rows)
    if more := -rows.numel() % NUMBERS_AT_ONCE if rows.shape[-1] == 1 else 0:
        rows, y = (
            functional.pad(part, (0, 0) * (part.dim() - 1) + (0, more)) for part in (rows, y)
        )
    return task.gradient(rows, y, rows.new_ones((len(rows), 1)))[:n]


def finite_norms(norms: Tensor, clip: float | Tensor, stats: ContributionStats | None) -> Tensor:
    """Which of the gradients' norms (b,) are finite, (b,) bool. `stats` counts all norms, and those
    above `clip`."""
    finite = norms.isfinite()
    if stats is not None:
        known = norms[finite]
        stats.units += len(norms)
        stats.nonfinite += len(norms) - len(known)
        stats.clipped += int((known > clip).sum())
        stats.norm_sum += float(known.sum())
    return finite


def clip_factors(norms: Tensor, clip: float | Tensor, stats: ContributionStats | None) -> Tensor:
    """The factors (b,) that clip gradients of `norms` (b,): at most 1, and 0 where a norm is not
    finite.

    clip: one bound for all, or (b,).
    """
    finite = finite_norms(norms, clip, stats)
    return torch.where(finite, (clip / norms.clamp_min(1e-30)).clamp_max(1.0), 0.0)
