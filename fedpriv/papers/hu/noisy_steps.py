"""Figures of Hu, Guo, Gong (CDP federated learning) from run folders: Figs 3 and 4, 5 and 6, 7 and
8.

All show the mean over seeds with one standard deviation. Accuracy is measured on the pooled test
records of all devices.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedpriv.papers.curves import draw_lines, tabulate
from fedpriv.reports.canvas import Figure, grid_and_legend, plt, save
from fedpriv.reports.finished_runs import Run

NAMES = {
    "accuracy": "test accuracy",
    "train_loss": "training loss",
    "gradient_norm": "norm of the training gradient",
}
CALIBRATIONS = {
    "paper": ("noise by the paper's formula", "as claimed"),
    "certified": ("noise by the certificate", "certified"),
}
"""A panel's title, and what the server's epsilon is."""
STYLE: dict[str, Any] = {"lw": 1.3, "ms": 3, "markevery": 0.1}


def convergence(runs: list[Run], out: Path, *, second: str, title: str) -> Figure:
    """Figs 3 and 4: accuracy and a second metric against the round.

    Each noise has a column, each number of local steps tau a line.
    """
    table = _table(runs).sort_values("local_steps", kind="stable")
    table["line"] = [f"tau = {steps}" for steps in table["local_steps"]]
    noises = sorted(table["noise_multiplier"].unique())
    figure, axes = _grid(len(noises), title)
    for column, noise in zip(axes.T, noises):
        here = table[table["noise_multiplier"] == noise]
        _draw_column(column, here, runs[0].status.metric, second)
        claimed = f"claimed epsilon {here['claimed'].min():.2g} to {here['claimed'].max():.2g}"
        sigma = noise * here["clip"].iloc[0]
        column[0].set_title(f"sigma = {sigma:g}\n{claimed}", fontsize=9)
    axes[0, 0].legend(fontsize=8.5, loc="lower right")
    return _finish_grid(figure, axes, runs, out=out, metrics=(runs[0].status.metric, second))


def comparison(runs: list[Run], out: Path, *, second: str, title: str) -> Figure:
    """Figs 5 and 6: accuracy and a second metric against the round.

    Each calibration has a column, each method a line.
    """
    table = _table(runs).sort_values("method", kind="stable")
    first = table.groupby(["method", "calibration"])[["claimed", "certified"]].transform("first")
    table["line"] = [
        f"{method}: claimed {claimed:.3g}, certified {certified:.3g}"
        for method, claimed, certified in zip(table["method"], first["claimed"], first["certified"])
    ]
    columns = [name for name in CALIBRATIONS if name in {*table["calibration"]}]
    figure, axes = _grid(len(columns), title)
    for column, name in zip(axes.T, columns):
        _draw_column(column, table[table["calibration"] == name], runs[0].status.metric, second)
        column[0].set_title(CALIBRATIONS[name][0], fontsize=10)
        column[1].legend(fontsize=8.5, loc="upper center", bbox_to_anchor=(0.5, -0.17))
    return _finish_grid(figure, axes, runs, out=out, metrics=(runs[0].status.metric, second))


def tradeoff(runs: list[Run], out: Path, *, title: str) -> Figure:
    """Figs 7 and 8: final accuracy against epsilon, with and without secure aggregation.

    Each calibration has a panel.
    """
    table = _table(runs)
    table = table[table["round"] == table["round"].max()].sort_values("line", kind="stable")
    columns = [name for name in CALIBRATIONS if name in {*table["calibration"]}]
    size = (5.2 * len(columns), 4.2)
    figure, axes = plt.subplots(
        1, len(columns), figsize=size, sharey=True, layout="constrained", squeeze=False
    )
    figure.suptitle(title, fontsize=11)
    looks = {"without": {"ls": "--"}}
    style: dict[str, Any] = {"looks": looks, "marker": "o", "ms": 4, "capsize": 3}
    for axis, name in zip(axes[0], columns):
        here = table[table["calibration"] == name]
        draw_lines(axis, here, "epsilon", runs[0].status.metric, by="line", bars=True, **style)
        heading, target = CALIBRATIONS[name]
        axis.set(xlabel=f"epsilon of the server, {target}", xscale="log", title=heading)
        grid_and_legend(axis, 9, loc="lower right")
    axes[0, 0].set_ylabel(f"{NAMES[runs[0].status.metric]} after {runs[0].rounds} rounds")
    return _finish(figure, runs, out)


def _table(runs: list[Run]) -> pd.DataFrame:
    """The metrics of all runs, with the epsilons of the server after the last round."""
    return tabulate(
        runs,
        method=lambda run: run.status.label,
        certified=lambda run: run.final_epsilons("server")[0],
        claimed=lambda run: run.final_epsilons("server")[1],
        line=lambda run: "without" if _is_plain(run) else "with secure aggregation",
    )


def _is_plain(run: Run) -> bool:
    return bool(run.config["aggregation"]["_target_"].endswith(".Plain"))


def _grid(columns: int, title: str) -> tuple[Figure, np.ndarray]:
    size = (max(8, 3.3 * columns), 6)
    figure, axes = plt.subplots(
        2, columns, figsize=size, sharex=True, sharey="row", layout="constrained", squeeze=False
    )
    figure.suptitle(title, fontsize=11)
    return figure, axes


def _draw_column(column: np.ndarray, here: pd.DataFrame, *metrics: str) -> None:
    for axis, metric in zip(column, metrics):
        draw_lines(axis, here, "round", metric, by="line", **STYLE)


def _finish_grid(
    figure: Figure, axes: np.ndarray, runs: list[Run], *, out: Path, metrics: tuple[str, str]
) -> Figure:
    for row, metric in zip(axes, metrics):
        row[0].set_ylabel(NAMES.get(metric, metric))
        trained = np.concatenate([line.get_ydata()[1:] for axis in row for line in axis.lines])
        low = trained.min()
        high = trained.max()
        if metric == metrics[0]:
            # The untrained model's accuracy would squeeze the rest.
            margin = 0.1 * (high - low) or 0.01
            row[0].set_ylim(low - margin, high + margin)
        elif high > 10 * low:
            row[0].set_yscale("log")
        for axis in row:
            axis.grid(alpha=0.3, which="both")
    for axis in axes[-1]:
        axis.set_xlabel("round")
    return _finish(figure, runs, out)


def _finish(figure: Figure, runs: list[Run], out: Path) -> Figure:
    number = len({run.seed for run in runs})
    figure.supxlabel(
        f"{number} seed{'s' * (number > 1)}, delta = {runs[0].status.delta:g}, unit record, "
        "adjacency replace; step size and clip chosen on validation records, which no epsilon "
        "counts",
        fontsize=7,
    )
    save(figure, out)
    return figure
