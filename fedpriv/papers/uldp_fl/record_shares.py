"""Uldp-FL, Fig. 13: how many training records users have, by silo, for the four allocations of
creditcard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedpriv.data.allocation_report import draw_columns, statistics
from fedpriv.reports.canvas import plt
from fedpriv.reports.number_table import write_table
from fedpriv.runtime import allocate
from fedpriv.settings.compose import one_experiment

CELLS: list[tuple[int, str]] = [
    (users, kind) for users in (100, 1000) for kind in ("uniform", "zipf")
]


def draw(folder: Path, profile: str) -> bool:
    """Write figure.png and records.csv (a row an allocation and silo) into `folder`. The same for
    all profiles."""
    figure, axes = plt.subplots(2, 2, figsize=(7.0, 4.6), layout="constrained")
    rows: list[list[Any]] = []
    for axis, (users, kind) in zip(axes.flat, CELLS):
        exp = one_experiment("data=creditcard", f"allocator={kind}", f"allocator.n_users={users}")
        _, allocation, _ = allocate(exp)
        draw_columns(axis, allocation)
        frame = statistics(allocation)
        rows += [
            [users, kind, str(silo), *row]
            for silo, row in zip(frame.index, frame.to_numpy().tolist())
        ]
        mean = float(frame["mean"].iloc[-1])
        axis.set_title(f"{users:,} users, {kind}: {mean:.1f} records a user", fontsize=9)
        axis.tick_params(labelsize=7)
    for axis in axes[:, 0]:
        axis.set_ylabel("training records", fontsize=8)
    for axis in axes[1]:
        axis.set_xlabel("users, by number of records", fontsize=8)
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncol=5, fontsize=8
    )
    figure.suptitle(f"creditcard, {int(rows[-1][4]):,} training records", fontsize=10)
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "figure.png", dpi=200)
    plt.close(figure)
    write_table(folder / "records.csv", ["users", "allocation", "silo", *frame.columns], rows)
    return True
