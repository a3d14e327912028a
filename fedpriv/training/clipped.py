"""Sums of clipped per-record gradients, without a gradient per record where the network allows it.

In a chain of supported layers one backward pass gives the loss's gradient at every layer's output.
From it follow the records' norms and, with its rows weighted, the sum of clipped gradients
(`fedpriv.training.layers.own_gradients`). Other networks, and losses over groups of records, use
torch.func, in pieces that fit in memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from fedpriv.models.tasks import Task
from fedpriv.training.contribution_stats import ContributionStats
from fedpriv.training.layers.chain import LayerChain, layer_chain
from fedpriv.training.modes import in_mode, seeded_dropout
from fedpriv.training.network_checks import refuse_shared_state
from fedpriv.training.per_record import MAX_NUMBERS_IN_MEMORY, clip_factors, per_group_gradients
from fedpriv.util.work import Work, run_work

NUMBERS_TOGETHER = 2**20
"""Of the same for batches that are summed together on a processor: near its cache. Measured with 25
silos of the odd/even MLP, a round takes half as long as with 2^24, two thirds of it with 2^18."""
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
        """Context in which the network draws from `seed`, if it draws at all."""
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
        """(d,) float64, at `theta` (d,) over the records x (b, ...), y (b, ...).

        Gradients are computed in the data type of `theta`, mostly float32; they are clipped and
        summed in float64. A gradient with NaN or infinity counts as zero: that depends on its
        record and the model alone, so replacing a record still moves the sum by at most 2 * clip.

        masks: each record's own dropout, (b, ...) by the names of buffers
            (`fedpriv.training.record_dropout`). tally: counts them, all gradients and the clipped
            ones. `model` keeps its parameters and its mode; dropout without masks draws from
            torch's global generator.
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
    ) -> Work[Tensor]:
        """The same as work, for whoever waits."""
        return _Sum(self, theta, x, y, masks or {}, stats)

    def sum_alone(self, work: _Sum) -> Tensor:
        """The same, where nobody gathers such sums."""
        total = work.theta.new_zeros(len(work.theta), dtype=torch.float64)
        size = self.rows_at_once(len(work.theta))
        with in_mode(self.model, train=True):
            for start in range(0, len(work.x), size):
                total += self.sums([work.rows(start, start + size)])[0]
        return total

    @property
    def stack_key(self) -> Hashable:
        """Equal for networks, on equal tasks, whose sums `sums` can make together; None: alone."""
        return None

    @abstractmethod
    def rows_at_once(self, parameters: int) -> int:
        """Records that fit in memory together."""

    @abstractmethod
    def sums(self, parts: Sequence[_Sum]) -> list[Tensor]:
        """(d,) float64 each: the sums of networks of equal `stack_key`, on batches of one shape
        that fit in memory; of one network, if that is None."""


@dataclass(frozen=True, eq=False)
class _Sum(Work[Tensor]):
    """A sum that is asked for."""

    gradients: ClippedGradients
    theta: Tensor
    x: Tensor
    y: Tensor
    masks: Masks
    stats: ContributionStats | None

    @property
    def nbytes(self) -> int:
        return 8 * len(self.theta) + self.x.nbytes  # the batch is a copy

    @property
    def batch_key(self) -> Hashable:
        network = self.gradients.stack_key
        if (
            network is None
            or self.masks
            or not 0 < len(self.x) <= self.gradients.rows_at_once(len(self.theta))
        ):
            return None
        return network, *((t.shape, t.dtype, t.device) for t in (self.theta, self.x, self.y))

    def rows(self, start: int, stop: int) -> _Sum:
        """The part over some of the records."""
        masks = {name: mask[start:stop] for name, mask in self.masks.items()}
        return replace(self, x=self.x[start:stop], y=self.y[start:stop], masks=masks)

    def run(self) -> Tensor:
        return self.gradients.sum_alone(self)

    @classmethod
    def run_batch(cls, works: Sequence[_Sum]) -> list[Tensor]:
        first = works[0]
        rows = first.gradients.rows_at_once(len(first.theta))
        if first.x.device.type == "cpu":
            rows //= MAX_NUMBERS_IN_MEMORY // NUMBERS_TOGETHER
        size = max(1, rows // len(first.x))
        pieces = [works[start : start + size] for start in range(0, len(works), size)]
        return [total for piece in pieces for total in first.gradients.sums(piece)]


class _Chained(ClippedGradients):
    """Networks that are chains of layers whose passes are known."""

    def __init__(self, model: nn.Module, task: Task, clip: float, chain: LayerChain) -> None:
        super().__init__(model, task, clip)
        self.chain = chain
        self.draws = chain.draws

    @property
    def stack_key(self) -> Hashable:
        return (self.chain.batch_key, self.task) if self.chain.stackable else None

    def rows_at_once(self, parameters: int) -> int:
        return max(1, MAX_NUMBERS_IN_MEMORY // self.chain.numbers)

    def sums(self, parts: Sequence[_Sum]) -> list[Tensor]:
        thetas, x, y = (
            torch.stack([getattr(part, name) for part in parts]) for name in ("theta", "x", "y")
        )
        with torch.enable_grad():
            passes, outputs = self.chain.forward(thetas, x, parts[0].masks)
        rows = outputs.detach().flatten(0, 1).unsqueeze(1)
        lead = self.task.gradient(rows, y.flatten(0, 1).unsqueeze(1), rows.new_ones((len(rows), 1)))
        gradients = torch.autograd.grad(
            outputs, [own.written for own in passes], lead.view(outputs.shape)
        )
        squares = torch.stack([own.squares(gradient) for own, gradient in zip(passes, gradients)])
        norms = squares.sum(0).sqrt()
        factors = [
            clip_factors(own, part.gradients.clip, part.stats) for part, own in zip(parts, norms)
        ]
        weights = torch.stack(factors)
        return list(torch.cat([piece for own in passes for piece in own.sums(weights)], 1))


class _Formed(ClippedGradients):
    """Any network that torch.func can batch: one gradient a record, or a group of them, is formed
    and then clipped.

    group: None for single records, else x and y are (b, group, ...), and a gradient is that of a
    group's mean loss.
    """

    def __init__(self, model: nn.Module, task: Task, clip: float, group: int | None) -> None:
        super().__init__(model, task, clip)
        self.single = group is None
        self.gradients = per_group_gradients(model, task, group or 1)

    def rows_at_once(self, parameters: int) -> int:
        return max(1, MAX_NUMBERS_IN_MEMORY // parameters)

    def sums(self, parts: Sequence[_Sum]) -> list[Tensor]:
        [part] = parts
        x = part.x
        y = part.y
        masks = dict(part.masks)
        if self.single:
            x = x.unsqueeze(1)
            y = y.unsqueeze(1)
            masks = {name: mask.unsqueeze(1) for name, mask in masks.items()}
        gradients = self.gradients(part.theta, x, y, masks).double()
        factors = clip_factors(gradients.norm(dim=1), self.clip, part.stats)
        return [factors @ torch.where(factors.unsqueeze(1) > 0, gradients, 0.0)]


def clipped_gradients(
    model: nn.Module, task: Task, clip: float, *, shape: tuple[int, ...], group: int | None = None
) -> ClippedGradients:
    """The fastest way to sum clipped gradients of `model` on records of `shape`, or on groups of so
    many records.

    Raises ConfigError for a network that mixes records, such as one with BatchNorm.
    """
    refuse_shared_state(model)
    chain = layer_chain(model, shape) if group is None else None
    if chain is None or chain.in_place:
        return _Formed(model, task, clip, group)
    return _Chained(model, task, clip, chain)
