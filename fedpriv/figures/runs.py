"""Runs that figures are made of, and their curves."""

from __future__ import annotations

import subprocess
import sys

import pandas as pd

from fedpriv.tables.runs import Run, find_runs, user_epsilons
from fedpriv.tables.summary import deviation

__all__ = ["Run", "deviation", "find_runs", "mean_and_std", "run_command", "user_epsilons"]


def run_command(*words: str) -> int:
    """The exit code of a `fedpriv` command in a process of its own."""
    return subprocess.run([sys.executable, "-m", "fedpriv", *words], check=False).returncode


def mean_and_std(tables: list[pd.DataFrame], column: str) -> pd.DataFrame:
    """Mean and standard deviation (n - 1; NaN of a single run) of `column` over runs, by round; rounds that not every
    run has are left out."""
    joined = pd.concat([table.set_index("round")[column] for table in tables], axis=1).dropna()
    return pd.DataFrame({"mean": joined.mean(axis=1), "std": joined.std(axis=1, ddof=1)})
