"""The contract of trainers of blocks of users, and the base of those that train in lockstep."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from fedpriv.data.silo import SiloData
from fedpriv.models.tasks import Task
from fedpriv.training.cost import ModelCost
from fedpriv.training.description import Execution, Recipe
from fedpriv.training.schedule import STACK, BatchStep, Limits, batches, equal_batches
from fedpriv.training.threads import one_thread
from fedpriv.training.vectors import ParameterLayout

if TYPE_CHECKING:
    from fedpriv.training.optimizers import Slots


WORTH_THREADS = 2**26
"""Multiply-adds of a batch step from which on a second processor thread pays."""


@dataclass(frozen=True)
class LocalProblem:
    """What all users who train together share.

    model: a template that never changes.
    cost: of `model`.
    shape: of one record's features.
    task: gives the loss.
    recipe: of the training.
    start: parameters (d,) float32 on the training device.
    correction: (d,) float32 that is added to every gradient, or None.
    dtype: of features.
    execution: the settings' choice of a trainer.
    """

    model: nn.Module
    cost: ModelCost
    shape: tuple[int, ...]
    task: Task
    recipe: Recipe
    start: Tensor
    correction: Tensor | None = None
    dtype: torch.dtype = torch.float32
    execution: Execution = Execution()

    @property
    def fused(self) -> bool:
        """Whether a step is exactly w -= lr * (gradient of the loss)."""
        return self.recipe.optimizer.plain and not self.recipe.proximal and self.correction is None

    @property
    def extra_numbers(self) -> int:
        """Numbers that a step needs for each parameter of each user, in addition to a fused
        step's."""
        return 0 if self.fused else 2 + len(self.recipe.optimizer.slots)


@dataclass
class TrainerState:
    """The state of a block's training, which `UserTrainer.step` changes in place.

    parameters: stacks (users, ...) in the trainer's layout.
    slots: the optimiser's memory.
    """

    parameters: list[Tensor]
    slots: Slots


@dataclass(frozen=True)
class TrainingUsers:
    """Users who train, by number of records, descending.

    data: the silo's records.
    positions: (k,) indices into data.users.
    size: of batches.
    orders: (k,) uint64, each user's key of the orders of its batches; None where every user's
        records fit in one.
    dropout: (k,) uint64, each user's key of dropout.
    """

    data: SiloData
    positions: np.ndarray
    size: int
    orders: np.ndarray | None
    dropout: np.ndarray

    @property
    def counts(self) -> np.ndarray:
        """Number of their records, (k,) int64."""
        counts: np.ndarray = self.data.counts[self.positions]
        return counts

    @property
    def ids(self) -> np.ndarray:
        """Their global ids, (k,) int64."""
        ids: np.ndarray = self.data.users[self.positions]
        return ids

    def part(self, which: slice | np.ndarray) -> TrainingUsers:
        """Some of the users."""
        orders = None if self.orders is None else self.orders[which]
        return replace(
            self, positions=self.positions[which], orders=orders, dropout=self.dropout[which]
        )


Result = tuple[Tensor, Mapping[str, Tensor]]
"""Final minus starting parameters, (k, d) float32, and the optimiser's memory of every user."""


class BlockTrainer(ABC):
    """Trains users who all start from the same parameters.

    name: of the trainer.
    reason: why it was chosen.
    one_by_one: whether each user's result is a block of contributions of its own, whoever else is
        in a block of training.
    """

    name: ClassVar[str]
    reason = ""
    one_by_one: ClassVar[bool] = False

    def joins(self, rows: int) -> bool:
        """Whether users of several silos, whose largest batches have `rows` rows, train faster
        together than silo by silo."""
        return False

    @abstractmethod
    def blocks(self, counts: np.ndarray, size: int) -> list[tuple[int, int]]:
        """Which users train together, (first, past the last), within the trainer's memory.

        counts: numbers of their records, (k,) int64, descending.
        size: of their batches.
        """

    @abstractmethod
    def run(self, users: TrainingUsers, memory: Mapping[str, np.ndarray] | None) -> Result:
        """Train one block of users.

        memory: the initial memory of their optimisers, see `Training`.
        """

    def begin(self, users: TrainingUsers) -> Callable[[], Tensor] | None:
        """Begin to train one block of users, while the host goes on; what is returned waits for
        their changes (k, d). None: the trainer only trains while the host waits."""
        return None


State = TypeVar("State", bound=TrainerState)


class UserTrainer(BlockTrainer, Generic[State]):
    """Trains the users of a block in lockstep: one batch step of all users at a time.

    A block's training changes its state and caches, nothing else. `limits` says how large a block
    may be; `pads`, whether last batches may be padded.
    """

    limits: Limits
    pads = False

    def __init__(self, problem: LocalProblem, layout: ParameterLayout) -> None:
        """layout: how the trainer orders parameters."""
        self.problem = problem
        self.layout = layout
        self.starts = layout.stacks(problem.start.unsqueeze(0))
        correction = problem.correction
        self.corrections = None if correction is None else layout.stacks(correction.unsqueeze(0))

    def blocks(self, counts: np.ndarray, size: int) -> list[tuple[int, int]]:
        return equal_batches(counts, size, self.pads, self.limits.stack)

    def run(self, users: TrainingUsers, memory: Mapping[str, np.ndarray] | None) -> Result:
        epochs = self.problem.recipe.epochs
        k = len(users.positions)
        stack = self._filled(users)
        steps = batches(
            users.data, stack.positions, users.size, epochs=epochs, keys=stack.orders, pad=self.pads
        )
        work = min(int(users.counts[0]), users.size) * self.problem.cost.products
        # Several threads would share a stack's numbers by their place in it.
        with one_thread(work < WORTH_THREADS or len(stack.positions) > 1):
            state = self.train(stack.dropout, steps, memory)
            slots = {} if memory is None else self.memory(state)
            return self.deltas(state)[:k], {name: slot[:k] for name, slot in slots.items()}

    def _filled(self, users: TrainingUsers) -> TrainingUsers:
        """The users, and copies of the first one in the places of those that a stack lacks."""
        rows = int(users.counts[0])
        [(_, most)] = self.blocks(np.full(STACK, rows), users.size)[:1]
        places = np.arange(most)
        return users.part(np.where(places < len(users.positions), places, 0))

    def train(
        self,
        keys: np.ndarray,
        steps: Iterable[BatchStep],
        memory: Mapping[str, np.ndarray] | None = None,
    ) -> State:
        """The state after all steps.

        keys: (k,) uint64, one a user: its dropout is a function of its key and of the step's place
            in its training.
        memory: the initial memory of their optimisers, see `Training`.
        """
        state = self.init(keys)
        if memory:
            self._recall(state, memory)
        for step in steps:
            self.step(state, step)
        return state

    @abstractmethod
    def init(self, keys: np.ndarray) -> State:
        """Networks with the starting parameters for the users with `keys` (k,) uint64."""

    @abstractmethod
    def step(self, state: State, step: BatchStep) -> None:
        """One step of all users."""

    def deltas(self, state: State) -> Tensor:
        """Final minus starting parameters, a new tensor (users, d)."""
        return self.layout.changes(state.parameters, self.starts)

    @torch.inference_mode()
    def _recall(self, state: State, memory: Mapping[str, np.ndarray]) -> None:
        for name, vector in memory.items():
            initial = torch.tensor(vector, device=self.problem.start.device)
            counts = name in self.problem.recipe.optimizer.counters
            pieces = [initial] if counts else self.layout.stacks(initial.unsqueeze(0))
            for stack, piece in zip(state.slots[name], pieces, strict=True):
                stack.copy_(piece)

    def memory(self, state: State) -> dict[str, Tensor]:
        """The optimiser's memory of every user, a new tensor (users, d) or (users, 1) a slot."""
        counters = self.problem.recipe.optimizer.counters
        return {
            name: stacks[0].unsqueeze(1).clone()
            if name in counters
            else self.layout.vectors(stacks)
            for name, stacks in state.slots.items()
        }

    def _stacks(self, users: int) -> list[Tensor]:
        """The starting parameters of every user, contiguous."""
        form = torch.contiguous_format
        return [
            start.expand(users, *start.shape[1:]).clone(memory_format=form) for start in self.starts
        ]

    def _descend(self, state: TrainerState, gradients: Sequence[Tensor]) -> None:
        """The optimiser's step, given the loss's gradients (a, ...) of the first a users. The
        gradients stay unchanged."""
        recipe = self.problem.recipe
        mu = recipe.proximal
        if mu:
            pairs = zip(gradients, state.parameters, self.starts)
            gradients = [g.add(stack[: len(g)] - start, alpha=mu) for g, stack, start in pairs]
        if self.corrections is not None:
            gradients = [gradient + own for gradient, own in zip(gradients, self.corrections)]
        recipe.optimizer.step(state.parameters, gradients, state.slots, lr=recipe.lr)


def memory_budget(device: torch.device) -> int:
    """Bytes of a block: about a processor's outer cache, or a small share of an accelerator's
    memory.

    Measured on one core: with 32 MiB the MNIST CNN trains 20% faster than with 16 MiB, and as fast
    as with 64. The MLP is as fast from 8 MiB on.
    """
    return 2**30 if device.type == "cuda" else 2**25
