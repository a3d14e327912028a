"""Report of an allocation: a table by silo, and a stacked histogram of records per user (figure 13
of Kato et al., Uldp-FL, PVLDB 2024)."""

from __future__ import annotations

import os
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.data.allocate import Allocation
from fedpriv.util.durable_files import replace_file

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

FEW_SILOS = 10
"""Up to this number, silos have a legend."""

MAX_COLUMNS = 500
"""Largest number of columns, since narrower ones would be invisible. With more users, a column is
the mean of neighbouring users."""


def statistics(allocation: Allocation) -> pd.DataFrame:
    """One row per silo and a last row `all`.

    Columns: number of users with training records, training records, records of the local test
    split, and mean, median and maximum of training records per such user.
    """
    import pandas as pd

    counts = allocation.counts()
    held = np.bincount(allocation.silo[~allocation.trains], minlength=allocation.n_silos)
    index = pd.Index([*map(str, range(allocation.n_silos)), "all"], name="silo")
    frame = pd.DataFrame(np.vstack([counts, counts.sum(axis=0)]), index=index).T
    found = frame.where(frame > 0).agg(["count", "sum", "mean", "median", "max"]).T.fillna(0.0)
    found.insert(2, "local_test", [*held, held.sum()])
    return found.rename(columns={"count": "users", "sum": "records"})


def table(allocation: Allocation) -> Table:
    """The statistics as a table for the terminal."""
    from rich.table import Table

    frame = statistics(allocation)
    out = Table(
        title=f"{allocation.n_users} users in {allocation.n_silos} silos",
        caption="mean, median, max: training records per user",
    )
    out.add_column("silo", justify="right")
    for name in frame.columns:
        out.add_column(name.replace("_", " "), justify="right")
    for silo, row in frame.iterrows():
        shown = [
            f"{row[name]:.1f}" if name in ("mean", "median") else f"{row[name]:,.0f}"
            for name in frame.columns
        ]
        out.add_row(str(silo), *shown, end_section=silo == str(allocation.n_silos - 1))
    return out


def draw(allocation: Allocation, path: str | os.PathLike[str]) -> None:
    """Write figure 13 to `path`, in the format of its suffix: training records per user, largest
    first, by silo."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.add_subplot()
    heights, edges = columns(allocation.counts())
    n = allocation.n_silos
    scale = colormaps["tab10"] if n <= FEW_SILOS else colormaps["viridis"].resampled(n)
    # One stepped area per silo; one bar per user and silo would take minutes for 10,000 users.
    axes.stackplot(
        edges,
        np.hstack([heights, heights[:, -1:]]),
        step="post",
        colors=scale(np.arange(n)),
        labels=[f"silo {silo}" for silo in range(n)],
        linewidth=0,
    )
    axes.set(xlim=(edges[0], edges[-1]), ylim=(0, None))
    axes.set_ylabel("training records of a user")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    width = int(edges[1] - edges[0])
    axes.set_xlabel(
        "users, by number of records" + (f" (means of {width} neighbours)" if width > 1 else "")
    )
    title = f"{allocation.trains.sum():,} training records, {allocation.n_users:,} users, {n} silos"
    axes.set_title(title, fontsize=10)
    if n <= FEW_SILOS:
        figure.legend(loc="outside right upper", frameon=False, fontsize=8, reverse=True)
    target, content = Path(path), BytesIO()
    figure.savefig(content, format=target.suffix.lstrip(".") or "png", dpi=200)
    target.parent.mkdir(parents=True, exist_ok=True)
    replace_file(target, content.getvalue())


def columns(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Heights (n_silos, m) of at most MAX_COLUMNS columns, each for one user or the mean of
    several, and edges (m + 1,)."""
    n_users = counts.shape[1]
    counts = counts[:, np.argsort(-counts.sum(axis=0), kind="stable")]
    starts = np.arange(0, n_users, -(-n_users // MAX_COLUMNS))
    edges = np.append(starts, n_users)
    return np.add.reduceat(counts, starts, axis=1) / np.diff(edges), edges + 0.5
