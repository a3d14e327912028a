"""Fig. 3 and Tables I and II of Jeon et al. (SecureD-FL): test accuracy of Local-only, FedAvg
and SecureD-FL.

A figure is one sweep for each method. LEAF's FEMNIST must be in FEDPRIV_DATA or the cache. If it is
absent, MNIST with invented writers takes its place; titles say so.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from fedpriv.data import cifar10, femnist
from fedpriv.data.leaf import LeafFolder
from fedpriv.papers.experiments import run_experiment
from fedpriv.reports.canvas import MARKERS, grid_and_legend, plot_band, plt, save
from fedpriv.reports.finished_runs import Run, find_runs

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


def femnist_words() -> tuple[str, ...]:
    """Overrides that put MNIST in FEMNIST's place, if FEMNIST's files are absent."""
    return () if LeafFolder(femnist.NAME, None).exists else ("data=mnist_writers",)


def methods(
    folder: Path, profile: str, *, name: str, words: Callable[[], tuple[str, ...]] = tuple
) -> None:
    """Run the sweep of each method below a folder, and draw them.

    name: of the experiment.
    words: returns further overrides.
    """
    for method, own in METHODS.items():
        run_experiment(name, folder / method, profile, *words(), *own)
    draw(find_runs([folder]), folder)


def draw(runs: list[Run], folder: Path) -> None:
    """Write accuracies.csv (Table II) and figure.png into a folder.

    The figure shows accuracy against the round, with mean and deviation over seeds; each number of
    peers has a panel.
    """
    table = table_of(runs)
    summary(table).to_csv(folder / "accuracies.csv", index=False, float_format="%.5f")
    numbers = sorted(table["peers"].unique())
    figure, axes = plt.subplots(
        1, len(numbers), figsize=(5.2 * len(numbers), 4.2), squeeze=False, layout="constrained"
    )
    figure.suptitle(title(runs[0]), fontsize=11)
    for axis, number in zip(axes[0], numbers):
        here = table[table["peers"] == number]
        for marker, (name, own) in zip(MARKERS, here.groupby("method", sort=False)):
            curve = own.groupby("round")["accuracy"].agg(["mean", "std"])
            look = {"color": COLORS.get(str(name)), "marker": marker, "label": name, "ms": 4}
            plot_band(axis, curve, edge_width=None, **look)
        axis.set(title=f"{number} peers", xlabel="round", ylabel="test accuracy")
        grid_and_legend(axis, 9)
    save(figure, folder / "figure.png")


def table_of(runs: list[Run]) -> pd.DataFrame:
    """The metrics of all runs, sorted by data, number of peers and method."""
    parts = [
        run.metrics.assign(
            run=number,
            data=title(run),
            peers=int(run.config["allocator"]["n_silos"]),
            method=method(run),
            settings=settings(run),
            accuracy=run.metrics[run.status.metric],
        )
        for number, run in enumerate(runs)
    ]
    order = ["data", "peers", "method"]
    return pd.concat(parts, ignore_index=True).sort_values(order, kind="stable")


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """A row for each data set, number of peers and method, as in Table II.

    The best round is chosen on test records, as in Table II, which flatters.
    """
    place = ["data", "peers", "method"]
    by_run = table.groupby([*place, "run"])
    found = by_run["accuracy"].agg(last="last", best="max")
    found = found.join(by_run[["round", "settings"]].last()).groupby(place)
    means = found[["last", "best"]].mean()
    spread = found[["last", "best"]].std(ddof=0)
    return pd.DataFrame(
        {
            "seeds": found.size(),
            "rounds": found["round"].first(),
            "last": means["last"],
            "last deviation": spread["last"],
            "best": means["best"],
            "best deviation": spread["best"],
            "settings": found["settings"].first(),
        }
    ).reset_index()


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
    name = run.status.label
    return f"{name}, shared weights" if run.config["algo"].get("init_weights") == "shared" else name
