"""Sums of clipped gradients of records, or of groups of them.

Where every layer is compiled, C++ computes one record after another
(`fedpriv.training.trainers.compiled.clipped_sum`). Else Opacus or torch.func form the records'
gradients (`fedpriv.training.per_record`), in pieces that fit in memory.
"""

from __future__ import annotations

import logging
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

from fedpriv.models.tasks import Task
from fedpriv.training.contributions import ContributionStats
from fedpriv.training.freed_memory import keep_freed_memory
from fedpriv.training.layers.chain import Unmapped
from fedpriv.training.modes import kept_threads
from fedpriv.training.network_checks import refuse_shared_state
from fedpriv.training.per_network import once_per_network
from fedpriv.training.per_record import RecordGradients, clip_factors, finite_norms
from fedpriv.training.record_dropout import record_dropout
from fedpriv.training.trainers.compiled.clipped_sum import ClippedSum, clipped_sum
from fedpriv.training.trainers.compiled.network import compiled_network

LOGGER = logging.getLogger("fedpriv")
WORTH_THREADS = 2**17
"""Numbers of per-record gradients (rows times parameters) from which several threads are used."""

NO_KEYS = np.zeros(0, dtype=np.uint64)

ROWS_IN_DOUBLE = 64
"""Gradients that are clipped and summed at once: they stay in a processor's cache."""


class ClippedGradients:
    """Per-record gradients of `task` on `model` in training mode, each clipped to L2 norm `clip`
    over the whole vector. What a record drops depends on that record alone.

    shape, dtype: of one record's features.
    group: None for single records. Else x and y are (b, group, ...), and a gradient is that of a
        group's mean loss.

    Raises ConfigError for a network that mixes records, such as one with BatchNorm, or with random
    numbers from layers other than dropout.
    """

    def __init__(
        self,
        model: nn.Module,
        task: Task,
        clip: float,
        *,
        shape: tuple[int, ...],
        group: int | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        refuse_shared_state(model)
        device = next(model.parameters()).device
        self.dropout = record_dropout(model, (group or 1, *shape), dtype, device)
        self.model = self.dropout.model
        self.task = task
        self.clip = clip
        self.group = group
        self.shape = shape
        self.dtype = dtype
        found: ClippedSum | Unmapped = Unmapped("losses over groups are not compiled")
        if group is None:
            found = clipped_sum(self.model, compiled_network(self.model, shape, dtype), task)
        self.compiled = None if isinstance(found, Unmapped) else found
        _say("compiled" if isinstance(found, ClippedSum) else f"by torch: {found.reason}")

    @property
    def drops(self) -> bool:
        """Whether records need keys of dropout."""
        return bool(self.dropout.layers)

    def in_cpp(self, x: Tensor, dtype: torch.dtype) -> bool:
        """Whether C++ computes the gradients of records x (b, ...) in this data type."""
        known = dtype == torch.float32 and x.dtype == self.dtype
        return self.compiled is not None and x.device.type == "cpu" and known

    def sum(
        self,
        theta: Tensor,
        x: Tensor,
        y: Tensor,
        *,
        keys: np.ndarray = NO_KEYS,
        step: int = 0,
        stats: ContributionStats | None = None,
    ) -> Tensor:
        """The sum of clipped gradients, (d,) float64, at `theta` (d,) over the records x (b, ...),
        y (b, ...).

        Gradients are computed in the data type of `theta`, mostly float32. They are clipped and
        summed in float64. A gradient with NaN or infinity counts as zero. Whether it does depends
        on its record and the model alone, so replacing a record moves the sum by at most 2 * clip.

        keys: (b,) uint64, from which records (groups) draw their dropout, if the network `drops`.
            A record's key must not depend on the others in the batch: else adding one would change
            the gradients of the others.
        step: which step's dropout is drawn.
        stats: counts all gradients, the clipped ones and those that are not finite.
        """
        if self.compiled is None or not self.in_cpp(x, theta.dtype):
            return self._by_torch(theta, x, y, self.dropout.masks(keys, step), stats)
        with kept_threads() as choose:
            choose(len(x) * len(theta) < WORTH_THREADS)
            names = self.dropout.names([step], self.compiled.program.network.masks)
            total, norms = self.compiled(theta, x, y, keys, names, self.clip)
        finite_norms(norms, self.clip, stats)
        return total

    def _by_torch(
        self,
        theta: Tensor,
        x: Tensor,
        y: Tensor,
        masks: dict[str, Tensor],
        stats: ContributionStats | None,
    ) -> Tensor:
        keep_freed_memory()
        gradients = _record_gradients(
            self.model, self.task, self.group or 1, self.shape, self.dtype
        )
        if self.group is None:
            x, y = x.unsqueeze(1), y.unsqueeze(1)
        total = theta.new_zeros(len(theta), dtype=torch.float64)
        for piece in gradients.pieces(theta, x, y, masks):
            for found in map(Tensor.double, torch.split(piece, ROWS_IN_DOUBLE)):
                factors = clip_factors(found.norm(dim=1), self.clip, stats)
                if not factors.all():  # an infinite number times zero is none
                    found.masked_fill_((factors == 0).unsqueeze(1), 0.0)
                total += factors @ found
        return total


@once_per_network
def _record_gradients(
    model: nn.Module, task: Task, group: int, shape: tuple[int, ...], dtype: torch.dtype
) -> RecordGradients:
    return RecordGradients(model, task, group, shape, dtype)


@cache
def _say(how: str) -> None:
    LOGGER.info("clipped gradients: %s", how)  # once: every query of every silo makes its own
