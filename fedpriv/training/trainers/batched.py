"""Many users at once: torch.func.vmap over a captured network. For simulations without a compiler
or on a GPU; it does not promise that a user has the same bits in other company."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from itertools import pairwise

import numpy as np
from torch import Tensor
from torch.func import grad, vmap

from fedpriv.training.batches import Batch, TrainingUsers
from fedpriv.training.graph import Graph, captured, vmaps
from fedpriv.training.layers.chain import Unmapped
from fedpriv.training.modes import kept_generators, kept_threads, seed_generators
from fedpriv.training.trainers.base import (
    WORTH_THREADS,
    LocalProblem,
    Result,
    TorchTrainer,
    memory_budget,
)
from fedpriv.training.vectors import call
from fedpriv.util.streams import branch

COPIES = 5
"""How many copies of a row's activations autograd holds at its peak; measured."""


class Batched(TorchTrainer):
    """Trains users in lockstep: one pass for each step of all of them."""

    name = "batched"

    def __init__(self, problem: LocalProblem, network: Graph) -> None:
        super().__init__(problem)
        self.names = [name for name, _ in network.named_parameters()]

        def loss(parameters: dict[str, Tensor], x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
            return problem.task.loss(call(network, parameters, x), y, weight)

        network.train()
        self.gradient = vmap(grad(loss), randomness="different")

    joins = True

    def blocks(self, counts: np.ndarray, size: int) -> list[tuple[int, int]]:
        """Users with several batches, and those with about equal single ones; as many as fit."""
        cost = self.problem.cost
        halvings = np.ceil(np.log2(counts))
        halvings[counts > size] = -1
        edges = [0, *(np.flatnonzero(np.diff(halvings)) + 1).tolist(), len(counts)]
        found = []
        for first, stop in pairwise(edges):
            rows = min(size, int(counts[first]))
            numbers_of_user = 8 * cost.parameters + rows * (
                COPIES * cost.activations + math.prod(self.problem.shape)
            )
            most = max(1, memory_budget(self.problem.start.device) // (4 * numbers_of_user))
            found += [(i, min(i + most, stop)) for i in range(first, stop, most)]
        return found

    def run(self, users: TrainingUsers, memory: Mapping[str, np.ndarray] | None) -> Result:
        work = np.minimum(users.counts, users.size).sum() * self.problem.cost.products
        with (
            kept_threads() as choose,
            kept_generators(self.problem.start.device),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore", UserWarning)  # of operations that vmap computes slowly
            choose(bool(work < WORTH_THREADS))
            return self.train(users, memory)

    def gradients(self, parameters: list[Tensor], batch: Batch, keys: np.ndarray) -> list[Tensor]:
        [seed] = branch(branch(keys[:1], batch.epoch), batch.place).tolist()
        seed_generators(batch.x.device, seed >> 1)
        named = dict(zip(self.names, parameters))
        found = self.gradient(named, batch.x.clone(), batch.y, batch.weight)
        return [found[name] for name in self.names]


def batched(problem: LocalProblem, *, draws: bool = True) -> Batched | Unmapped:
    """The trainer of the problem, or why vmap does not run its network.

    draws: whether it may draw random numbers, which then depend on a user's place in the stack.
    """
    network = captured(problem.model, problem.shape, problem.dtype)
    if not isinstance(network, Graph):
        return Unmapped(network.reason)
    if any(True for _ in network.buffers()):
        return Unmapped("it has buffers, which users of a stack would share")
    randomness = "different" if draws else "error"
    if not vmaps(network, problem.shape, problem.dtype, randomness):
        return Unmapped("vmap does not know one of its operations, or it draws random numbers")
    return Batched(problem, network)
