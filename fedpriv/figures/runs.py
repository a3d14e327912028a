"""Curves of finished runs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from fedpriv.tables.runs import Run, find_runs, user_epsilons

__all__ = ["Run", "deviation", "find_runs", "mean_and_std", "user_epsilons"]


def deviation(values: Sequence[float] | np.ndarray) -> float:
    """Standard deviation (n - 1; NaN of a single value)."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else math.nan


def mean_and_std(tables: list[pd.DataFrame], column: str) -> pd.DataFrame:
    """Mean and standard deviation (n - 1; NaN of a single run) of `column` over runs, by round; rounds that not every
    run has are left out."""
    joined = pd.concat([table.set_index("round")[column] for table in tables], axis=1).dropna()
    return pd.DataFrame({"mean": joined.mean(axis=1), "std": joined.std(axis=1, ddof=1)})
