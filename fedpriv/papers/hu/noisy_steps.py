"""Figures of Hu, Guo, Gong (CDP federated learning) from run folders: Figs 3 and 4, 5 and 6, 7 and
8.

All show the mean over seeds with one standard deviation. Accuracy is measured on the pooled test
records of all devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fedpriv.reports.canvas import MARKERS, Axes, Figure, grid_and_legend, plot_band, plt, save
from fedpriv.reports.finished_runs import Run
from fedpriv.reports.groups import require_one_group
from fedpriv.reports.summary import mean_and_std, standard_deviation

NAMES = {
    "accuracy": "test accuracy",
    "train_loss": "training loss",
    "gradient_norm": "norm of the training gradient",
}
CALIBRATIONS = {"paper": "noise by the paper's formula", "certified": "noise by the certificate"}
TARGETS = {"paper": "as claimed", "certified": "certified"}


def convergence(runs: list[Run], out: Path, *, second: str, title: str) -> None:
    """Figs 3 and 4: accuracy and a second metric against the round.

    Each noise has a column, each number of local steps tau a line.
    """
    noises = _values(runs, "noise_multiplier")
    metrics = runs[0].metric, second
    figure, axes = _grid(len(noises), title)
    for column, noise in zip(axes.T, noises):
        here = _select(runs, "noise_multiplier", noise)
        for axis, metric in zip(column, metrics):
            for steps in _values(here, "local_steps"):
                alike = _select(here, "local_steps", steps)
                _draw_curve(axis, alike, metric, label=f"tau = {steps}")
        claims = [_epsilons(run)[1] for run in here]
        claimed = f"claimed epsilon {min(claims):.2g} to {max(claims):.2g}"
        sigma = noise * _algo(here[0], "clip")
        column[0].set_title(f"sigma = {sigma:g}\n{claimed}", fontsize=9)
    axes[0, 0].legend(fontsize=8.5, loc="lower right")
    _finish(figure, axes, runs, out=out, metrics=metrics)


def comparison(runs: list[Run], out: Path, *, second: str, title: str) -> None:
    """Figs 5 and 6: accuracy and a second metric against the round.

    Each calibration has a column, each method a line.
    """
    columns = list(_by_calibration(runs))
    metrics = runs[0].metric, second
    figure, axes = _grid(len(columns), title)
    for column, (name, here) in zip(axes.T, columns):
        for method in sorted({run.label for run in here}):
            group = [run for run in here if run.label == method]
            certified, claimed = _epsilons(group[0])
            label = f"{method}: claimed {claimed:.3g}, certified {certified:.3g}"
            for axis, metric in zip(column, metrics):
                _draw_curve(axis, group, metric, label=label)
        column[0].set_title(CALIBRATIONS[name], fontsize=10)
        column[1].legend(fontsize=8.5, loc="upper center", bbox_to_anchor=(0.5, -0.17))
    _finish(figure, axes, runs, out=out, metrics=metrics)


def tradeoff(runs: list[Run], out: Path, *, title: str) -> None:
    """Figs 7 and 8: final accuracy against epsilon, with and without secure aggregation.

    Each calibration has a panel.
    """
    columns = list(_by_calibration(runs))
    size = (5.2 * len(columns), 4.2)
    figure, axes = plt.subplots(
        1, len(columns), figsize=size, sharey=True, layout="constrained", squeeze=False
    )
    figure.suptitle(title, fontsize=11)
    for axis, (name, here) in zip(axes[0], columns):
        for hidden, label, style in (
            (True, "with secure aggregation", "-"),
            (False, "without", "--"),
        ):
            group = [run for run in here if _hides_messages(run) == hidden]
            targets = _values(group, "epsilon")
            finals = [
                [run.final(run.metric) for run in _select(group, "epsilon", target)]
                for target in targets
            ]
            means = [np.mean(values) for values in finals]
            stds = [standard_deviation(values) for values in finals]
            axis.errorbar(targets, means, stds, marker="o", ms=4, capsize=3, label=label, ls=style)
        xlabel = f"epsilon of the server, {TARGETS[name]}"
        axis.set(xlabel=xlabel, xscale="log", title=CALIBRATIONS[name])
        grid_and_legend(axis, 9, loc="lower right")
    axes[0, 0].set_ylabel(f"{NAMES[runs[0].metric]} after {runs[0].rounds} rounds")
    _add_footnote(figure, runs)
    save(figure, out)


def _algo(run: Run, key: str) -> Any:
    return run.config["algo"][key]


def _select(runs: Iterable[Run], key: str, value: Any) -> list[Run]:
    """The runs whose algorithm has this value."""
    return [run for run in runs if _algo(run, key) == value]


def _by_calibration(runs: list[Run]) -> Iterator[tuple[str, list[Run]]]:
    """Each calibration that some run has, and its runs."""
    for name in CALIBRATIONS:
        if here := _select(runs, "calibration", name):
            yield name, here


def _hides_messages(run: Run) -> bool:
    return bool(run.config["aggregation"]["_target_"].rpartition(".")[2] != "Plain")


def _values(runs: Iterable[Run], key: str) -> list[Any]:
    return sorted({_algo(run, key) for run in runs})


def _epsilons(run: Run) -> tuple[float, float]:
    """Certified and claimed epsilon against the server, after the last round."""
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


def _draw_curve(axis: Axes, runs: list[Run], metric: str, *, label: str) -> None:
    curve = mean_and_std([run.metrics for run in require_one_group(runs).runs], metric)
    marker = MARKERS[len(axis.lines)]
    plot_band(axis, curve, label=label, lw=1.3, marker=marker, ms=3, markevery=0.1)


def _finish(
    figure: Figure, axes: np.ndarray, runs: list[Run], *, out: Path, metrics: tuple[str, str]
) -> None:
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
    _add_footnote(figure, runs)
    save(figure, out)


def _add_footnote(figure: Figure, runs: list[Run]) -> None:
    number = len({run.config["seed"] for run in runs})
    figure.supxlabel(
        f"{number} seed{'s' * (number > 1)}, delta = {runs[0].delta:g}, unit record, adjacency "
        "replace; step size and clip chosen on validation records, which no epsilon counts",
        fontsize=7,
    )
