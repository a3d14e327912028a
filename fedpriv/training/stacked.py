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
from fedpriv.training.road import Road, budget
from fedpriv.training.schedule import Batch, Limits
from fedpriv.training.size import measure
from fedpriv.training.space import Masks, Space

STEP_TIME = 3e4
"""Nanoseconds that one layer's kernels take in a step whatever their size; measured on one core."""
PIECES_FROM = 8
"""Batches that take more than so many budgets of memory are computed in pieces."""


class Program:
    """A network bound to the shape of a step: `users` active users with `rows` rows each."""

    def __init__(self, chain: list[Link], x: Tensor, parameters: list[Tensor], space: Space, masks: Masks) -> None:
        self.x, self.layers = x, []
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

    def load(self, x: Tensor) -> None:
        """Take the records of a batch, (a, b, ...)."""
        self.x.copy_(x)
        self.layers[0].prepare()

    def forward(self) -> Tensor:
        """Outputs (a, b, c), valid until the next call."""
        for layer in self.layers:
            layer.forward()
        return self.outputs

    def backward(self, gradient: Tensor, lr: float) -> None:
        """Move the parameters, given the gradient of the outputs."""
        self.gradient.copy_(gradient)
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
        shapes = [p.shape for p in module.parameters()]
        pieces = theta.split([shape.numel() for shape in shapes])
        self.orders = [link.order(p) for link in chain for p in link.module.parameters()]
        self.starts = [piece.view(shape).permute(o) for piece, shape, o in zip(pieces, shapes, self.orders)]
        size = measure(module, shape)
        self.limits = Limits(
            step_cost=STEP_TIME * (1 + size.layers) / size.row_time,
            user_bytes=12 * size.parameters,
            row_bytes=6 * size.activations,
            budget=budget(theta),
        )

    @torch.inference_mode()
    def begin(self, users: int) -> None:
        self.programs: dict[tuple[int, int], Program] = {}
        self.loaded: Batch | None = None
        self.parameters = []
        for index, start in enumerate(self.starts):
            self.parameters.append(self.space.take(("parameter", index), (users, *start.shape)))
            self.parameters[-1].copy_(start)

    @torch.inference_mode()
    def step(self, batch: Batch, lr: float) -> None:
        rows = batch.weight.shape[1]
        if rows * self.limits.row_bytes > PIECES_FROM * self.limits.budget:
            self._step_in_pieces(batch, lr, max(1, self.limits.budget // self.limits.row_bytes))
            return
        program = self._program(batch)
        outputs = program.forward()
        program.backward(self.task.gradient(outputs, batch.y, batch.weight), lr)

    def _program(self, batch: Batch) -> Program:
        """The program of the batch's shape, with its records loaded (they may still be there from the last step)."""
        a, b = key = batch.weight.shape
        if key not in self.programs:
            x = self.space.take("x", (a, b, *self.shape))
            self.programs[key] = Program(self.chain, x, self.parameters, self.space, self.masks)
        if batch is not self.loaded:
            self.programs[key].load(batch.x)
            self.loaded = batch
        return self.programs[key]

    def _step_in_pieces(self, batch: Batch, lr: float, rows: int) -> None:
        """The same step for a batch that would not fit in memory: outputs first, then each piece again with its part of
        the gradient and the same masks, from the same parameters."""
        pieces = [Batch(*parts) for parts in zip(*(t.split(rows, 1) for t in (batch.x, batch.y, batch.weight)))]
        seeds = [self.masks.fresh_seed() for _ in range(len(pieces) + 1)]
        outputs = []
        for piece, seed in zip(pieces, seeds):
            self.masks.reseed(seed)
            outputs.append(self._program(piece).forward().clone())
        gradient = self.task.gradient(torch.cat(outputs, 1), batch.y, batch.weight)
        active = [stack[: len(batch.x)] for stack in self.parameters]
        start, total = [stack.clone() for stack in active], [stack.clone() for stack in active]
        for piece, seed, part in zip(pieces, seeds, gradient.split(rows, 1)):
            self.masks.reseed(seed)
            program = self._program(piece)
            program.forward()
            program.backward(part, lr)
            for stack, before, after in zip(active, start, total):
                after.add_(stack).sub_(before)
                stack.copy_(before)
        for stack, after in zip(active, total):
            stack.copy_(after)
        self.masks.reseed(seeds[-1])

    def deltas(self) -> Tensor:
        pieces = []
        for stack, order in zip(self.parameters, self.orders):
            back = sorted(range(len(order)), key=order.__getitem__)
            pieces.append(stack.permute(0, *(dim + 1 for dim in back)).flatten(1))
        return torch.cat(pieces, dim=1).sub_(self.theta)
