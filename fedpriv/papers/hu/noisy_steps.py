"""Figures of Hu, Guo, Gong (CDP federated learning) from run folders: Figs 3 and 4, 5 and 6, 7 and
8.

All show the mean over seeds with one standard deviation. Accuracy is that on the pooled test
records of all devices.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from fedpriv.reports.canvas import MARKERS, Axes, Figure, plt
from fedpriv.reports.finished_runs import Run
from fedpriv.reports.groups import only_group
from fedpriv.reports.summary import deviation, mean_and_std

NAMES = {
    "accuracy": "test accuracy",
    "train_loss": "training loss",
    "gradient_norm": "norm of the training gradient",
}
CALIBRATIONS = {"paper": "noise by the paper's formula", "certified": "noise by the certificate"}
TARGETS = {"paper": "as claimed", "certified": "certified"}


def convergence(runs: list[Run], out: Path, *, second: str, title: str) -> None:
    """Figs 3 and 4: accuracy and `second` against the round; a column for each noise, a line for
    each tau."""
    noises = _values(runs, "noise_multiplier")
    figure, axes = _grid(len(noises), title)
    for column, noise in zip(axes.T, noises):
        here = [run for run in runs if _algo(run, "noise_multiplier") == noise]
        for row, metric in zip(column, (runs[0].metric, second)):
            for steps in _values(here, "local_steps"):
                alike = [run for run in here if _algo(run, "local_steps") == steps]
                _curve(row, alike, metric, label=f"tau = {steps}")
        claims = [_epsilons(run)[1] for run in here]
        sigma = noise * _algo(here[0], "clip")
        column[0].set_title(
            f"sigma = {sigma:g}\nclaimed epsilon {min(claims):.2g} to {max(claims):.2g}", fontsize=9
        )
    _finish(figure, axes, runs, out=out, metrics=(runs[0].metric, second))


def comparison(runs: list[Run], out: Path, *, second: str, title: str) -> None:
    """Figs 5 and 6: accuracy and `second` against the round; a column for each calibration, a line
    for each method."""
    columns = [
        name for name in CALIBRATIONS if any(_algo(run, "calibration") == name for run in runs)
    ]
    figure, axes = _grid(len(columns), title)
    for column, calibration in zip(axes.T, columns):
        here = [run for run in runs if _algo(run, "calibration") == calibration]
        for label in sorted({run.label for run in here}):
            group = [run for run in here if run.label == label]
            certified, claimed = _epsilons(group[0])
            for row, metric in zip(column, (runs[0].metric, second)):
                _curve(
                    row,
                    group,
                    metric,
                    label=f"{label}: claimed {claimed:.3g}, certified {certified:.3g}",
                )
        column[0].set_title(CALIBRATIONS[calibration], fontsize=10)
        column[1].legend(fontsize=8.5, loc="upper center", bbox_to_anchor=(0.5, -0.17))
    _finish(figure, axes, runs, out=out, metrics=(runs[0].metric, second), legend=False)


def tradeoff(runs: list[Run], out: Path, *, title: str) -> None:
    """Figs 7 and 8: final accuracy against epsilon, with and without secure aggregation; a panel
    for each calibration."""
    columns = [
        name for name in CALIBRATIONS if any(_algo(run, "calibration") == name for run in runs)
    ]
    figure, axes = plt.subplots(
        1, len(columns), figsize=(5.2 * len(columns), 4.2), sharey=True, layout="constrained"
    )
    figure.suptitle(title, fontsize=11)
    for axis, calibration in zip(np.atleast_1d(axes), columns):
        here = [run for run in runs if _algo(run, "calibration") == calibration]
        for hidden, label in ((True, "with secure aggregation"), (False, "without")):
            group = [run for run in here if _hides(run) == hidden]
            targets = _values(group, "epsilon")
            finals = [
                [
                    float(run.metrics[run.metric].iloc[-1])
                    for run in group
                    if _algo(run, "epsilon") == target
                ]
                for target in targets
            ]
            means = [np.mean(values) for values in finals]
            stds = [deviation(values) for values in finals]
            axis.errorbar(
                targets,
                means,
                stds,
                marker="o",
                ms=4,
                capsize=3,
                label=label,
                ls="-" if hidden else "--",
            )
        axis.set(
            xlabel=f"epsilon of the server, {TARGETS[calibration]}",
            xscale="log",
            title=CALIBRATIONS[calibration],
        )
        axis.grid(alpha=0.3)
        axis.legend(fontsize=9, loc="lower right")
    np.atleast_1d(axes)[0].set_ylabel(
        f"{NAMES[runs[0].metric]} after {int(runs[0].metrics['round'].iloc[-1])} rounds"
    )
    _footnote(figure, runs)
    figure.savefig(out, dpi=150)
    plt.close(figure)


def _algo(run: Run, key: str) -> Any:
    return run.config["algo"][key]


def _hides(run: Run) -> bool:
    return bool(run.config["aggregation"]["_target_"].rpartition(".")[2] != "Plain")


def _values(runs: Iterable[Run], key: str) -> list[Any]:
    return sorted({_algo(run, key) for run in runs})


def _epsilons(run: Run) -> tuple[float, float]:
    """Certified and claimed epsilon against the server, at the end."""
    return run.final_epsilons("server")


def _grid(columns: int, title: str) -> tuple[Figure, np.ndarray]:
    figure, axes = plt.subplots(
        2,
        columns,
        figsize=(max(8, 3.3 * columns), 6),
        sharex=True,
        sharey="row",
        layout="constrained",
        squeeze=False,
    )
    figure.suptitle(title, fontsize=11)
    return figure, axes


def _curve(axis: Axes, runs: list[Run], metric: str, *, label: str) -> None:
    curve = mean_and_std([run.metrics for run in only_group(runs).runs], metric)
    marker = MARKERS[len(axis.lines)]
    (line,) = axis.plot(
        curve.index, curve["mean"], label=label, lw=1.3, marker=marker, ms=3, markevery=0.1
    )
    low = curve["mean"] - curve["std"]
    high = curve["mean"] + curve["std"]
    axis.fill_between(curve.index, low, high, color=line.get_color(), alpha=0.2, lw=0)


def _finish(
    figure: Figure,
    axes: np.ndarray,
    runs: list[Run],
    *,
    out: Path,
    metrics: tuple[str, str],
    legend: bool = True,
) -> None:
    for row, metric in zip(axes, metrics):
        row[0].set_ylabel(NAMES.get(metric, metric))
        trained = np.concatenate([line.get_ydata()[1:] for axis in row for line in axis.lines])
        low = trained.min()
        high = trained.max()
        if metric == metrics[0]:  # the first model guesses, and would squeeze the rest
            margin = 0.1 * (high - low) or 0.01
            row[0].set_ylim(low - margin, high + margin)
        elif high > 10 * low:
            row[0].set_yscale("log")
        for axis in row:
            axis.grid(alpha=0.3, which="both")
    for axis in axes[-1]:
        axis.set_xlabel("round")
    if legend:
        axes[0, 0].legend(fontsize=8.5, loc="lower right")
    _footnote(figure, runs)
    figure.savefig(out, dpi=150)
    plt.close(figure)


def _footnote(figure: Figure, runs: list[Run]) -> None:
    number = len({run.config["seed"] for run in runs})
    seeds = f"{number} seeds" if number > 1 else "1 seed"
    figure.supxlabel(
        f"{seeds}, delta = {runs[0].delta:g}, unit record, adjacency replace; step size and clip "
        "chosen on validation "
        "records, which no epsilon counts",
        fontsize=7,
    )
