"""Sums of clipped per-record gradients, without a gradient per record where the network allows it.

In a chain whose parameters all sit in linear layers, a record's gradient in layer l is the outer product of the layer's
input a_l and of the loss's gradient g_l at its output, so its squared norm is the sum over layers of
|g_l|^2 (|a_l|^2 + 1), the one for the bias. One backward pass gives every g_l; weighting the rows of g_l gives the sum
of clipped gradients in one product a layer (Goodfellow: Efficient per-example gradient computations, 2015). Memory is
that of the activations. Other networks go through torch.func, in pieces that fit in memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedpriv.tally import Tally
from fedpriv.tasks import Task
from fedpriv.together import Work, done
from fedpriv.training.chain import Chain, products
from fedpriv.training.modes import in_mode, seeded_dropout
from fedpriv.training.per_record import MAX_NUMBERS_IN_MEMORY, clip_factors, per_group_gradients
from fedpriv.training.shared_state import refuse_shared_state
from fedpriv.training.trainers.compile_layers import Link, compile_layers
from fedpriv.training.trainers.layers import dense


class ClippedGradients(ABC):
    """Per-record gradients of `task` on `model`, each clipped to L2 norm `clip` over the whole vector."""

    draws = True
    """Whether the network may draw random numbers."""

    def __init__(self, model: nn.Module, task: Task, clip: float) -> None:
        self.model, self.task, self.clip = model, task, clip

    def seeded(self, device: torch.device, seed: int) -> AbstractContextManager[None]:
        """Context in which the network draws from `seed`, if it draws at all."""
        return seeded_dropout(device, seed) if self.draws else nullcontext()

    def sum(self, theta: Tensor, x: Tensor, y: Tensor, *, tally: Tally | None = None) -> Tensor:
        """(d,) float64, at `theta` (d,) over the records x (b, ...), y (b, ...).

        Gradients are computed in the data type of `theta`, mostly float32; they are clipped and summed in float64.
        A gradient with NaN or infinity counts as zero: that depends on its record and the model alone, so replacing a
        record still moves the sum by at most 2 * clip. tally: counts them, all gradients and the clipped ones.
        `model` keeps its parameters and its mode; dropout draws from torch's global generator.
        """
        return done(_Sum(self, theta, x, y, tally))

    def sum_alone(self, theta: Tensor, x: Tensor, y: Tensor, *, tally: Tally | None) -> Tensor:
        """The same, where nobody gathers such sums."""
        total = theta.new_zeros(len(theta), dtype=torch.float64)
        with in_mode(self.model, train=True):
            size = self.rows_at_once(len(theta))
            for rows, labels in zip(torch.split(x, size), torch.split(y, size)):
                if len(rows):
                    total += self._sum(theta, rows, labels, tally=tally)
        return total

    @property
    def together(self) -> Hashable:
        """Equal for networks, on equal tasks, whose sums `sums` can make together; None: alone."""
        return None

    def sums(self, parts: Sequence[_Sum]) -> list[Tensor]:
        """The sums of several networks like this one, on batches of one shape."""
        raise NotImplementedError

    @abstractmethod
    def rows_at_once(self, parameters: int) -> int:
        """Records that fit in memory together."""

    @abstractmethod
    def _sum(self, theta: Tensor, x: Tensor, y: Tensor, *, tally: Tally | None) -> Tensor:
        """(d,) float64 of one piece."""

    def _factors(self, norms: Tensor, tally: Tally | None) -> Tensor:
        return clip_factors(norms, self.clip, tally)


@dataclass(frozen=True, eq=False)
class _Sum(Work[Tensor]):
    """A sum that is asked for."""

    gradients: ClippedGradients
    theta: Tensor
    x: Tensor
    y: Tensor
    tally: Tally | None

    @property
    def kind(self) -> Hashable:
        network = self.gradients.together
        if network is None or not 0 < len(self.x) <= self.gradients.rows_at_once(len(self.theta)):
            return None
        return network, *((t.shape, t.dtype, t.device) for t in (self.theta, self.x, self.y))

    def alone(self) -> Tensor:
        return self.gradients.sum_alone(self.theta, self.x, self.y, tally=self.tally)

    @classmethod
    def together(cls, works: Sequence[_Sum]) -> list[Tensor]:
        first = works[0]
        size = max(1, first.gradients.rows_at_once(len(first.theta)) // len(first.x))
        pieces = [works[start : start + size] for start in range(0, len(works), size)]
        return [total for piece in pieces for total in first.gradients.sums(piece)]


class _Outer(ClippedGradients):
    """Networks whose parameters sit in linear layers, each called once on one row a record."""

    def __init__(self, model: nn.Module, task: Task, clip: float, *, plan: _Plan) -> None:
        super().__init__(model, task, clip)
        self.chain, self.shapes, self.stacked = plan.chain, plan.shapes, plan.stacked
        self.layers = [layer for layer in self.chain if isinstance(layer, nn.Linear)]
        self.draws = plan.stacked is None

    @property
    def together(self) -> Hashable:
        return None if self.stacked is None else (self.stacked.name, self.task)

    def sums(self, parts: Sequence[_Sum]) -> list[Tensor]:
        assert self.stacked is not None
        x, y = (torch.stack([getattr(part, name) for part in parts]) for name in ("x", "y"))
        with torch.enable_grad():
            inputs, outputs = self.stacked.forward(torch.stack([part.theta for part in parts]), x)
            rows = outputs[-1].flatten(0, 1).unsqueeze(1)
            losses = self.task.loss(rows, y.flatten(0, 1).unsqueeze(1), rows.new_ones((len(rows), 1)))
        grads = [g.double() for g in torch.autograd.grad(losses.sum(), outputs)]
        inputs = [a.double() for a in inputs]
        squares = grads[0].new_zeros(x.shape[:2])
        for g, a, layer in zip(grads, inputs, self.layers):
            squares += g.square().sum(2) * (a.square().sum(2) + (layer.bias is not None))
        norms = squares.sqrt()
        factors = torch.stack([part.gradients._factors(own, part.tally) for part, own in zip(parts, norms)])
        factors = factors.unsqueeze(2)
        pieces: list[Tensor] = []
        for g, a, layer in zip(grads, inputs, self.layers):
            g, a = (torch.where(factors > 0, rows, 0.0) for rows in (g * factors, a))
            pieces.append(products(g.transpose(1, 2), a).flatten(1))
            if layer.bias is not None:
                pieces.append(g.sum(1))
        return list(torch.cat(pieces, 1))

    def rows_at_once(self, parameters: int) -> int:
        return max(1, MAX_NUMBERS_IN_MEMORY // sum(layer.in_features + layer.out_features for layer in self.layers))

    def _sum(self, theta: Tensor, x: Tensor, y: Tensor, *, tally: Tally | None) -> Tensor:
        inputs, outputs = self._run(theta, x)
        one_each = theta.new_ones((len(x), 1))
        with torch.enable_grad():
            losses = self.task.loss(outputs[-1].unsqueeze(1), y.unsqueeze(1), one_each)
        grads = [g.double() for g in torch.autograd.grad(losses.sum(), outputs)]
        inputs = [a.double() for a in inputs]
        squares = grads[0].new_zeros(len(x))
        for g, a, layer in zip(grads, inputs, self.layers):
            squares += g.square().sum(1) * (a.square().sum(1) + (layer.bias is not None))
        factors = self._factors(squares.sqrt(), tally).unsqueeze(1)
        pieces: list[Tensor] = []
        for g, a, layer in zip(grads, inputs, self.layers):
            g, a = (torch.where(factors > 0, rows, 0.0) for rows in (g * factors, a))
            pieces.append((g.T @ a).flatten())
            if layer.bias is not None:
                pieces.append(g.sum(0))
        return torch.cat(pieces)

    def _run(self, theta: Tensor, x: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """What each linear layer reads and writes, (b, features) each; the last one's output is the network's."""
        inputs: list[Tensor] = []
        outputs: list[Tensor] = []
        sizes = [shape.numel() for shape in self.shapes]
        parameters = iter([v.view(shape) for v, shape in zip(torch.split(theta, sizes), self.shapes)])
        with torch.enable_grad():
            h = x
            for layer in self.chain:
                if not isinstance(layer, nn.Linear):
                    h = layer(h)
                    continue
                inputs.append(h.detach())
                h = functional.linear(h, next(parameters), None if layer.bias is None else next(parameters))
                outputs.append(h if h.requires_grad else h.requires_grad_())
        return inputs, outputs


class _PerRecord(ClippedGradients):
    """Any network that torch.func can batch: one gradient a record, then clipped."""

    def __init__(self, model: nn.Module, task: Task, clip: float) -> None:
        super().__init__(model, task, clip)
        self.gradients = per_group_gradients(model, task, group=1)

    def rows_at_once(self, parameters: int) -> int:
        return max(1, MAX_NUMBERS_IN_MEMORY // parameters)

    def _sum(self, theta: Tensor, x: Tensor, y: Tensor, *, tally: Tally | None) -> Tensor:
        gradients = self.gradients(theta, x.unsqueeze(1), y.unsqueeze(1), {}).double()
        factors = self._factors(gradients.norm(dim=1), tally)
        return factors @ torch.where(factors.unsqueeze(1) > 0, gradients, 0.0)


def clipped_gradients(model: nn.Module, task: Task, clip: float, *, shape: tuple[int, ...]) -> ClippedGradients:
    """The fastest way to sum clipped gradients of `model` on records of `shape`.

    Raises ConfigError for a network that mixes records, such as one with BatchNorm.
    """
    known = _plans.setdefault(model, {})
    if shape not in known:
        refuse_shared_state(model)
        known[shape] = _planned(model, shape)
    plan = known[shape]
    return _PerRecord(model, task, clip) if plan is None else _Outer(model, task, clip, plan=plan)


@dataclass(frozen=True)
class _Plan:
    """What `_Outer` needs to know of a network. chain: its layers. shapes: of its parameters. stacked: for many
    at once."""

    chain: tuple[nn.Module, ...]
    shapes: tuple[torch.Size, ...]
    stacked: Chain | None


_plans: WeakKeyDictionary[nn.Module, dict[tuple[int, ...], _Plan | None]] = WeakKeyDictionary()
"""By network, whose layers stay as they are."""


def _planned(model: nn.Module, shape: tuple[int, ...]) -> _Plan | None:
    """None for a network that `_Outer` does not understand."""
    links = compile_layers(model, shape)
    if links is None or links[-1].kind is not dense.Linear or not all(_leaves_rows_alone(link) for link in links):
        return None
    shapes = tuple(parameter.shape for parameter in model.parameters())
    return _Plan(tuple(link.module for link in links), shapes, Chain.of(model, shape))


def _leaves_rows_alone(link: Link) -> bool:
    """Whether `_Outer` understands the link: linear, or without parameters and not overwriting what it reads."""
    bare = not any(True for _ in link.module.parameters()) and not getattr(link.module, "inplace", False)
    return link.kind is dense.Linear or bare
