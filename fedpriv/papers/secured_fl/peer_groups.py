"""Groups of peers (Jeon et al., SecureD-FL): Fig. 1, partitions; Fig. 2, messages of an iteration;
Fig. 6, number of partitions."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fedpriv.aggregation.admm.peer import RELAY, SUM, Y
from fedpriv.papers.ledger.results import measurement
from fedpriv.papers.secured_fl.peer_leakage import transcript
from fedpriv.reports.canvas import Axes, plt, save
from fedpriv.reports.number_table import write_records
from fedpriv.topology.design import designed
from fedpriv.topology.groups import ROLLBACK, RUNS, Partition, most_partitions, randomised

PEERS = 9
SIZE = 3
PHASES = {
    Y: ("C0", "y, inside groups"),
    SUM: ("C3", "sums, between leaders"),
    RELAY: ("C2", "sums, passed on"),
}
ARROW = {
    "arrowstyle": "->",
    "shrinkA": 9,
    "shrinkB": 9,
    "connectionstyle": "arc3,rad=0.12",
}
NUMBERS = {3: range(9, 61, 6), 4: range(16, 61, 12)}
"""Numbers of peers by the size of a group, as in Fig. 6. Designs attain the bound there."""
QUICK_RUNS = 3
DRAWS = 1_000_000
"""Most draws of the authors' program, which has a rollback."""
COUNTED_RUNS = 3
CURVES: dict[str, tuple[str, dict[str, Any]]] = {
    "bound": ("bound", {"color": "0.5", "ls": ":", "lw": 2}),
    "designs": ("designs", {"color": "C0", "marker": "o", "ms": 5}),
    "randomised with rollback": (
        "randomised, with rollback",
        {"color": "C1", "marker": "s", "ms": 4},
    ),
    "randomised as printed": ("randomised, as printed", {"color": "C3", "marker": "^", "ms": 4}),
}
"""Legend and style, by the column of the table."""


def partitions(folder: Path, profile: str) -> None:
    """Fig. 1: the groups of peers in each iteration."""
    found = designed(PEERS, SIZE)
    figure, axes = plt.subplots(1, len(found), figsize=(3 * len(found), 3.3), layout="constrained")
    figure.suptitle(
        f"{PEERS} peers in groups of {SIZE}: {len(found)} partitions, no two peers in a group twice"
    )
    for number, (axis, groups) in enumerate(zip(axes, found), 1):
        _draw_peers(axis, groups)
        axis.set_title(f"iterations {number}, {number + len(found)}, ...", fontsize=9)
    save(figure, folder / "figure.png")


def messages(folder: Path, profile: str) -> None:
    """Fig. 2: the messages of one iteration of a real aggregation."""
    groups = designed(PEERS, SIZE)[0]
    letters = transcript(PEERS, 1)
    figure, axes = plt.subplots(
        1, len(PHASES), figsize=(3.4 * len(PHASES), 3.7), layout="constrained"
    )
    figure.suptitle(f"messages of the first iteration, {PEERS} peers in groups of {SIZE}")
    for axis, (phase, (color, name)) in zip(axes, PHASES.items()):
        places = _draw_peers(axis, groups)
        sent = [letter for letter in letters if letter.message.phase == f"{phase} 1"]
        for letter in sent:
            start, end = (
                places[int(who.removeprefix("silo"))] for who in (letter.sender, letter.receiver)
            )
            axis.annotate("", end, start, arrowprops={**ARROW, "color": color})
        axis.set_title(f"{name}: {len(sent)} messages", fontsize=9)
    save(figure, folder / "figure.png")


def count_partitions(folder: Path, profile: str) -> None:
    """Fig. 6: number of partitions by the randomised construction and by designs, and the bound."""
    runs = RUNS if profile == "paper" else QUICK_RUNS
    rows: list[dict[str, float]] = []
    figure, axes = plt.subplots(1, len(NUMBERS), figsize=(10, 4), layout="constrained")
    for axis, (size, numbers) in zip(axes, NUMBERS.items()):
        here = [_partition_counts(size, n, runs) for n in numbers]
        rows += here
        for column, (label, style) in CURVES.items():
            x = [row["peers"] for row in here]
            axis.plot(x, [row[column] for row in here], label=label, **style)
        axis.set(title=f"groups of {size}", xlabel="peers", ylabel="partitions", ylim=(0, None))
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=8.5)
    figure.supxlabel(f"randomised constructions: mean of {runs} runs", fontsize=8)
    save(figure, folder / "figure.png")
    write_records(folder / "partitions.csv", rows)


def count_by_run(say: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """Fig. 6 with the authors' draws: the number of partitions that each run finds."""
    for size, n in ((size, n) for size, numbers in NUMBERS.items() for n in numbers):
        say(f"groups of {size}, {n} peers")
        for method, rollback in (("with rollback", ROLLBACK), ("as printed", None)):
            for run in range(COUNTED_RUNS):
                rng = random.Random(f"{size}/{n}/{run}")
                found = randomised((size,) * (n // size), rng, rollback=rollback, trials=DRAWS)
                yield measurement(
                    method=method,
                    place=f"size={size}, peers={n}",
                    seed=run,
                    round=0,
                    metric="partitions",
                    value=float(len(found)),
                    certified=math.inf,
                )


def _partition_counts(size: int, n: int, runs: int) -> dict[str, float]:
    """The table's row for n peers in groups of `size`."""
    sizes = (size,) * (n // size)
    with_rollback, printed = (
        float(
            np.mean(
                [
                    len(randomised(sizes, random.Random(run), rollback=rollback))
                    for run in range(runs)
                ]
            )
        )
        for rollback in (ROLLBACK, None)
    )
    return {
        "group size": size,
        "peers": n,
        "bound": most_partitions(sizes),
        "designs": len(designed(n, size)),
        "randomised with rollback": with_rollback,
        "randomised as printed": printed,
    }


def _draw_peers(axis: Axes, groups: Partition) -> list[tuple[float, float]]:
    """Draw the peers on a circle, in the colours of their groups, and return their places."""
    angles = [np.pi / 2 - 2 * np.pi * k / PEERS for k in range(PEERS)]
    places = [(float(np.cos(angle)), float(np.sin(angle))) for angle in angles]
    for number, group in enumerate(groups):
        axis.fill(
            *zip(*(places[peer] for peer in group)), color=f"C{number + 4}", alpha=0.25, zorder=0
        )
        for peer in group:
            axis.scatter(*places[peer], s=230, color=f"C{number + 4}", zorder=2)
            axis.annotate(str(peer), places[peer], ha="center", va="center", fontsize=9, zorder=3)
    axis.set(xlim=(-1.3, 1.3), ylim=(-1.3, 1.3), aspect="equal")
    axis.axis("off")
    return places
