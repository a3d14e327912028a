"""Epsilon rows as a table for the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from fedpriv.accountants.events import CHECKED, DECLARED
from fedpriv.accountants.ledger import EpsilonRow

if TYPE_CHECKING:
    from rich.table import Table

MARKS = {DECLARED: "*", CHECKED: "†"}
MEANINGS = {
    "*": "declared by its author, neither enforced nor checked",
    "†": "declared by the method, which is checked",
}


def epsilon_table(rows: Iterable[EpsilonRow], delta: float) -> Table:
    """A table of `rows` with `delta` in the title. Epsilons that are not enforced have a mark,
    which the caption explains."""
    from rich.table import Table

    rows = list(rows)
    marked = dict.fromkeys(mark for row in rows if (mark := _mark(row)))
    caption = "; ".join(f"{mark} {MEANINGS[mark]}" for mark in marked)
    table = Table(title=f"epsilon at delta = {delta:g}", caption=caption or None)
    for header in ("rounds", "observer", "unit", "adjacency", "method", "certified", "claimed"):
        table.add_column(
            header, justify="right" if header in ("rounds", "certified", "claimed") else "left"
        )
    for row in rows:
        certified = _epsilon(row.certified) + _mark(row)
        numbers = (certified, "" if row.claimed is None else _epsilon(row.claimed))
        table.add_row(
            f"{row.round}", row.observer, row.protects, row.adjacency, row.method, *numbers
        )
    return table


def _mark(row: EpsilonRow) -> str:
    """The mark of an epsilon; empty if it is infinite or the framework enforces it."""
    return "" if math.isinf(row.certified) else MARKS.get(row.status, "")


def _epsilon(value: float) -> str:
    return "∞" if math.isinf(value) else f"{value:.4f}"
