"""The task of a table's label."""

from __future__ import annotations

from fedpriv.data.table.schema import CLASSIFICATION, REGRESSION, Label
from fedpriv.models.regression import ExponentialSurvival, Regression
from fedpriv.models.tasks import Classification, Task


def task_of(label: Label, metric: str) -> Task:
    """Loss and metrics for a label.

    metric: main metric of classification.
    """
    if label.problem == CLASSIFICATION:
        return Classification(main=metric)
    if label.problem == REGRESSION:
        assert label.range is not None
        low, high = label.range
        return Regression(unit=(high - low) / 2)
    return ExponentialSurvival()
