"""The fast road: networks that are chains of known layers, trained by hand-written batched passes.

A step of k users costs one kernel per operation instead of k, builds no autograd graph, allocates nothing, and
updates parameters in the backward pass.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedpriv.tasks import Task
from fedpriv.training.chain import Link, links
from fedpriv.training.dense import Context, Layer
from fedpriv.training.road import Road
from fedpriv.training.schedule import Batch, Limits
from fedpriv.training.size import measure
from fedpriv.training.space import Masks, Space


class Program:
    """A network bound to the shape of a step: `users` active users with `rows` rows each."""

    def __init__(
        self, chain: list[Link], x: Tensor, parameters: list[Tensor], space: Space, masks: Masks, task: Task
    ) -> None:
        self.x, self.task, self.layers = x, task, []
        own, h, first, in_place = iter(parameters), x, True, False
        for index, link in enumerate(chain):
            mine = [next(own)[: len(x)] for _ in link.module.parameters()]
            context = Context(space, masks, index, in_place, first, link.pool)
            layer: Layer = link.kind(link.module, h, mine, context)
            self.layers.append(layer)
            h, first, in_place = layer.y, first and not mine, not layer.keeps_output
        self.outputs = h
        self.gradient = grad = space.gradient_like(h)
        lowest = next(i for i, layer in enumerate(self.layers) if layer.parameters)
        self.backwards = self.layers[lowest:][::-1]
        for layer in self.backwards:
            grad = layer.attach(grad)
        self.loaded: Batch | None = None

    def run(self, batch: Batch, lr: float) -> None:
        """One SGD step."""
        if batch is not self.loaded:
            self.x.copy_(batch.x)
            self.layers[0].prepare()
            self.loaded = batch
        for layer in self.layers:
            layer.forward()
        self.gradient.copy_(self.task.gradient(self.outputs, batch.y, batch.weight))
        for layer in self.backwards:
            layer.backward(lr)


class Stacked(Road):
    """Trains the users of a block in lockstep. `module` must be a chain of known layers (`chain.links`)."""

    def __init__(
        self, module: nn.Module, theta: Tensor, shape: tuple[int, ...], task: Task, generator: torch.Generator
    ) -> None:
        chain = links(module, shape)
        assert chain is not None
        self.chain, self.theta, self.shape, self.task = chain, theta, shape, task
        self.space, self.masks = Space(theta.device), Masks(generator)
        self.orders = [link.order(p) for link in chain for p in link.module.parameters()]
        shapes = [p.shape for p in module.parameters()]
        pieces = theta.split([shape.numel() for shape in shapes])
        self.starts = [
            piece.view(shape).permute(order) for piece, shape, order in zip(pieces, shapes, self.orders)
        ]
        size = measure(module, shape)
        self.limits = Limits(300, 12 * size.parameters, 6 * size.activations, 16 << 20)

    @torch.inference_mode()
    def begin(self, users: int) -> None:
        self.programs: dict[tuple[int, int], Program] = {}
        self.parameters = []
        for index, start in enumerate(self.starts):
            self.parameters.append(self.space.take(("parameter", index), (users, *start.shape)))
            self.parameters[-1].copy_(start)

    @torch.inference_mode()
    def step(self, batch: Batch, lr: float) -> None:
        a, b = batch.weight.shape
        if (a, b) not in self.programs:
            x = self.space.take("x", (a, b, *self.shape))
            self.programs[a, b] = Program(self.chain, x, self.parameters, self.space, self.masks, self.task)
        self.programs[a, b].run(batch, lr)

    def deltas(self) -> Tensor:
        pieces = []
        for stack, order in zip(self.parameters, self.orders):
            back = sorted(range(len(order)), key=order.__getitem__)
            pieces.append(stack.permute(0, *(dim + 1 for dim in back)).flatten(1))
        return torch.cat(pieces, dim=1).sub_(self.theta)
