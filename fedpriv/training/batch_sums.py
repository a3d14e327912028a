"""Sums of clipped gradients over batches of one silo's records, with dropout that is each record's own."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from fedpriv.tally import Tally
from fedpriv.tasks import Task
from fedpriv.training.clipped import clipped_gradients
from fedpriv.training.per_record import MAX_NUMBERS_IN_MEMORY, clip_factors, per_group_gradients
from fedpriv.training.record_dropout import RecordDropout
from fedpriv.training.shared_state import refuse_shared_state

ClippedSum = Callable[[Tensor, np.ndarray, int], Tensor]
"""Of parameters (d,), the groups' numbers (b,) and the step's: the sum of their clipped gradients, (d,) float64."""


_KNOWN: WeakKeyDictionary[nn.Module, dict[Hashable, RecordDropout]] = WeakKeyDictionary()
"""By network and what its records are like: networks are looked at and copied once, not in every round."""


def _dropout(model: nn.Module, x: Tensor) -> RecordDropout:
    known = _KNOWN.setdefault(model, {})
    kind = x.shape[1:], x.dtype, x.device
    if kind not in known:
        known[kind] = RecordDropout(model, torch.zeros(x.shape[1:], dtype=x.dtype, device=x.device))
    return known[kind]


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
    dropout = _dropout(model, x)
    group = x.shape[1]
    if group == 1 and not dropout.layers:
        whole = clipped_gradients(dropout.model, task, clip, shape=tuple(x.shape[2:]))

        def of_records(theta: Tensor, batch: np.ndarray, step: int) -> Tensor:
            index = torch.from_numpy(batch).to(theta.device)
            return whole.sum(theta, x[index, 0], y[index, 0], tally=tally)

        return of_records
    gradients, keys = per_group_gradients(dropout.model, task, group), dropout_keys()

    def of_groups(theta: Tensor, batch: np.ndarray, step: int) -> Tensor:
        total = theta.new_zeros(len(theta), dtype=torch.float64)
        at_once = max(1, MAX_NUMBERS_IN_MEMORY // len(theta))
        for start in range(0, len(batch), at_once):
            rows = batch[start : start + at_once]
            index = torch.from_numpy(rows).to(theta.device)
            each = gradients(theta, x[index], y[index], dropout.masks(keys[rows], step)).double()
            factors = clip_factors(each.norm(dim=1), clip, tally)
            total += factors @ torch.where(factors.unsqueeze(1) > 0, each, 0.0)
        return total

    return of_groups
