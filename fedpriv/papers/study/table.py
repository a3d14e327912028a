"""The numbers of the study: a row for each method, unit and epsilon, and what of their order is
beyond chance."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedpriv.papers.study.methods import NOTHING, RECORD, USER
from fedpriv.reports.compare import holm, paired
from fedpriv.reports.number_table import write_table
from fedpriv.reports.summary import deviation

REFERENCES = {USER: "ULDP-AVG-w", RECORD: "MB-SGD"}
"""With whom the others are compared, named before anything was run: Uldp-FL's last word, and the
plainest of the methods that protect records."""
LEVEL = 0.05


@dataclass(frozen=True)
class Row:
    """unit: who is protected in these runs, by replacement, or none.
    protects: whom the method's paper protects.

    epsilon: that the noise is made for.
    certified, server: of the released model and the server under plain aggregation, the largest
        over seeds; inf for none.
    claimed: what the paper says of this noise at the released model, NaN for nothing.
    errors, losses: on test records after the last round, by `seeds`.
    train_loss: with which `settings` were chosen, on other seeds.
    records: that train, the most over seeds.
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
    def by_seed(self) -> dict[int, float]:
        """Errors."""
        return dict(zip(self.seeds, self.errors))

    @property
    def mean(self) -> float:
        return float(np.mean(self.errors))

    @property
    def deviation(self) -> float:
        return deviation(self.errors)


@dataclass(frozen=True)
class Beside:
    """A row beside its reference: mean difference of their errors over common seeds, and Holm's p
    over all methods of the unit and epsilon; NaN where there is no test."""

    row: Row
    difference: float
    p: float

    @property
    def verdict(self) -> str:
        """better or worse, where that is beyond chance."""
        if not self.p < LEVEL:
            return "not resolved"
        return "better" if self.difference < 0 else "worse"


SEVERAL = ("errors", "losses", "seeds")
WORDS = ("unit", "method", "paper", "protects", "settings")


COLUMNS = tuple(one.name for one in fields(Row))


def write(rows: Iterable[Row], path: Path) -> None:
    """As a CSV file; numbers of several seeds are separated by spaces."""
    write_table(path, COLUMNS, map(cells, rows))


def cells(row: Row) -> list[Any]:
    """A row's values in the order of COLUMNS."""
    return [_cell(name, getattr(row, name)) for name in COLUMNS]


def read(path: Path) -> list[Row]:
    """What `write` has written."""
    with open(path, newline="") as file:
        return [of_cells(line) for line in csv.DictReader(file)]


def of_cells(line: Mapping[str, str]) -> Row:
    """The row of a line's texts by column."""
    return Row(**{name: _value(name, line[name]) for name in COLUMNS})


def _cell(name: str, value: Any) -> Any:
    if name in SEVERAL:
        return " ".join(f"{number:.6g}" for number in value)
    return f"{value:.6g}" if isinstance(value, float) else value


def _value(name: str, text: str) -> Any:
    if name in WORDS:
        return text
    kind = int if name in ("seeds", "rounds", "records") else float
    return tuple(kind(part) for part in text.split()) if name in SEVERAL else kind(text)


def with_users_as_records(rows: Iterable[Row]) -> list[Row]:
    """The rows and, for the unit record, those of methods that were run for users alone: who hides
    a user hides each of its records. Variants, whose names say "with", are left out where the
    method has runs of its own."""
    rows = list(rows)
    own = {r.method for r in rows if r.unit == RECORD}
    alone = [r for r in rows if r.unit == USER and r.method.partition(" with ")[0] not in own]
    return rows + [replace(r, unit=RECORD) for r in alone]


def compared(rows: Sequence[Row], unit: str, epsilon: float) -> list[Beside]:
    """The methods that protect `unit` at `epsilon`, beside their reference, the smallest error
    first; the reference itself has no test."""
    here = [r for r in with_users_as_records(rows) if (r.unit, r.epsilon) == (unit, epsilon)]
    reference = next((r.by_seed for r in here if r.method == REFERENCES[unit]), {})
    pairs = [paired(r.by_seed, reference) for r in here]
    found = [Beside(r, pair[1], p) for r, pair, p in zip(here, pairs, holm([p for *_, p in pairs]))]
    return sorted(found, key=lambda one: one.row.mean)


def yardsticks(rows: Iterable[Row]) -> list[Row]:
    """Methods without privacy, the smallest error first."""
    return sorted((r for r in rows if r.unit == NOTHING), key=lambda r: r.mean)


def epsilons(rows: Iterable[Row]) -> list[float]:
    return sorted({r.epsilon for r in rows if math.isfinite(r.epsilon)})
