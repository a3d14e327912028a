"""Sums of clipped per-record gradients, without a gradient per record where the network allows it.

Where every layer is compiled, C++ computes one record after another
(`fedpriv.training.trainers.compiled.clipped_sum`). Else, in a chain of supported layers, one
backward pass gives the loss's gradient at every layer's output. From it follow the records' norms
and, with its rows weighted, the sum of clipped gradients (`fedpriv.training.layers.own_gradients`).
Other networks, and losses over groups of records, use torch.func, in pieces that fit in memory.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice

import torch
from torch import Tensor, nn

from fedpriv.models.tasks import Task
from fedpriv.training.cached_by_model import cached_by_model
from fedpriv.training.contributions import ContributionStats
from fedpriv.training.layers.chain import LayerChain
from fedpriv.training.layers.mapping import Unmapped, layer_chain
from fedpriv.training.modes import in_mode, seeded_dropout
from fedpriv.training.network_checks import (
    refuse_shared_state,
    torch_func_obstacle,
    vmap_batches,
)
from fedpriv.training.per_record import (
    MAX_NUMBERS_IN_MEMORY,
    clip_factors,
    finite_norms,
    most_numbers,
    output_gradients,
    per_group_gradients,
)
from fedpriv.training.schedule import STACK
from fedpriv.training.threads import one_thread
from fedpriv.training.trainers.compiled.clipped_sum import ClippedSum, clipped_sum
from fedpriv.training.trainers.compiled.network import CompiledNetwork, compiled_network
from fedpriv.util.work import Work, run_work

LOGGER = logging.getLogger("fedpriv")
NUMBERS_TOGETHER = 2**20
"""The same limit for several batches that are summed together on a processor; they then stay near
its cache. With 25 silos of the odd/even MLP a round takes half as long as with 2^24 numbers, and
two thirds as long as with 2^18."""
WORTH_THREADS = 2**17
"""Numbers of per-record gradients (rows times parameters) from which several threads are used."""
COMPILED_LIMIT = 2**14
"""Parameters from which on products of a whole batch are faster than one record after another,
where all of them belong to linear layers on vectors. Measured for batches of 64 and 606 records:
with 4 thousand compiled sums take half and all of the time, with 15 thousand 0.6 and 0.8 of it,
with 51 thousand 1.05 and 1.7 times as long."""
Masks = Mapping[str, Tensor]


class ClippedGradients(ABC):
    """Per-record gradients of `task` on `model`, each clipped to L2 norm `clip` over the whole
    vector."""

    draws = True
    """Whether the network may draw random numbers."""

    def __init__(self, model: nn.Module, task: Task, clip: float) -> None:
        self.model = model
        self.task = task
        self.clip = clip

    def seeded(self, device: torch.device, seed: int) -> AbstractContextManager[None]:
        """Context in which the network draws its random numbers, if any, from `seed`."""
        return seeded_dropout(device, seed) if self.draws else nullcontext()

    def sum(
        self,
        theta: Tensor,
        x: Tensor,
        y: Tensor,
        *,
        masks: Masks | None = None,
        stats: ContributionStats | None = None,
    ) -> Tensor:
        """The sum of clipped gradients, (d,) float64, at `theta` (d,) over the records x (b, ...),
        y (b, ...).

        Gradients are computed in the data type of `theta`, mostly float32. They are clipped and
        summed in float64. A gradient with NaN or infinity counts as zero. Whether it does depends
        on its record and the model alone, so replacing a record moves the sum by at most 2 * clip.
        `model` keeps its parameters and its mode. Dropout without masks draws from torch's global
        generator.

        masks: each record's own dropout, (b, ...) by the names of buffers
            (`fedpriv.training.record_dropout`).
        stats: counts all gradients, the clipped ones and those that are not finite.
        """
        return run_work(self.asked(theta, x, y, masks=masks, stats=stats))

    def asked(
        self,
        theta: Tensor,
        x: Tensor,
        y: Tensor,
        *,
        masks: Masks | None = None,
        stats: ContributionStats | None = None,
        alone: bool = False,
    ) -> Work[Tensor]:
        """Work whose result is that sum.

        alone: whether no bit of a gradient may depend on the other records, as a certificate takes
            for granted. Kernels then have one thread.
        """
        return _Sum(self.able(theta, x, alone), theta, x, y, masks or {}, stats, alone)

    def able(self, theta: Tensor, x: Tensor, alone: bool) -> ClippedGradients:
        """What computes such sums: others do what this cannot."""
        return self

    def sum_alone(self, work: _Sum) -> Tensor:
        """The sum of one piece of work, in pieces that fit in memory."""
        total = work.theta.new_zeros(len(work.theta), dtype=torch.float64)
        size = self.rows_at_once(work.theta)
        with in_mode(self.model, train=True):
            for start in range(0, len(work.x), size):
                total += self.sums([work.rows(start, start + size)])[0]
        return total

    @property
    def stack_key(self) -> Hashable:
        """Equal for networks, on equal tasks, whose sums one call of `sums` can compute; None: each
        network needs a call of its own."""
        return None

    @abstractmethod
    def rows_at_once(self, theta: Tensor) -> int:
        """How many records fit in memory together, on the device of the parameters (d,)."""

    @abstractmethod
    def sums(self, parts: Sequence[_Sum]) -> list[Tensor]:
        """The sums of networks of equal `stack_key`, (d,) float64 each; of one network, if the key
        is None. The batches have one shape and fit in memory."""


@dataclass(frozen=True, eq=False)
class _Sum(Work[Tensor]):
    """A sum to compute."""

    gradients: ClippedGradients
    theta: Tensor
    x: Tensor
    y: Tensor
    masks: Masks
    stats: ContributionStats | None
    alone: bool = False

    @property
    def nbytes(self) -> int:
        return 8 * len(self.theta) + self.x.nbytes  # the batch is a copy

    @property
    def batch_key(self) -> Hashable:
        network = self.gradients.stack_key
        if (
            network is None
            or self.masks
            or not 0 < len(self.x) <= self.gradients.rows_at_once(self.theta)
        ):
            return None
        alike = ((t.shape, t.dtype, t.device) for t in (self.theta, self.x, self.y))
        return network, self.alone, *alike

    def rows(self, start: int, stop: int) -> _Sum:
        """The sum over some of the records."""
        masks = {name: mask[start:stop] for name, mask in self.masks.items()}
        return replace(self, x=self.x[start:stop], y=self.y[start:stop], masks=masks)

    def run(self) -> Tensor:
        with _few_threads([self]):
            return self.gradients.sum_alone(self)

    @classmethod
    def run_batch(cls, works: Sequence[_Sum]) -> list[Tensor]:
        first = works[0]
        rows = first.gradients.rows_at_once(first.theta)
        if first.x.device.type == "cpu":
            rows //= MAX_NUMBERS_IN_MEMORY // NUMBERS_TOGETHER
        size = max(1, rows // len(first.x))
        totals: list[Tensor] = []
        for start in range(0, len(works), size):
            piece = works[start : start + size]
            with _few_threads(piece):
                totals += first.gradients.sums(piece)
        return totals


def _few_threads(works: Sequence[_Sum]) -> AbstractContextManager[None]:
    """Context in which sums of equal batches have one thread, unless they are worth more and may
    share it."""
    first = works[0]
    small = len(works) * len(first.x) * len(first.theta) < WORTH_THREADS
    return one_thread(first.alone or small)


class _Chained(ClippedGradients):
    """Chains of supported layers: no gradient per record is formed in linear layers.

    formed: computes what is asked for `alone`, where this does not keep that promise.
    """

    def __init__(self, model: nn.Module, task: Task, clip: float, chain: LayerChain) -> None:
        super().__init__(model, task, clip)
        self.chain = chain
        self.draws = chain.draws
        self.formed = None if chain.alike else _Formed(model, task, clip, None)

    def able(self, theta: Tensor, x: Tensor, alone: bool) -> ClippedGradients:
        return self.formed if alone and self.formed is not None else self

    @property
    def stack_key(self) -> Hashable:
        return (self.chain.batch_key, self.task) if self.chain.stackable else None

    def rows_at_once(self, theta: Tensor) -> int:
        return max(1, most_numbers(theta.device) // self.chain.numbers)

    def sums(self, parts: Sequence[_Sum]) -> list[Tensor]:
        thetas, x, y = (
            torch.stack([getattr(part, name) for part in parts]) for name in ("theta", "x", "y")
        )
        with torch.enable_grad():
            passes, outputs = self.chain.forward(thetas, x, parts[0].masks)
        rows = outputs.detach().flatten(0, 1).unsqueeze(1)
        lead = output_gradients(self.task, rows, y.flatten(0, 1).unsqueeze(1))
        watched = [each for own in passes for each in own.watched]
        lead = lead.view(outputs.shape)
        found = torch.autograd.grad(outputs, watched, lead, materialize_grads=True)
        gradients = iter(found)  # zero of a layer whose result nobody reads
        squares = torch.stack([own.squares(*islice(gradients, len(own.watched))) for own in passes])
        if squares.shape[1:] != x.shape[:2]:  # each part would be clipped by itself
            raise ValueError("a layer has more than one row a record")
        norms = squares.sum(0).sqrt()
        factors = [
            clip_factors(own, part.gradients.clip, part.stats) for part, own in zip(parts, norms)
        ]
        weights = torch.stack(factors)
        return list(torch.cat([piece for own in passes for piece in own.sums(weights)], 1))


class _Compiled(ClippedGradients):
    """One record after another in C++.

    other: computes what is not compiled: in other types than `dtype`, of the records, and float32,
        of the parameters.
    """

    draws = False

    def __init__(
        self,
        model: nn.Module,
        task: Task,
        clip: float,
        dtype: torch.dtype,
        compiled: ClippedSum,
        other: ClippedGradients,
    ) -> None:
        super().__init__(model, task, clip)
        self.types = (torch.float32, "cpu"), (dtype, "cpu")
        self.compiled = compiled
        self.other = other

    def able(self, theta: Tensor, x: Tensor, alone: bool) -> ClippedGradients:
        known = tuple((t.dtype, t.device.type) for t in (theta, x)) == self.types
        return self if known else self.other.able(theta, x, alone)

    def sum_alone(self, work: _Sum) -> Tensor:
        return self.sums([work])[0]

    def rows_at_once(self, theta: Tensor) -> int:
        return MAX_NUMBERS_IN_MEMORY

    def sums(self, parts: Sequence[_Sum]) -> list[Tensor]:
        [part] = parts
        total, norms = self.compiled(part.theta, part.x, part.y, part.masks, self.clip)
        finite_norms(norms, self.clip, part.stats)
        return [total]


class _Formed(ClippedGradients):
    """Any network that torch.func can batch: the gradient of each record, or group of records, is
    formed and then clipped.

    group: None for single records. Else x and y are (b, group, ...), and a gradient is that of a
        group's mean loss.
    """

    def __init__(self, model: nn.Module, task: Task, clip: float, group: int | None) -> None:
        super().__init__(model, task, clip)
        self.single = group is None
        self.gradients = per_group_gradients(model, task, group or 1)

    def rows_at_once(self, theta: Tensor) -> int:
        return max(1, most_numbers(theta.device) // len(theta))

    def sums(self, parts: Sequence[_Sum]) -> list[Tensor]:
        [part] = parts
        theta = part.theta
        rows = self._rows_of_a_stack(part)
        total = theta.new_zeros(len(theta), dtype=torch.float64)
        with one_thread(rows > 1):
            for start in range(0, len(part.x), rows):
                total += self._sum(part.rows(start, start + rows), rows)
        return [total]

    def _rows_of_a_stack(self, part: _Sum) -> int:
        """A number that does not depend on how many records there are. On a GPU it does: there no
        certificate takes equal rounding for granted."""
        if part.x.device.type != "cpu":
            return len(part.x)
        x = part.x.unsqueeze(1) if self.single else part.x
        allowed = torch_func_obstacle(self.model, x.shape[2:], x.dtype) is None
        together = allowed and vmap_batches(self.model, x.shape[1:], x.dtype)
        return STACK if together and self.rows_at_once(part.theta) >= STACK else 1

    def _sum(self, part: _Sum, rows: int) -> Tensor:
        """The sum of at most `rows` gradients, with copies of the first one in the places of those
        that are missing. Kernels round otherwise for other numbers of rows, and threads would share
        the rows by their places: a gradient would have other bits in another batch."""
        n = len(part.x)
        x, y = (_filled(own, rows) for own in (part.x, part.y))
        masks = {name: _filled(mask, rows) for name, mask in part.masks.items()}
        if self.single:
            x, y = x.unsqueeze(1), y.unsqueeze(1)
            masks = {name: mask.unsqueeze(1) for name, mask in masks.items()}
        gradients = self.gradients(part.theta, x, y, masks)[:n].double()
        factors = clip_factors(gradients.norm(dim=1), self.clip, part.stats)
        return factors @ torch.where(factors.unsqueeze(1) > 0, gradients, 0.0)


def _filled(rows: Tensor, length: int) -> Tensor:
    """The rows, and copies of the first one up to this length."""
    more = length - len(rows)
    return torch.cat([rows, rows[:1].expand(more, *rows.shape[1:])]) if more else rows


def clipped_gradients(
    model: nn.Module,
    task: Task,
    clip: float,
    *,
    shape: tuple[int, ...],
    group: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> ClippedGradients:
    """The fastest way to sum clipped gradients of `model` on records of `shape` and `dtype`, or on
    groups of `group` records.

    Raises ConfigError for a network that mixes records, such as one with BatchNorm.
    """
    if group is not None:
        refuse_shared_state(model)
        return _Formed(model, task, clip, group)
    chain, network = _described(model, shape, dtype)
    by_torch: ClippedGradients
    if chain is None or chain.in_place or not chain.has_passes:
        by_torch, how = _Formed(model, task, clip, None), "formed one by one"
    else:
        by_torch, how = _Chained(model, task, clip, chain), "by one backward pass"
        how += "" if chain.alike else ", or formed one by one with noise of the system"
    if chain is not None and chain.on_vectors and chain.size >= COMPILED_LIMIT:
        _say(f"{how}: products of batches are faster for so many parameters")
        return by_torch
    compiled = clipped_sum(model, network, shape, task)
    if isinstance(compiled, Unmapped):
        _say(f"{how}, not compiled: {compiled.reason}")
        return by_torch
    _say("compiled")
    return _Compiled(model, task, clip, dtype, compiled, by_torch)


@cached_by_model
def _described(
    model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype
) -> tuple[LayerChain | None, CompiledNetwork | Unmapped]:
    """The network's layers, for torch and for C++; whether it has changed is asked once.

    Raises ConfigError for a network that mixes records.
    """
    refuse_shared_state(model)
    return layer_chain(model, shape, dtype), compiled_network(model, shape, dtype)


@cache
def _say(how: str) -> None:
    LOGGER.info("clipped gradients: %s", how)  # once: every query of every silo makes its own
