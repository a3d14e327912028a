"""What curious peers learn in each iteration of an aggregation by ADMM (Jeon et al., SecureD-FL).

The figure shows two things: whose models curious peers can compute from the messages of a real
aggregation, and how narrow an interval a single message leaves for a coordinate.
"""

from __future__ import annotations

from itertools import chain, combinations
from pathlib import Path

import pandas as pd

from fedpriv.aggregation.admm.penalty import PRESETS, Penalty
from fedpriv.aggregation.admm.transcript import Eavesdroppers
from fedpriv.parties.traffic import Letter
from fedpriv.reports.canvas import MARKERS, Axes, grid_and_legend, plt, save
from fedpriv.runtime import prepare
from fedpriv.settings.compose import one_experiment
from fedpriv.testing.faults import FaultyNetwork
from fedpriv.topology.design import designed

SIZE = 3
MAX_COLLUDERS = 3
PEERS = {"quick": (9, 15), "paper": (9, 15, 21)}
COALITIONS = {"quick": 40, "paper": 500}
"""Number of coalitions of each size that are tried, by profile."""
COLUMNS = ("peers", "colluders", "iteration", "others determined", "of others", "safe by the paper")


FIXED = (
    "data=breast_cancer",
    "algo=fedavg",
    "aggregation=admm",
    "aggregation.preset=null",
    "aggregation.rho=1",
)


def draw(folder: Path, profile: str) -> None:
    """Write leakage.csv and figure.png into a folder."""
    found = {peers: leakage(peers, COALITIONS[profile]) for peers in PEERS[profile]}
    rows = (
        (peers, colluders, iteration, number, peers - colluders, claimed_safe(peers))
        for peers, worst in found.items()
        for colluders, determined in worst.items()
        for iteration, number in enumerate(determined, 1)
    )
    pd.DataFrame(rows, columns=COLUMNS).to_csv(folder / "leakage.csv", index=False)
    panels = len(PEERS[profile]) + 1
    figure, axes = plt.subplots(1, panels, figsize=(4.4 * panels, 4.2), layout="constrained")
    for axis, (peers, worst) in zip(axes, found.items()):
        _draw_determined(axis, peers, worst)
    _draw_widths(axes[-1])
    figure.supxlabel(
        f"rho = 1; the worst of at most {COALITIONS[profile]} coalitions a size, on transcripts "
        "of real aggregations",
        fontsize=8,
    )
    save(figure, folder / "figure.png")


def claimed_safe(peers: int) -> int:
    """Iterations that the paper calls safe, 2 t_g - 1."""
    return 2 * len(designed(peers, SIZE)) - 1


def leakage(peers: int, coalitions: int) -> dict[int, list[int]]:
    """By size of a coalition, how many other peers' models the worst of `coalitions` coalitions
    knows after each iteration of one transcript."""
    letters = transcript(peers, claimed_safe(peers))
    shares = {f"silo{k}": 1 / peers for k in range(peers)}
    worst = {}
    for colluders in range(1, MAX_COLLUDERS + 1):
        every = list(combinations(range(peers), colluders))
        step = -(-len(every) // coalitions)
        found = []
        for coalition in every[::step]:
            names = [f"silo{k}" for k in coalition]
            steps = Eavesdroppers(names, Penalty(1.0), shares).steps(letters)
            found.append([len(step.determined) for step in steps])
        worst[colluders] = max(found, key=lambda row: [number > 0 for number in row] + row)
    return worst


def _draw_determined(axis: Axes, peers: int, found: dict[int, list[int]]) -> None:
    for marker, (colluders, determined) in zip(MARKERS, found.items()):
        name = "one peer" if colluders == 1 else f"{colluders} peers together"
        axis.plot(range(1, len(determined) + 1), determined, marker=marker, ms=4, label=name)
    axis.axvline(claimed_safe(peers), color="0.5", ls=":", label="the paper calls safe up to here")
    axis.set(title=f"{peers} peers, {len(designed(peers, SIZE))} partitions", xlabel="iterations")
    axis.set_ylabel("others' models determined")
    grid_and_legend(axis, 8)


def _draw_widths(axis: Axes) -> None:
    """Width of the interval that a single message leaves, for the authors' schedules."""
    for marker, (name, (iterations, penalty)) in zip(MARKERS, PRESETS.items()):
        widths = penalty.widths(iterations)
        axis.plot(range(1, iterations + 1), widths, marker=marker, ms=3, label=name)
    axis.set(
        yscale="log",
        xlabel="iteration",
        ylabel="width of the interval for a coordinate",
        title="a single message",
    )
    grid_and_legend(axis, 7)


def transcript(peers: int, iterations: int, *words: str) -> list[Letter]:
    """All messages of one round of federated averaging, with rho = 1.

    peers: how many.
    iterations: of ADMM.
    words: further overrides.

    Raises ConfigError like the command.
    """
    sizes = (
        f"preset.n_silos={peers}",
        "preset.silo_epochs=1",
        f"aggregation.iterations={iterations}",
    )
    exp = one_experiment(*FIXED, *sizes, "aggregation.beyond_safe=true", *words)
    network = FaultyNetwork(())
    with prepare(exp) as prepared:
        prepared.session.network = network
        result = prepared.run_round(prepared.queries(1), prepared.state)
        if result.aborted:
            raise RuntimeError(result.aborted)
    return list(chain.from_iterable(network.sent))
