"""Loss and metrics of one model on records."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from fedpriv.models.tasks import Task
from fedpriv.training.graph import Graph, captured
from fedpriv.training.vectors import backward, taken_gradient, unflatten

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
    """Evaluates a network with any float32 parameters, in evaluation mode.

    batch: records in memory at once. The loss is computed from all outputs together, so losses that
        compare records (Cox) see all of them.
    """

    def __init__(self, model: nn.Module, task: Task, batch: int = 1024) -> None:
        self.networks = _Networks(model)
        self.task = task
        self.batch = batch

    @torch.no_grad()  # and no inference mode: a forward pass may compute gradients of its own
    def evaluate(self, theta: Tensor, records: Labelled) -> Scores:
        """Mean loss over the records and the task's metrics at theta (d,)."""
        outputs = self.outputs(theta, records.x)
        loss = float(self.task.loss(outputs, records.y, records.weight))
        return loss, self.task.metrics(outputs.cpu().numpy(), records.labels)

    @torch.no_grad()
    def final_scores(self, outputs: np.ndarray, y: np.ndarray) -> dict[str, float]:
        """Mean loss and the task's final metrics of outputs (n, c) for labels (n, ...), n >= 1."""
        weight = torch.full((len(y),), 1 / len(y))
        loss = float(self.task.loss(torch.from_numpy(outputs), torch.from_numpy(y), weight))
        return {"loss": loss, **self.task.final_metrics(outputs, y)}

    @torch.no_grad()
    def outputs(self, theta: Tensor, x: Tensor) -> Tensor:
        """The outputs (n, c) for records x (n, ...) at theta (d,)."""
        network = self.networks.at(theta, x)
        # The network may overwrite the records.
        pieces = [network(rows.clone()) for rows in torch.split(x, self.batch)]
        return torch.cat(pieces) if len(pieces) > 1 else pieces[0]


class _Networks:
    """A network in evaluation mode at any parameters: its graph, which passes leave as it is, or a
    fresh copy for each evaluation."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.graphs: dict[Graph, nn.Module] = {}

    def at(self, theta: Tensor, x: Tensor) -> nn.Module:
        """The network at theta (d,) for records x (n, ...)."""
        found = captured(self.model, tuple(x.shape[1:]), x.dtype)
        if not isinstance(found, Graph):
            own = copy.deepcopy(self.model).eval()
        elif (known := self.graphs.get(found)) is not None:
            own = known
        else:
            own = self.graphs[found] = copy.deepcopy(found).eval()
        for leaf, start in zip(own.parameters(), unflatten(own, theta.detach().clone()).values()):
            leaf.data = start
        return own


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
    networks = _Networks(model)
    for x, y in silos:
        own = networks.at(theta, x)
        weight = theta.new_full((len(x),), 1 / len(x))
        with torch.enable_grad():
            part = task.loss(own(x.clone()), y, weight)
            backward(part)
        found = torch.cat([taken_gradient(leaf).flatten() for leaf in own.parameters()]).double()
        loss += float(part.detach()) / len(silos)
        squares += float(found.square().sum()) / len(silos)
        gradient += found / len(silos)
    spread = max(squares - float(gradient.square().sum()), 0.0)
    return TrainingLoss(loss, gradient, math.sqrt(spread))
