"""Sums of clipped gradients over batches of one silo's records, with dropout that is each record's own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from fedpriv.tally import Tally
from fedpriv.tasks import Task
from fedpriv.training.clipped import clipped_gradients
from fedpriv.training.record_dropout import RecordDropout
from fedpriv.training.shared_state import refuse_shared_state

ClippedSum = Callable[[Tensor, np.ndarray, int], Tensor]
"""Of parameters (d,), the groups' numbers (b,) and the step's: the sum of their clipped gradients, (d,) float64."""


def clipped_sums(
    clip: float,
    model: nn.Module,
    task: Task,
    x: Tensor,
    y: Tensor,
    dropout_keys: Callable[[], np.ndarray],
    tally: Tally | None,
) -> ClippedSum:
    """Sums of gradients that are clipped to `clip`, in the fastest way.

    x, y: (n, group, ...), each group with one gradient, that of its mean loss. dropout_keys: gives (n,) uint64, from
    which each group draws its dropout in every step: what it drops does not depend on which others are in the batch,
    else adding one would change the gradients of the others. tally: counts gradients that are clipped or not finite.

    Raises ConfigError for networks with BatchNorm or with random numbers of other layers than dropout.
    """
    refuse_shared_state(model)
    dropout, single = RecordDropout.of(model, x), x.shape[1] == 1
    if single:
        x, y = x.squeeze(1), y.squeeze(1)
    group, shape = (None, x.shape[1:]) if single else (x.shape[1], x.shape[2:])
    gradients = clipped_gradients(dropout.model, task, clip, shape=tuple(shape), group=group)
    keys = dropout_keys() if dropout.layers else None

    def total(theta: Tensor, batch: np.ndarray, step: int) -> Tensor:
        index = torch.from_numpy(batch).to(theta.device)
        masks = {} if keys is None else dropout.masks(keys[batch], step)
        if single:
            masks = {name: mask.squeeze(1) for name, mask in masks.items()}
        return gradients.sum(theta, x[index], y[index], masks=masks, tally=tally)

    return total
