"""Figs 3 and 5 and Tables I and II of Jeon et al. (SecureD-FL): test accuracy of Local-only, FedAvg
and SecureD-FL.

A figure is one sweep for each method. LEAF's FEMNIST must be in FEDPRIV_DATA or the cache. If it is
absent, MNIST with invented writers takes its place; titles say so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from fedpriv.data import cifar10, femnist
from fedpriv.data.leaf import LeafFolder
from fedpriv.papers.experiments import run_experiment
from fedpriv.reports.canvas import MARKERS, grid_and_legend, plot_band, plt, save
from fedpriv.reports.finished_runs import Run, find_runs
from fedpriv.reports.number_table import write_table
from fedpriv.reports.summary import mean_and_std

SERVED = ("aggregation=plain",)
METHODS: dict[str, tuple[str, ...]] = {
    "local_only": ("algo=local_only", *SERVED),
    "fedavg": ("algo=fedavg", *SERVED),
    "secured_fl": (),
}
"""Overrides of each method's sweep, by the name of its folder."""
COLORS = {"Local-only": "C2", "FedAvg": "C1", "SecureD-FL": "C0"}
TITLES: dict[str, Callable[[str | None], str]] = {
    "Femnist": lambda root: "FEMNIST digits",
    "MnistWriters": lambda root: "MNIST with writers made up, in FEMNIST's place",
    "Shakespeare": lambda root: "Shakespeare, next character",
    "Cifar10Clients": cifar10.source,
}
"""By the data set's class."""
COLUMNS = (
    "data",
    "peers",
    "method",
    "seeds",
    "rounds",
    "last",
    "last deviation",
    "best",
    "best deviation",
    "settings",
)


def femnist_words() -> tuple[str, ...]:
    """Overrides that put MNIST in FEMNIST's place, if FEMNIST's files are absent."""
    return () if LeafFolder(femnist.NAME, None).exists else ("data=mnist_writers",)


def methods(name: str, words: Callable[[], tuple[str, ...]] = tuple) -> Callable[[Path, str], None]:
    """A function that runs the sweep of each method below a folder, and draws them.

    name: of the experiment.
    words: returns further overrides when the function runs.
    """

    def make(folder: Path, profile: str) -> None:
        for method, own in METHODS.items():
            run_experiment(name, folder / method, profile, *words(), *own)
        draw(find_runs([folder]), folder)

    return make


def by_iterations(folder: Path, profile: str) -> None:
    """Fig. 5: accuracy of SecureD-FL against the round, for 1 to 7 iterations."""
    run_experiment("secured_fl/fig5", folder, profile, *femnist_words())
    by_preset: dict[str, list[Run]] = {}
    for run in find_runs([folder]):
        by_preset.setdefault(run.config["aggregation"]["preset"], []).append(run)
    figure, axis = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
    for marker, (preset, here) in zip(MARKERS, sorted(by_preset.items())):
        curve = mean_and_std([run.metrics for run in here], here[0].metric)
        label = f"I = {preset.removeprefix('tuned_')}"
        axis.plot(curve.index, curve["mean"], marker=marker, ms=4, label=label)
    axis.set(xlabel="round", ylabel="test accuracy")
    axis.set_title(f"{title(here[0])}, 9 peers", fontsize=10)
    grid_and_legend(axis, 8.5)
    figure.supxlabel(
        "iterations are run beyond what is safe, so that they can be compared", fontsize=8
    )
    save(figure, folder / "figure.png")


def draw(runs: list[Run], folder: Path) -> None:
    """Write accuracies.csv (Table II) and figure.png into a folder.

    The figure shows accuracy against the round, with mean and deviation over seeds; each number of
    peers has a panel.
    """
    write_table(folder / "accuracies.csv", COLUMNS, rows(runs))
    groups = group_by_method(runs)
    numbers = sorted({n for _, n, _ in groups})
    figure, axes = plt.subplots(
        1, len(numbers), figsize=(5.2 * len(numbers), 4.2), squeeze=False, layout="constrained"
    )
    figure.suptitle(title(runs[0]), fontsize=11)
    for axis, number in zip(axes[0], numbers):
        panel = [(name, here) for (_, n, name), here in groups.items() if n == number]
        for marker, (name, here) in zip(MARKERS, panel):
            curve = mean_and_std([run.metrics for run in here], here[0].metric)
            look = {"color": COLORS.get(name), "marker": marker, "ms": 4, "label": name}
            plot_band(axis, curve, edge_width=None, **look)
        axis.set(title=f"{number} peers", xlabel="round", ylabel="test accuracy")
        grid_and_legend(axis, 9)
    save(figure, folder / "figure.png")


def group_by_method(runs: list[Run]) -> dict[tuple[str, int, str], list[Run]]:
    """Runs by data, number of peers and method, sorted by these."""
    groups: dict[tuple[str, int, str], list[Run]] = {}
    for run in runs:
        place = title(run), int(run.config["allocator"]["n_silos"]), method(run)
        groups.setdefault(place, []).append(run)
    return dict(sorted(groups.items()))


def rows(runs: list[Run]) -> Iterable[tuple[Any, ...]]:
    """A row of `COLUMNS` for each data set, number of peers and method.

    The best round is chosen on test records, as in Table II, which flatters.
    """
    for (data, n, name), here in group_by_method(runs).items():
        accuracies = [run.metrics[run.metric].to_numpy() for run in here]
        last = [float(values[-1]) for values in accuracies]
        best = [float(values.max()) for values in accuracies]
        numbers = (np.mean(last), np.std(last), np.mean(best), np.std(best))
        shown = (f"{number:.5f}" for number in numbers)
        yield (data, n, name, len(here), here[0].rounds, *shown, settings(here[0]))


def title(run: Run) -> str:
    """The name of the run's data."""
    data = run.config["data"]
    return TITLES[data["_target_"].rpartition(".")[2]](data["root"])


def settings(run: Run) -> str:
    """The other settings that matter: number of records, network, local training."""
    chosen = {group: run.config.get(group, {}) for group in ("data", "model")}
    words = [
        f"{group}.{key}={value}"
        for group, values in chosen.items()
        for key, value in values.items()
        if key not in ("_target_", "root")
    ]
    algo = run.config["algo"]
    words += [
        f"algo.{key}={algo[key]}"
        for key in ("local_lr", "batch_size", "keep_optimizer")
        if key in algo
    ]
    return " ".join(words)


def method(run: Run) -> str:
    """The run's method, and whether the peers share first weights."""
    name = run.label
    return f"{name}, shared weights" if run.config["algo"].get("init_weights") == "shared" else name
