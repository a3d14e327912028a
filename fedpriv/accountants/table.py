"""Epsilon rows as a table for people."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from fedpriv.accountants.ledger import EpsilonRow

if TYPE_CHECKING:
    from rich.table import Table


def epsilon_table(rows: Iterable[EpsilonRow], delta: float) -> Table:
    """A table of `rows`, of one round or of several, under a title that states `delta`."""
    from rich.table import Table

    table = Table(title=f"epsilon at delta = {delta:g}")
    for header in ("rounds", "observer", "unit", "adjacency", "method", "certified", "claimed"):
        table.add_column(header, justify="right" if header in ("rounds", "certified", "claimed") else "left")
    for row in rows:
        numbers = (_epsilon(row.certified), "" if row.claimed is None else _epsilon(row.claimed))
        table.add_row(f"{row.round}", row.observer, row.unit, row.adjacency, row.method, *numbers)
    return table


def _epsilon(value: float) -> str:
    return "∞" if math.isinf(value) else f"{value:.4f}"
