"""All users of a block at once, for chains of supported layers, by hand-written batched passes.

A step of k users needs one kernel per operation instead of k, and no autograd graph. A step of
plain SGD allocates nothing and updates the parameters in the backward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpriv.training.layers.batched import BatchedLayer, Context
from fedpriv.training.layers.buffers import BufferPool, Masks
from fedpriv.training.layers.dense import BatchedSum
from fedpriv.training.schedule import Batch, BatchStep, Limits
from fedpriv.training.trainers.base import LocalProblem, TrainerState, UserTrainer, memory_budget
from fedpriv.training.trainers.compile_layers import Link, parameter_layout

PIECES_FROM = 8
"""Batches that need more than this many budgets of memory are computed in pieces."""


class Program:
    """A network bound to a step's shape (users, rows) and to the tensors of the active users.

    parameters: what the layers read.
    targets: where the layers add gradients.
    """

    def __init__(
        self,
        links: Sequence[Link],
        x: Tensor,
        *,
        parameters: Sequence[Tensor],
        targets: Sequence[Tensor],
        buffers: BufferPool,
        masks: Masks,
    ) -> None:
        self.x = x
        self.layers: list[BatchedLayer[Any]] = []
        own = iter(zip(parameters, targets))
        values = [x]
        first = True
        in_place = False
        read_again = {link.other for link in links}
        for index, link in enumerate(links):
            pairs = [next(own) for _ in link.module.parameters()]
            other = None if link.other is None else values[link.other + 1]
            context = Context(
                buffers, masks, index, in_place=in_place, first=first, pool=link.pool, other=other
            )
            h = values[-1]
            read = [pair[0] for pair in pairs]
            written = [pair[1] for pair in pairs]
            layer = link.batched(link.module, h, parameters=read, targets=written, context=context)
            self.layers.append(layer)
            values.append(layer.y)
            first = first and not pairs
            in_place = not layer.keeps_output and index not in read_again
        self.outputs = values[-1]
        self.gradient = grad = buffers.gradient_like(self.outputs)
        lowest = next(i for i, layer in enumerate(self.layers) if layer.parameters)
        sums = [(link.other, layer) for link, layer in zip(links, self.layers)]
        self.backwards: list[tuple[BatchedLayer[Any], Tensor, list[Tensor]]] = []
        for index in range(len(links) - 1, lowest - 1, -1):
            layer = self.layers[index]
            kept = [s.kept for at, s in sums if at == index and isinstance(s, BatchedSum)]
            self.backwards.append((layer, grad, kept))
            grad = layer.attach(grad)

    def load(self, x: Tensor) -> None:
        """Copy the records of a batch, (a, b, ...)."""
        self.x.copy_(x)
        self.layers[0].prepare()

    def forward(self) -> Tensor:
        """Outputs (a, b, c), valid until the next call."""
        for layer in self.layers:
            layer.forward()
        return self.outputs

    def backward(self, gradient: Tensor, scale: float) -> None:
        """Add `scale` times the gradients of the parameters to the targets, given the gradient of
        the outputs."""
        self.gradient.copy_(gradient)
        for layer, grad, kept in self.backwards:
            for more in kept:
                grad.add_(more)  # of what the layer wrote, as later layers read it
            layer.backward(scale)


@dataclass
class StackedState(TrainerState):
    """masks: of the block's users.
    gradients: scratch memory shaped as the parameters, made when a step first needs it.
    programs: a cache, by (users, rows, whether the targets are the parameters themselves).
    """

    masks: Masks
    gradients: list[Tensor] = field(default_factory=list)
    programs: dict[tuple[int, int, bool], Program] = field(default_factory=dict)


class Batched(UserTrainer[StackedState]):
    """Trains the users of a block in lockstep.

    links: how `compile_layers` computes the problem's model.
    """

    name = "batched"
    pads = True

    def __init__(self, problem: LocalProblem, links: Sequence[Link]) -> None:
        super().__init__(problem, parameter_layout(links))
        self.links = links
        device = problem.start.device
        cost = problem.cost
        self.buffers = BufferPool(device)
        self.dropping = [i for i, link in enumerate(links) if link.layer.draws]
        self.loaded: tuple[Program, Batch] | None = None
        self.limits = Limits(
            user_bytes=4 * (3 + problem.extra_numbers) * cost.parameters,
            row_bytes=6 * cost.activations,
            budget=memory_budget(device),
            # A GPU's calls take longer, and its numbers less time.
            row_products=0 if device.type == "cuda" else cost.products,
        )

    def joins(self, rows: int) -> bool:
        return self.limits.stack(rows) > 1

    @torch.inference_mode()
    def init(self, seats: int) -> StackedState:
        self.loaded = None  # releases the last block's memory
        parameters = self._stacks(seats)
        nobody = np.zeros(seats, np.uint64)
        masks = Masks(
            nobody, layers=self.dropping, budget=self.limits.budget, device=self.buffers.device
        )
        return StackedState(parameters, self.problem.recipe.optimizer.init(parameters), masks)

    def begin_dropout(self, state: StackedState, seats: np.ndarray, keys: np.ndarray) -> None:
        state.masks.rekey(seats, keys)

    @torch.inference_mode()
    def step(self, state: StackedState, step: BatchStep) -> None:
        batch = step.batch
        rows = step.batch.weight.shape[1]
        if rows * self.limits.row_bytes > PIECES_FROM * self.limits.budget:
            rows_at_once = max(1, self.limits.budget // self.limits.row_bytes)
            self._descend(state, self._gradients_in_pieces(state, step, rows_at_once))
            return
        state.masks.at(step.epochs, step.places)
        program = self._program(state, batch, fused=self.problem.fused)
        gradient = self.problem.task.gradient(program.forward(), batch.y, batch.weight)
        if self.problem.fused:
            program.backward(gradient, -self.problem.recipe.lr)
        else:
            gradients = _zeroed_gradients(state, len(batch.x))
            program.backward(gradient, 1.0)
            self._descend(state, gradients)

    def _program(self, state: StackedState, batch: Batch, *, fused: bool) -> Program:
        """The program of the batch's shape, with its records loaded, perhaps by the last step.

        fused: whether it moves the parameters; else it adds to the gradients.
        """
        users, rows = batch.weight.shape
        program = state.programs.get((users, rows, fused))
        if program is None:
            parameters = [stack[:users] for stack in state.parameters]
            program = state.programs[users, rows, fused] = Program(
                self.links,
                self.buffers.take("x", (users, rows, *self.problem.shape)),
                parameters=parameters,
                targets=parameters if fused else _gradients(state, users),
                buffers=self.buffers,
                masks=state.masks,
            )
        if self.loaded is None or self.loaded[0] is not program or self.loaded[1] is not batch:
            program.load(batch.x)
            self.loaded = program, batch
        return program

    def _gradients_in_pieces(self, state: StackedState, step: BatchStep, rows: int) -> list[Tensor]:
        """The gradients of a batch that does not fit in memory. All outputs are computed first;
        then each piece again, with its part of the outputs' gradient and the same masks."""
        batch = step.batch
        pieces = [
            Batch(*parts)
            for parts in zip(*(torch.split(t, rows, 1) for t in (batch.x, batch.y, batch.weight)))
        ]
        outputs = []
        for i, piece in enumerate(pieces):
            state.masks.at(step.epochs, step.places, i * rows)
            outputs.append(self._program(state, piece, fused=False).forward().clone())
        gradient = self.problem.task.gradient(torch.cat(outputs, 1), batch.y, batch.weight)
        gradients = _zeroed_gradients(state, len(batch.x))
        for i, (piece, part) in enumerate(zip(pieces, torch.split(gradient, rows, 1))):
            state.masks.at(step.epochs, step.places, i * rows)
            program = self._program(state, piece, fused=False)
            program.forward()
            program.backward(part, 1.0)
        return gradients


def _gradients(state: StackedState, users: int) -> list[Tensor]:
    """Scratch memory for the gradients of the first users."""
    if not state.gradients:
        state.gradients = [torch.empty_like(stack) for stack in state.parameters]
    return [gradient[:users] for gradient in state.gradients]


def _zeroed_gradients(state: StackedState, users: int) -> list[Tensor]:
    return [gradient.zero_() for gradient in _gradients(state, users)]
