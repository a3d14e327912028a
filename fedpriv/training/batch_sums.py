"""Sums of clipped gradients over batches of one silo's records. What a record drops depends on that
record alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from fedpriv.models.tasks import Task
from fedpriv.training.clipped import ClippedGradients
from fedpriv.training.contributions import ContributionStats
from fedpriv.training.network_checks import refuse_shared_state
from fedpriv.training.record_dropout import record_dropout


class BatchSums:
    """Sums of gradients that are clipped to `clip`, computed in the fastest way.

    x, y: (n, group, ...); each group has one gradient, that of its mean loss.
    dropout_keys: returns, for numbers of groups (b,), the keys (b,) uint64 from which they draw
        their dropout in every step. What a group drops must not depend on the others in the batch:
        else adding one would change the gradients of the others.
    stats: counts gradients that are clipped or not finite.

    Raises ConfigError for networks with BatchNorm, or with random numbers from layers other than
    dropout.
    """

    def __init__(
        self,
        clip: float,
        model: nn.Module,
        task: Task,
        x: Tensor,
        y: Tensor,
        dropout_keys: Callable[[np.ndarray], np.ndarray],
        stats: ContributionStats | None,
    ) -> None:
        refuse_shared_state(model)
        self.dropout = record_dropout(model, x.shape[1:], x.dtype, x.device)
        self.single = x.shape[1] == 1
        self.stats = stats
        self.x, self.y = (x.squeeze(1), y.squeeze(1)) if self.single else (x, y)
        group = None if self.single else x.shape[1]
        shape = tuple(x.shape[2:])
        own = self.dropout.model
        self.gradients = ClippedGradients(own, task, clip, shape=shape, group=group, dtype=x.dtype)
        self.keys = dropout_keys

    def sum(self, theta: Tensor, batch: np.ndarray, step: int = 0) -> Tensor:
        """The sum of clipped gradients, (d,) float64.

        theta: parameters (d,).
        batch: numbers of the groups (b,).
        step: which step's dropout is drawn.
        """
        index = torch.from_numpy(batch).to(theta.device)
        masks = self.dropout.masks(self.keys(batch), step) if self.dropout.layers else {}
        if self.single:
            masks = {name: mask.squeeze(1) for name, mask in masks.items()}
        rows = self.x[index], self.y[index]
        return self.gradients.sum(theta, *rows, masks=masks, stats=self.stats)
