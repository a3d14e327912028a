"""The losses whose gradients are compiled.

A task has one of them if it computes its loss and gradient by the methods of a class below. It may
add or change anything else, such as its metrics.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from fedpriv.models.regression import ExponentialSurvival, Regression
from fedpriv.models.tasks import BinaryClassification, Classification, CoxRegression, Task
from fedpriv.training.layers.chain import Unmapped

CROSS_ENTROPY, LOGISTIC, SQUARED, SURVIVAL, COX = range(5)


class CompiledLoss(NamedTuple):
    """A loss.

    schema: its number in layers.h.
    dtype: of labels.
    label: shape of a record's label.
    has_classes: whether labels are numbers of outputs.
    couples_records: whether it compares the records of a batch with each other.
    factors: of the classes' records, as in `Classification`.
    """

    schema: int
    dtype: torch.dtype = torch.float32
    label: tuple[int, ...] = ()
    has_classes: bool = False
    couples_records: bool = False
    factors: tuple[float, ...] = ()


LOSSES: dict[type[Task], CompiledLoss] = {
    Classification: CompiledLoss(CROSS_ENTROPY, torch.int64, has_classes=True),
    BinaryClassification: CompiledLoss(LOGISTIC),
    Regression: CompiledLoss(SQUARED),
    ExponentialSurvival: CompiledLoss(SURVIVAL, label=(2,)),
    CoxRegression: CompiledLoss(COX, label=(2,), couples_records=True),
}


def known_loss(task: Task) -> CompiledLoss | None:
    """The loss of a task, if it is one of them."""
    own = type(task)
    found = [
        loss
        for known, loss in LOSSES.items()
        if own.loss is known.loss and own.gradient is known.gradient
    ]
    if isinstance(task, Classification):
        found = [loss._replace(factors=task.factors) for loss in found]
    return found[0] if found else None


def compiled_loss(task: Task, outputs: int) -> CompiledLoss | Unmapped:
    """The loss of a task on a network of so many outputs, or why it is not compiled."""
    loss = known_loss(task)
    if loss is None:
        return Unmapped(f"the loss of {type(task).__name__} is not compiled")
    if not loss.has_classes and outputs != 1:
        return Unmapped(f"the loss of {type(task).__name__} needs one output")
    return loss


def check_classes(least: int, most: int, outputs: int) -> None:
    """Raises IndexError for labels from `least` to `most` that a network of so many outputs does
    not have: compiled code would read and write beside its arrays."""
    if not 0 <= least <= most < outputs:
        raise IndexError(f"labels from {least} to {most} for a network of {outputs} outputs")
