"""The price and the gain of Huang's noise: accuracy and certified epsilon against the epsilon that
the noise is made for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedpriv.papers.curves import draw_lines, tabulate
from fedpriv.reports.canvas import Figure, plain_ticks, plt, save
from fedpriv.reports.finished_runs import Run

CALIBRATIONS = {"paper": ("equation (2)", "C3"), "certified": ("noise by the certificate", "C0")}
"""Legend and colour."""
BROADCASTS = {
    False: ("silos left out keep their models", "-", "o"),
    True: ("everybody goes on from the average", "--", "s"),
}
"""Legend, line style and marker, by the algorithm's `broadcast_all`."""


def draw(runs: list[Run], out: Path) -> Figure:
    """Draw two panels from the runs of huang/claims. Epsilons are those of the server."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 4.8), layout="constrained")
    table = tabulate(runs, certified=lambda run: run.final_epsilons("server")[0])
    table = table[table["round"] == table["round"].max()]
    targets = sorted(table["epsilon"].unique())
    for calibration, (name, color) in CALIBRATIONS.items():
        for broadcast_all, (after, style, marker) in BROADCASTS.items():
            here = table[
                (table["calibration"] == calibration) & (table["broadcast_all"] == broadcast_all)
            ].assign(line=f"{name}, {after}")
            look: dict[str, Any] = {"color": color, "ls": style, "marker": marker, "ms": 4}
            draw_lines(
                left,
                here,
                "epsilon",
                runs[0].status.metric,
                by="line",
                bars=True,
                capsize=3,
                **look,
            )
            right.plot(here.groupby("epsilon")["certified"].max(), label=f"{name}, {after}", **look)
    right.plot(targets, targets, color="0.5", ls=":", label="that epsilon, equation (2)'s claim")
    left.set_ylabel(f"test accuracy after {runs[0].rounds} rounds")
    right.set(
        yscale="log", ylabel=f"certified epsilon of the server, delta = {runs[0].status.delta:g}"
    )
    for axis in (left, right):
        axis.set(xscale="log", xlabel="epsilon that the noise is made for")
        plain_ticks(axis, targets)
        axis.grid(alpha=0.3)
    legend = right.get_legend_handles_labels()
    figure.legend(*legend, loc="outside lower center", ncol=2, fontsize=8.5)
    save(figure, out)
    return figure
