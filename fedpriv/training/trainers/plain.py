"""One user after another by autograd: any network, and nobody else in sight."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from fedpriv.training.batches import Batch, TrainingUsers
from fedpriv.training.graph import Uncaptured, captured, fresh
from fedpriv.training.modes import kept_generators, kept_threads, seed_generators
from fedpriv.training.trainers.base import (
    WORTH_THREADS,
    LocalProblem,
    Result,
    TorchTrainer,
    memory_budget,
)
from fedpriv.training.vectors import backward, taken_gradient
from fedpriv.util.streams import branch


class Plain(TorchTrainer):
    """Each user trains alone, from a fresh start. A graph without buffers has nothing to make
    fresh."""

    name = "plain"
    one_by_one = True

    def __init__(self, problem: LocalProblem) -> None:
        super().__init__(problem)
        place = problem.shape, problem.dtype
        self.template = fresh(problem.model, *place).train()
        uncaptured = isinstance(captured(problem.model, *place), Uncaptured)
        self.copies = uncaptured or any(True for _ in self.template.buffers())
        self._use(self.template)

    def _use(self, module: nn.Module) -> None:
        self.module = module
        self.leaves = list(module.parameters())

    def blocks(self, counts: np.ndarray, size: int) -> list[tuple[int, int]]:
        """Users whose results fit the budget."""
        start = self.problem.start
        most = max(1, memory_budget(start.device) // (4 * len(start)))
        return [(i, min(i + most, len(counts))) for i in range(0, len(counts), most)]

    def run(self, users: TrainingUsers, memory: Mapping[str, np.ndarray] | None) -> Result:
        work = np.minimum(users.counts, users.size) * self.problem.cost.products
        found = []
        with kept_threads() as choose, kept_generators(self.problem.start.device):
            for place in range(len(users.positions)):
                choose(bool(work[place] < WORTH_THREADS))
                if self.copies:
                    self._use(copy.deepcopy(self.template))
                found.append(self.train(users.part(slice(place, place + 1)), memory))
        changes, kept = zip(*found)
        return torch.cat(changes), {
            name: torch.cat([own[name] for own in kept]) for name in kept[0]
        }

    def gradients(self, parameters: list[Tensor], batch: Batch, keys: np.ndarray) -> list[Tensor]:
        for leaf, own in zip(self.leaves, parameters):
            leaf.data = own[0]
            leaf.grad = None
        [seed] = branch(branch(keys[:1], batch.epoch), batch.place).tolist()
        seed_generators(batch.x.device, seed >> 1)
        with torch.enable_grad():
            outputs = self.module(batch.x[0].clone())  # which the network may overwrite
            backward(self.problem.task.loss(outputs, batch.y[0], batch.weight[0]))
        with torch.no_grad():
            for leaf, own in zip(self.leaves, parameters):
                if leaf.data_ptr() != own.data_ptr():  # the forward pass has given it other data
                    own.copy_(leaf.data)
            return [taken_gradient(leaf).unsqueeze(0) for leaf in self.leaves]
