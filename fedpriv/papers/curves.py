"""What figures of several papers share: runs as one table, and a line for each group of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pandas as pd

from fedpriv.reports.canvas import MARKERS, Axes, plot_band
from fedpriv.reports.finished_runs import Run


def tabulate(runs: Iterable[Run], **columns: Callable[[Run], Any]) -> pd.DataFrame:
    """The metrics of all runs, with a row for each run and round.

    columns: further columns, computed from the run. The keys of its algorithm are columns too, and
        `run` has its number.
    """
    parts = []
    for number, run in enumerate(runs):
        own = {key: value for key, value in run.config["algo"].items() if key != "_target_"}
        own |= {"run": number} | {name: column(run) for name, column in columns.items()}
        parts.append(run.metrics.assign(**own))
    return pd.concat(parts, ignore_index=True)


def draw_lines(
    axis: Axes,
    table: pd.DataFrame,
    x: str,
    y: str,
    *,
    by: str,
    looks: Mapping[Any, Mapping[str, Any]] | None = None,
    bars: bool = False,
    **style: Any,
) -> None:
    """Draw a line through the means of a column, with their standard deviations, for each group.

    x, y, by: columns. Groups are drawn in the order of their first rows.
    looks: style of single groups, beside the style of all.
    bars: whether deviations are bars in place of a band.
    """
    for marker, (name, own) in zip(MARKERS, table.groupby(by, sort=False)):
        curve = own.groupby(x)[y].agg(["mean", "std"])
        look: dict[str, Any] = {"label": name, "marker": marker, **style}
        look |= (looks or {}).get(name, {})
        if bars:
            axis.errorbar(curve.index, curve["mean"], curve["std"], **look)
        else:
            plot_band(axis, curve, **look)
