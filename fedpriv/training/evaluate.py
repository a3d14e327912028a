"""Loss and metrics of one model on records."""

from __future__ import annotations

import copy
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from fedpriv.models.tasks import Task
from fedpriv.training.layers.chain import LayerChain
from fedpriv.training.layers.mapping import layer_chain
from fedpriv.training.untouched import Snapshot, may_remember
from fedpriv.training.vectors import backward, flatten, taken_gradient, unflatten
from fedpriv.util.work import Work, run_work

Scores = tuple[float, dict[str, float]]
"""A loss, and metrics by name."""


@dataclass(frozen=True, eq=False)
class Labelled:
    """Records to evaluate on, n >= 1.

    x: (n, ...) and y: (n, ...), on the network's device.
    """

    x: Tensor
    y: Tensor

    @cached_property
    def labels(self) -> np.ndarray:
        """y as an array, for metrics."""
        return self.y.cpu().numpy()

    @cached_property
    def weight(self) -> Tensor:
        """(n,) float32: each record's share of the mean."""
        return torch.full((len(self.x),), 1 / len(self.x), device=self.x.device)


class Evaluator:
    """Evaluates a network with any float32 parameters, on a copy in evaluation mode.

    batch: records in memory at once. The loss is computed from all outputs together, so losses that
        compare records (Cox) see all of them.
    """

    def __init__(self, model: nn.Module, task: Task, batch: int = 1024) -> None:
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        self.task = task
        self.batch = batch
        self._flat = flatten(self.model)
        self._views = unflatten(self.model, self._flat)
        for name, own in self.model.named_parameters():
            assert own.dtype == self._flat.dtype, name
            own.data = self._views[name]
        self._known: dict[tuple[int, ...], bool] = {}
        self._copies = _Copies(self.model)

    def evaluate(self, theta: Tensor, records: Labelled) -> Scores:
        """Mean loss over the records and the task's metrics at theta (d,)."""
        return run_work(_Evaluated(self, theta, records))

    @torch.no_grad()  # and no inference mode: a forward pass may compute gradients of its own
    def run(self, theta: Tensor, records: Labelled) -> Scores:
        """The same, computed at once."""
        self._flat.copy_(theta)
        # The network may overwrite the records.
        model = self._copy(tuple(records.x.shape[1:]))
        pieces = [model(rows.clone()) for rows in torch.split(records.x, self.batch)]
        outputs = torch.cat(pieces) if len(pieces) > 1 else pieces[0]
        loss = float(self.task.loss(outputs, records.y, records.weight))
        return loss, self.task.metrics(outputs.cpu().numpy(), records.labels)

    def _copy(self, shape: tuple[int, ...]) -> nn.Module:
        """A network as it is before its first pass, at the parameters to evaluate."""
        if shape not in self._known:
            self._known[shape] = layer_chain(self.model, shape) is not None
        if self._known[shape]:
            return self.model
        own = self._copies.next()
        for name, parameter in own.named_parameters():
            parameter.data = self._views[name]  # a pass may give it other data
        return own


class _Copies:
    """Copies of a network, each as it is before its first pass: the same one as long as passes
    leave it so."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._used: Snapshot | None = None
        self._remembers = may_remember(model)

    def next(self) -> nn.Module:
        if self._used is None or self._remembers or not self._used.holds():
            self._used = Snapshot(copy.deepcopy(self._model).requires_grad_(True))
        return self._used.model


@dataclass(frozen=True, eq=False)
class _Evaluated(Work[Scores]):
    """An evaluation to compute. Equal networks on the same records can be evaluated together."""

    evaluator: Evaluator
    theta: Tensor
    records: Labelled

    @cached_property
    def batch_key(self) -> Hashable:
        chain = self._chain
        records = self.records
        if chain is None or chain.traced or not chain.stackable:
            return None
        if len(records.x) > self.evaluator.batch:
            return None
        same = ((t.data_ptr(), t.shape, t.dtype) for t in (records.x, records.y))
        return chain.batch_key, self.evaluator.task, self.theta.dtype, *same

    @cached_property  # what a network looks like takes long to ask
    def _chain(self) -> LayerChain | None:
        return layer_chain(self.evaluator.model, tuple(self.records.x.shape[1:]))

    def run(self) -> Scores:
        return self.evaluator.run(self.theta, self.records)

    @classmethod
    def run_batch(cls, works: Sequence[_Evaluated]) -> list[Scores]:
        first = works[0]
        chain = works[0]._chain
        assert chain is not None
        thetas = torch.stack([work.theta for work in works])
        task = first.evaluator.task
        records = first.records
        x, y, weight = (
            t.expand(len(works), *t.shape) for t in (records.x, records.y, records.weight)
        )
        with torch.no_grad():
            _, outputs = chain.forward(thetas, x, {})
            losses = task.loss(outputs, y, weight)
        metrics = [task.metrics(own, records.labels) for own in outputs.cpu().numpy()]
        return list(zip(losses.tolist(), metrics))


@dataclass(frozen=True)
class TrainingLoss:
    """The training loss F of a model.

    loss: the mean over silos of their mean losses F_i.
    gradient: of the loss, (d,).
    heterogeneity: sqrt(mean over silos |grad F_i - grad F|^2), a lower bound of the upsilon that
    bounds it at every model (Lowy, Ghafelebashi, Razaviyayn, AISTATS 2023, Assumption 5).
    """

    loss: float
    gradient: Tensor
    heterogeneity: float


def training_loss(
    model: nn.Module, theta: Tensor, *, silos: list[tuple[Tensor, Tensor]], task: Task
) -> TrainingLoss:
    """The training loss of a model in evaluation mode. `model` stays as it is.

    theta: parameters (d,).
    silos: x (n, ...) and y (n, ...) of each, n >= 1.
    """
    loss = 0.0
    squares = 0.0
    gradient = torch.zeros_like(theta, dtype=torch.float64)
    copies = _Copies(copy.deepcopy(model).eval())
    for x, y in silos:
        own = copies.next()
        leaves = list(own.parameters())
        for leaf, start in zip(leaves, unflatten(own, theta.detach().clone()).values()):
            leaf.data = start
        weight = theta.new_full((len(x),), 1 / len(x))
        with torch.enable_grad():
            part = task.loss(own(x.clone()), y, weight)
            backward(part)
        found = torch.cat([taken_gradient(leaf).flatten() for leaf in leaves]).double()
        loss += float(part.detach()) / len(silos)
        squares += float(found.square().sum()) / len(silos)
        gradient += found / len(silos)
    spread = max(squares - float(gradient.square().sum()), 0.0)
    return TrainingLoss(loss, gradient, math.sqrt(spread))
