"""The study's numbers: a row for each method, unit and epsilon, and tests of their differences."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np

from fedpriv.papers.study.methods import NOTHING, RECORD, USER
from fedpriv.reports.compare import holm, paired_test
from fedpriv.reports.number_table import read_table, write_table
from fedpriv.reports.summary import standard_deviation

REFERENCES = {USER: "ULDP-AVG-w", RECORD: "MB-SGD"}
"""The method that the others are compared with, named before any run: Uldp-FL's final method, and
the simplest method that protects records."""
LEVEL = 0.05


@dataclass(frozen=True)
class StudyRow:
    """Final runs of one method at one epsilon of one unit.

    unit: that the noise protects under replacement: "user", "record" or "none".
    method: name of the method.
    paper: its authors.
    protects: unit that the method's paper protects.
    epsilon: that the noise is made for.
    certified: epsilon of the released model, the largest over seeds; inf if there is none.
    server: epsilon of the server under plain aggregation, the largest over seeds.
    claimed: the paper's epsilon of the released model for this noise; NaN if it claims none.
    errors: test error after the last round, by seed.
    losses: test loss after the last round, by seed.
    seeds: of the final runs.
    train_loss: training loss that chose the settings, on other seeds.
    settings: chosen overrides.
    delta: of the epsilons.
    rounds: number of rounds.
    records: number of training records, the largest over seeds.
    """

    unit: str
    method: str
    paper: str
    protects: str
    epsilon: float
    certified: float
    server: float
    claimed: float
    errors: tuple[float, ...]
    losses: tuple[float, ...]
    seeds: tuple[int, ...]
    train_loss: float
    settings: str
    delta: float
    rounds: int
    records: int

    @property
    def error_by_seed(self) -> dict[int, float]:
        return dict(zip(self.seeds, self.errors))

    @property
    def mean(self) -> float:
        return float(np.mean(self.errors))

    @property
    def deviation(self) -> float:
        return standard_deviation(self.errors)


@dataclass(frozen=True)
class ReferenceComparison:
    """A row beside its reference.

    row: the method.
    difference: mean difference of the errors over common seeds.
    p: of the paired t-test after Holm's correction over all methods of the unit and epsilon; NaN
        if there is no test.
    """

    row: StudyRow
    difference: float
    p: float

    @property
    def verdict(self) -> str:
        """Better, worse, or not resolved: no significant difference."""
        if not self.p < LEVEL:
            return "not resolved"
        return "better" if self.difference < 0 else "worse"


COLUMNS = tuple(field.name for field in fields(StudyRow))


def write(rows: Iterable[StudyRow], path: Path) -> None:
    """Write a CSV file; numbers of several seeds are separated by spaces."""
    write_table(path, COLUMNS, map(cells, rows))


def read(path: Path) -> list[StudyRow]:
    """Read a file that `write` has written."""
    return [from_cells(line) for line in read_table(path)]


def cells(row: StudyRow) -> list[Any]:
    """A row's values in the order of `COLUMNS`, for a CSV file."""
    return [_shown(value) for value in vars(row).values()]


def _shown(value: Any) -> Any:
    if isinstance(value, tuple):
        return " ".join(f"{number:.6g}" for number in value)
    return f"{value:.6g}" if isinstance(value, float) else value


def from_cells(line: Mapping[str, str]) -> StudyRow:
    """The row of a CSV file's line."""
    types = get_type_hints(StudyRow)
    return StudyRow(**{name: _parse(types[name], line[name]) for name in COLUMNS})


def _parse(column_type: Any, text: str) -> Any:
    """A value of type str, int, float or tuple of numbers."""
    parts = getattr(column_type, "__args__", None)
    return tuple(map(parts[0], text.split())) if parts else column_type(text)


def with_users_as_records(rows: Iterable[StudyRow]) -> list[StudyRow]:
    """The rows, and those of user-level methods once more for the unit record.

    A method that hides a user hides each of the user's records. Variants, whose names have "with",
    are left out if the method has runs of its own for records.
    """
    rows = list(rows)
    own = {r.method for r in rows if r.unit == RECORD}
    added = [r for r in rows if r.unit == USER and r.method.partition(" with ")[0] not in own]
    return rows + [replace(r, unit=RECORD) for r in added]


def compare_with_reference(
    rows: Sequence[StudyRow], unit: str, epsilon: float
) -> list[ReferenceComparison]:
    """The methods that protect `unit` at `epsilon`, smallest error first.

    The reference itself has no test.
    """
    here = [r for r in with_users_as_records(rows) if (r.unit, r.epsilon) == (unit, epsilon)]
    reference = next((r.error_by_seed for r in here if r.method == REFERENCES[unit]), {})
    tests = [paired_test(r.error_by_seed, reference) for r in here]
    corrected = holm([p for *_, p in tests])
    found = [ReferenceComparison(r, test[1], p) for r, test, p in zip(here, tests, corrected)]
    return sorted(found, key=lambda one: one.row.mean)


def baselines(rows: Iterable[StudyRow]) -> list[StudyRow]:
    """Non-private methods, smallest error first."""
    return sorted((r for r in rows if r.unit == NOTHING), key=lambda r: r.mean)


def epsilons(rows: Iterable[StudyRow]) -> list[float]:
    """The finite epsilons, ascending."""
    return sorted({r.epsilon for r in rows if math.isfinite(r.epsilon)})
