"""Figs 3 and 5 and Tables I and II of Jeon et al. (SecureD-FL): test accuracy of Local-only, FedAvg
and SecureD-FL.

A figure is a sweep of each method. LEAF's FEMNIST is looked for in FEDPRIV_DATA or the cache; where
it is absent MNIST with writers made up takes its place, which titles say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from fedpriv.data import cifar10, femnist
from fedpriv.data.leaf import LeafFolder
from fedpriv.papers.child_process import run_command
from fedpriv.papers.quick_profiles import profile_words
from fedpriv.reports.canvas import MARKERS, plt
from fedpriv.reports.finished_runs import Run, find_runs
from fedpriv.reports.number_table import write_table
from fedpriv.reports.summary import mean_and_std

SERVED = ("aggregation=plain",)
METHODS: dict[str, tuple[str, ...]] = {
    "local_only": ("algo=local_only", *SERVED),
    "fedavg": ("algo=fedavg", *SERVED),
    "secured_fl": (),
}
"""Words of each method's sweep, by the name of its folder."""
NAMES = {"DEFAULT": "FedAvg"}
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
    """What puts MNIST in FEMNIST's place, if its files are absent."""
    return () if LeafFolder(femnist.NAME, None).exists else ("data=mnist_writers",)


def methods(name: str, words: Callable[[], tuple[str, ...]] = tuple) -> Callable[..., bool]:
    """Runs the sweep of each method of an experiment below a folder, and draws them.

    words: further ones, read when it runs.
    """

    def make(folder: Path, profile: str) -> bool:
        usual = (f"experiment={name}", *words(), *profile_words(name, profile))
        for method, own in METHODS.items():
            if run_command(*usual, *own, f"hydra.sweep.dir={folder / method}"):
                return False
        draw(find_runs([folder]), folder)
        return True

    return make


def by_iterations(folder: Path, profile: str) -> bool:
    """Fig. 5: accuracy of SecureD-FL against the round, for 1 to 7 iterations."""
    quick = profile_words("secured_fl/fig5", profile)
    if run_command(
        "experiment=secured_fl/fig5", *femnist_words(), *quick, f"hydra.sweep.dir={folder}"
    ):
        return False
    runs = find_runs([folder])
    figure, axis = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
    for marker, preset in zip(
        MARKERS, sorted({run.config["aggregation"]["preset"] for run in runs})
    ):
        here = [run for run in runs if run.config["aggregation"]["preset"] == preset]
        curve = mean_and_std([run.metrics for run in here], here[0].metric)
        axis.plot(
            curve.index,
            curve["mean"],
            marker=marker,
            ms=4,
            label=f"I = {preset.removeprefix('tuned_')}",
        )
    axis.set(xlabel="round", ylabel="test accuracy")
    axis.set_title(f"{title(runs[0])}, 9 peers", fontsize=10)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8.5)
    figure.supxlabel(
        "iterations are run beyond what is safe, so that they can be compared", fontsize=8
    )
    figure.savefig(folder / "figure.png", dpi=150)
    plt.close(figure)
    return True


def draw(runs: list[Run], folder: Path) -> None:
    """Write accuracies.csv, Table II, and figure.png: accuracy against the round, a panel for each
    number of peers, mean and deviation over seeds."""
    write_table(folder / "accuracies.csv", COLUMNS, rows(runs))
    numbers = sorted({peers(run) for run in runs})
    figure, axes = plt.subplots(
        1, len(numbers), figsize=(5.2 * len(numbers), 4.2), squeeze=False, layout="constrained"
    )
    figure.suptitle(title(runs[0]), fontsize=11)
    for axis, n in zip(axes[0], numbers):
        for marker, name in zip(MARKERS, sorted({method(run) for run in runs if peers(run) == n})):
            here = [run for run in runs if (peers(run), method(run)) == (n, name)]
            curve = mean_and_std([run.metrics for run in here], here[0].metric)
            color = COLORS.get(name)
            axis.plot(curve.index, curve["mean"], color=color, marker=marker, ms=4, label=name)
            low, high = (curve["mean"] + sign * curve["std"] for sign in (-1, 1))
            axis.fill_between(curve.index, low, high, color=color, alpha=0.2)
        axis.set(title=f"{n} peers", xlabel="round", ylabel="test accuracy")
        axis.grid(alpha=0.3)
        axis.legend(fontsize=9)
    figure.savefig(folder / "figure.png", dpi=150)
    plt.close(figure)


def rows(runs: list[Run]) -> Iterable[tuple[Any, ...]]:
    """A row of `COLUMNS` for each data set, number of peers and method. best: the best round on
    test records, as in Table II, which flatters."""
    groups: dict[tuple[str, int, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((title(run), peers(run), method(run)), []).append(run)
    for (data, n, name), here in sorted(groups.items()):
        accuracies = [run.metrics[run.metric].to_numpy() for run in here]
        last = [float(values[-1]) for values in accuracies]
        best = [float(values.max()) for values in accuracies]
        rounds = int(here[0].metrics["round"].iloc[-1])
        numbers = (np.mean(last), np.std(last), np.mean(best), np.std(best))
        yield (
            data,
            n,
            name,
            len(here),
            rounds,
            *(f"{number:.5f}" for number in numbers),
            settings(here[0]),
        )


def title(run: Run) -> str:
    """What the run's data are."""
    data = run.config["data"]
    return TITLES[data["_target_"].rpartition(".")[2]](data["root"])


def settings(run: Run) -> str:
    """What else decides: how many records there are, the network, and local training."""
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


def peers(run: Run) -> int:
    return int(run.config["allocator"]["n_silos"])


def method(run: Run) -> str:
    name = NAMES.get(run.label, run.label)
    return f"{name}, shared weights" if run.config["algo"].get("init_weights") == "shared" else name
