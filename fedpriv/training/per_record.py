"""Gradients of single records (or groups of them), and clipping by their norms.

A gradient is computed from its record and the broadcast alone: kernels always see pieces of one
shape, on one thread, so that no bit of it depends on who else is in the batch.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import grad, vmap

from fedpriv.models.tasks import Task
from fedpriv.training.contributions import ContributionStats
from fedpriv.training.graph import Graph, captured, fresh, vmaps
from fedpriv.training.layers.chain import LayerChain, mapped
from fedpriv.training.layers.parts import Recurrence
from fedpriv.training.modes import kept_threads
from fedpriv.training.vectors import backward, call, taken_gradient, unflatten

Masks = Mapping[str, Tensor]
"""Each record's own dropout, (b, group, ...) by the names of buffers."""

MAX_NUMBERS_IN_MEMORY = 2**24
"""Numbers of per-record gradients that a caller should ask for at once."""
BYTES_A_NUMBER = 64
"""Bytes of a GPU's memory for each number of per-record gradients: a third of it holds them, in
float32 and float64, and what they are computed from."""
NUMBERS_OF_A_PIECE = 2**21
"""Numbers of per-record gradients of a piece on a processor: they stay in its cache."""
PIECES = (16, 256)
"""The fewest and most groups of a piece: padding stays cheap, and small networks fill passes."""


class RecordGradients:
    """The gradients of each group's mean loss.

    Random numbers that the network itself draws depend on a group's place in the batch. That is
    sound where neighbours replace a record, not where they remove one.

    model: the network; it stays as it is.
    task: gives the loss.
    group: records of a group; 1 for single records.
    shape, dtype: of one record's features.

    Raises NotImplementedError, with Opacus's words, for a layer that mixes records.
    """

    def __init__(
        self, model: nn.Module, task: Task, group: int, shape: tuple[int, ...], dtype: torch.dtype
    ) -> None:
        self.task = task
        self.group = group
        self.model = fresh(model, shape, dtype).train()
        names = [name for name, _ in self.model.named_parameters()]
        self.size = sum(own.numel() for own in self.model.parameters())
        fewest, most = PIECES
        fit = NUMBERS_OF_A_PIECE // max(1, self.size)
        self.piece = min(most, max(fewest, 1 << max(0, fit.bit_length() - 1)))
        network = captured(model, shape, dtype)
        chain = mapped(model, shape, dtype)
        self.compute: Callable[[Tensor, Tensor, Tensor, Masks], Tensor]
        if isinstance(chain, LayerChain) and _hooks_know(chain):
            self.hooked = _hooked(self.model, chain)
            own = dict(self.model.named_parameters())
            self.leaves: list[Any] = [own[name] for name in names]  # Opacus's layers reorder them
            self.compute = self._by_hooks
        elif isinstance(network, Graph) and vmaps(network, shape, dtype):
            in_dims = None, 0, 0, 0
            self.each = vmap(grad(self._loss_at), in_dims=in_dims, randomness="different")
            self.compute = self._by_vmap
        else:
            self.compute = self._one_by_one
            self.piece = 1

    def __call__(self, theta: Tensor, x: Tensor, y: Tensor, masks: Masks) -> Tensor:
        """The gradients (b, d) in the data type of `theta` (d,).

        x: (b, group, ...).
        y: (b, group, ...).
        """
        found = list(self.pieces(theta, x, y, masks))
        return torch.cat(found) if found else theta.new_zeros((0, len(theta)))

    def pieces(self, theta: Tensor, x: Tensor, y: Tensor, masks: Masks) -> Iterator[Tensor]:
        """The same gradients, piece by piece."""
        on_gpu = x.device.type == "cuda"
        size = max(1, _numbers_on_gpu(x.device) // self.size) if on_gpu else self.piece
        for start in range(0, len(x), size):
            rows = slice(start, start + size)
            here = min(size, len(x) - start)
            fill = here if on_gpu else size
            dropped = {name: _filled(mask[rows], fill) for name, mask in masks.items()}
            with kept_threads() as choose, warnings.catch_warnings():
                choose(not on_gpu)
                warnings.simplefilter("ignore", UserWarning)  # of hooks and of slow operations
                found = self.compute(theta, _filled(x[rows], fill), _filled(y[rows], fill), dropped)
            yield found[:here]

    def _lead(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The gradient of each group's mean loss by its outputs (b, group, ...)."""
        return self.task.gradient(outputs, y, outputs.new_full(outputs.shape[:2], 1 / self.group))

    def _by_hooks(self, theta: Tensor, x: Tensor, y: Tensor, masks: Masks) -> Tensor:
        """By Opacus, for networks whose layers it knows and treat every record alone."""
        model = self.model.to(theta.dtype)
        places = torch.split(theta, [leaf.numel() for leaf in self.leaves])
        with torch.no_grad():
            for leaf, own in zip(self.leaves, places):
                leaf.copy_(own.view_as(leaf))
        for name, mask in masks.items():
            owner, _, last = name.rpartition(".")
            setattr(model.get_submodule(owner), last, mask.flatten(0, 1))
        with torch.enable_grad():
            outputs = self.hooked(x.flatten(0, 1).clone())
            lead = self._lead(outputs.detach().unflatten(0, y.shape[:2]), y)
            outputs.backward(lead.flatten(0, 1))
        rows = []
        for leaf in self.leaves:
            each = leaf.grad_sample
            if each is None:  # of a layer whose result nobody reads
                each = leaf.new_zeros((len(outputs), *leaf.shape))
            own = each.reshape(len(x), self.group, -1)
            rows.append(own.squeeze(1) if self.group == 1 else own.sum(1))
            leaf.grad_sample = leaf.grad = None
        return torch.cat(rows, 1)

    def _by_vmap(self, theta: Tensor, x: Tensor, y: Tensor, masks: Masks) -> Tensor:
        """By torch.func, each group alone."""

        named = self.each(unflatten(self.model, theta), x.clone(), y, dict(masks))
        return torch.cat([piece.reshape(len(x), -1) for piece in named.values()], dim=1)

    def _loss_at(self, parameters: Masks, x: Tensor, y: Tensor, masks: Masks) -> Tensor:
        return self._loss(call(self.model, parameters, x, masks), y)

    def _one_by_one(self, theta: Tensor, x: Tensor, y: Tensor, masks: Masks) -> Tensor:
        """By autograd, each group on a fresh copy."""
        own = copy.deepcopy(self.model)
        leaves = list(own.parameters())
        for leaf, piece in zip(leaves, unflatten(own, theta).values()):
            leaf.data = piece.clone()
        for name, mask in masks.items():
            owner, _, last = name.rpartition(".")
            setattr(own.get_submodule(owner), last, mask[0])
        with torch.enable_grad():
            backward(self._loss(own(x[0].clone()), y[0]))
        return torch.cat([taken_gradient(leaf).flatten() for leaf in leaves]).unsqueeze(0)

    def _loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        weight = torch.full((self.group,), 1 / self.group, device=outputs.device)
        return self.task.loss(outputs, y, weight)


def _hooks_know(chain: LayerChain) -> bool:
    """Whether Opacus has hooks for every layer with parameters, or such a layer of its own."""
    from opacus.grad_sample import GradSampleModule

    known = {Recurrence, *GradSampleModule.GRAD_SAMPLERS}
    return all(type(layer.module) in known for layer in chain.layers if layer.sizes)


def _hooked(model: nn.Module, chain: LayerChain) -> nn.Module:
    """The network with Opacus's hooks, and its recurrent layers in the place of torch's."""
    from opacus.grad_sample import GradSampleModule
    from opacus.validators import ModuleValidator

    for layer in chain.layers:
        if isinstance(layer.module, Recurrence):
            owner, _, last = layer.name.rpartition(".")
            setattr(model.get_submodule(owner), last, ModuleValidator.fix(layer.module.cell))
    hooked: nn.Module = GradSampleModule(model, loss_reduction="sum")
    return hooked


def _filled(rows: Tensor, length: int) -> Tensor:
    """The rows, and copies of the first one up to this length."""
    more = length - len(rows)
    return torch.cat([rows, rows[:1].expand(more, *rows.shape[1:])]) if more > 0 else rows


def _numbers_on_gpu(device: torch.device) -> int:
    """Numbers of per-record gradients in a GPU's memory at once."""
    total: int = torch.cuda.get_device_properties(device).total_memory
    return total // BYTES_A_NUMBER


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


def clip_factors(norms: Tensor, clip: float, stats: ContributionStats | None) -> Tensor:
    """The factors (b,) that clip gradients of `norms` (b,): at most 1, and 0 where a norm is not
    finite."""
    finite = finite_norms(norms, clip, stats)
    return torch.where(finite, (clip / norms.clamp_min(1e-30)).clamp_max(1.0), 0.0)
