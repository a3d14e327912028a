"""Uldp-FL, Fig. 13: the number of training records of each user, by silo, for the four allocations
of creditcard."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from fedpriv.data.allocation_report import draw_columns, statistics
from fedpriv.reports.canvas import plt, save
from fedpriv.runtime import allocate
from fedpriv.settings.compose import one_experiment

PANELS = [(users, allocator) for users in (100, 1000) for allocator in ("uniform", "zipf")]


def draw(folder: Path, profile: str) -> None:
    """Write figure.png and records.csv (a row for each allocation and silo) into a folder.

    profile: has no effect here.
    """
    figure, axes = plt.subplots(2, 2, figsize=(7.0, 4.6), layout="constrained")
    tables = {}
    for axis, (users, name) in zip(axes.flat, PANELS):
        exp = one_experiment("data=creditcard", f"allocator={name}", f"allocator.n_users={users}")
        _, allocation, _ = allocate(exp)
        draw_columns(axis, allocation)
        frame = statistics(allocation)
        tables[users, name] = frame
        mean = float(frame["mean"].iloc[-1])
        axis.set_title(f"{users:,} users, {name}: {mean:.1f} records a user", fontsize=9)
        axis.tick_params(labelsize=7)
    for axis in axes[:, 0]:
        axis.set_ylabel("training records", fontsize=8)
    for axis in axes[1]:
        axis.set_xlabel("users, by number of records", fontsize=8)
    legend = axes[0, 0].get_legend_handles_labels()
    figure.legend(*legend, loc="outside lower center", ncol=5, fontsize=8)
    figure.suptitle(f"creditcard, {frame['records'].iloc[-1]:,.0f} training records", fontsize=10)
    save(figure, folder / "figure.png", dpi=200)
    pd.concat(tables, names=["users", "allocation", "silo"]).to_csv(folder / "records.csv")
