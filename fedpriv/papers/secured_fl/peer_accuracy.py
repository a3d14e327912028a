"""Fig. 3 of Jeon et al. (SecureD-FL): test accuracy of Local-only, FedAvg and SecureD-FL.

A figure is one sweep for each method. LEAF's FEMNIST must be in FEDPRIV_DATA or the cache. If it is
absent, MNIST with invented writers takes its place; its name in the title says so.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fedpriv.data import femnist
from fedpriv.data.leaf import LeafFolder
from fedpriv.papers.experiments import run_experiment
from fedpriv.reports import privacy_utility
from fedpriv.reports.finished_runs import find_runs

SERVED = ("aggregation=plain",)
METHODS: dict[str, tuple[str, ...]] = {
    "local_only": ("algo=local_only", *SERVED),
    "fedavg": ("algo=fedavg", *SERVED),
    "secured_fl": (),
}
"""Overrides of each method's sweep, by the name of its folder."""


def femnist_words() -> tuple[str, ...]:
    """Overrides that put MNIST in FEMNIST's place, if FEMNIST's files are absent."""
    return () if LeafFolder(femnist.NAME, None).exists else ("data=mnist_writers",)


def draw(
    folder: Path, profile: str, *, name: str, words: Callable[[], tuple[str, ...]] = tuple
) -> None:
    """Run the sweep of each method below a folder, and draw them; each number of peers has a row.

    name: of the experiment.
    words: returns further overrides.
    """
    for method, own in METHODS.items():
        run_experiment(name, folder / method, profile, *words(), *own)
    runs = find_runs([folder])
    privacy_utility.draw(
        runs,
        folder / "figure.png",
        title=runs[0].config["data"]["_target_"].rpartition(".")[2],
        row_title=lambda config: f"{config['allocator']['n_silos']} peers",
    )
