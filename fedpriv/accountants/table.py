"""Epsilon rows as a table for the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from fedpriv.accountants.events import ENFORCED
from fedpriv.accountants.ledger import EpsilonRow

if TYPE_CHECKING:
    from rich.table import Table


def epsilon_table(rows: Iterable[EpsilonRow], delta: float) -> Table:
    """A table of `rows` with `delta` in the title. Epsilons that are not enforced have an asterisk,
    and the caption says whose word they are."""
    from rich.table import Table

    rows = list(rows)
    caption = "; ".join(dict.fromkeys(f"* {row.status}" for row in rows if _mark(row)))
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
    return "" if math.isinf(row.certified) or row.status == ENFORCED else "*"


def _epsilon(value: float) -> str:
    return "∞" if math.isinf(value) else f"{value:.4f}"
