"""The study's numbers: a row for each method, unit and epsilon, and tests of their differences.

A table has the columns

    unit        that the noise protects under replacement: "user", "record" or "none"
    method, paper   names of the method and of its authors
    protects    unit that the method's paper protects
    epsilon     that the noise is made for
    certified   epsilon of the released model, the largest over seeds; inf if there is none
    server      epsilon of the server under plain aggregation, the largest over seeds
    claimed     the paper's epsilon of the released model for this noise; NaN if it claims none
    errors, losses  test error and test loss after the last round, by seed
    seeds       of the final runs
    step, steps the chosen step size, and all that were tried
    validation  error that chose it, on a fifth of the training records and other seeds
    settings    overrides of the step size
    delta       of the epsilons
    rounds      number of rounds
    records     number of training records, the largest over seeds

and, computed from these, `mean` and `deviation` of the errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedpriv.papers.study.methods import NOTHING, RECORD, USER
from fedpriv.reports.compare import holm, paired_test
from fedpriv.reports.summary import standard_deviation
from fedpriv.util.untrusted_files import TABLE_BYTES, opened

REFERENCES = {USER: "ULDP-AVG-w", RECORD: "MB-SGD"}
"""The method that the others are compared with, named before any run: Uldp-FL's final method, and
the simplest method that protects records."""
LEVEL = 0.05
SEVERAL = {"errors": float, "losses": float, "seeds": int, "steps": float}
"""Columns with several numbers, and their type."""


def table_of(records: Sequence[Mapping[Any, Any]]) -> pd.DataFrame:
    """The table of these rows."""
    table = pd.DataFrame(records)
    return table.assign(
        mean=table["errors"].map(np.mean), deviation=table["errors"].map(standard_deviation)
    )


def rows(table: pd.DataFrame) -> Iterator[Any]:
    """The rows of a table, with columns as attributes."""
    return iter(table.itertuples())


def write(table: pd.DataFrame, path: Path) -> None:
    """Write a CSV file; several numbers are separated by spaces."""
    texts = table.drop(columns=["mean", "deviation"])
    for column in SEVERAL:
        texts[column] = [" ".join(f"{one:.6g}" for one in each) for each in texts[column]]
    texts.to_csv(path, index=False, float_format="%.6g", na_rep="nan")


def read(path: Path) -> pd.DataFrame:
    """Read a file that `write` has written."""
    with opened(path, TABLE_BYTES) as file:
        table = pd.read_csv(file, dtype=dict.fromkeys(SEVERAL, str), float_precision="round_trip")
    for column, kind in SEVERAL.items():
        table[column] = [tuple(map(kind, text.split())) for text in table[column]]
    return table_of(table.to_dict("records"))


def with_users_as_records(table: pd.DataFrame) -> pd.DataFrame:
    """The rows, and those of user-level methods once more for the unit record.

    A method that hides a user hides each of the user's records.
    """
    own = table[table["unit"] == RECORD]["method"]
    added = table[(table["unit"] == USER) & ~table["method"].isin(own)]
    return pd.concat([table, added.assign(unit=RECORD)])


def compare_with_reference(table: pd.DataFrame, unit: str, epsilon: float) -> pd.DataFrame:
    """The methods that protect `unit` at `epsilon`, smallest error first.

    Further columns: difference, mean difference of the errors from the reference's over common
    seeds; p, of the paired t-test after Holm's correction over all methods of the unit and epsilon,
    NaN if there is no test, as for the reference itself; verdict, "better", "worse" or "not
    resolved".
    """
    every = with_users_as_records(table)
    here = every[(every["unit"] == unit) & (every["epsilon"] == epsilon)]
    by_method = {row.method: _error_by_seed(row) for row in rows(here)}
    reference = by_method.get(REFERENCES[unit], {})
    tests = [paired_test(errors, reference) for errors in by_method.values()]
    p = np.array(holm([p for *_, p in tests]))
    difference = np.array([mean for _, mean, _ in tests])
    told = np.where(difference < 0, "better", "worse")
    verdict = np.where(p < LEVEL, told, "not resolved")
    return here.assign(difference=difference, p=p, verdict=verdict).sort_values(
        "mean", kind="stable"
    )


def baselines(table: pd.DataFrame) -> pd.DataFrame:
    """Non-private methods, smallest error first."""
    return table[table["unit"] == NOTHING].sort_values("mean", kind="stable")


def epsilons(table: pd.DataFrame) -> list[float]:
    """The finite epsilons, ascending."""
    return sorted(table["epsilon"][np.isfinite(table["epsilon"])].unique().tolist())


def _error_by_seed(row: Any) -> dict[int, float]:
    return dict(zip(row.seeds, row.errors))
