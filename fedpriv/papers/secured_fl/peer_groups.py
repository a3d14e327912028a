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
from fedpriv.topology.design import designed
from fedpriv.topology.groups import ROLLBACK, TRIALS, Partition, randomised

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
"""Numbers of peers by the size of a group, as in Fig. 6."""
DRAWS = 1_000_000
"""Most draws of the authors' program, which has a rollback."""
COUNTED_RUNS = 3


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


def count_by_run(say: Callable[[str], None], *, quick: bool = False) -> Iterator[dict[str, Any]]:
    """Fig. 6: the number of partitions that each run finds, with the authors' draws; quick: with
    fewer."""
    draws = TRIALS if quick else DRAWS
    for size, n in ((size, n) for size, numbers in NUMBERS.items() for n in numbers):
        say(f"groups of {size}, {n} peers")
        for method, rollback in (("with rollback", ROLLBACK), ("as printed", None)):
            for run in range(COUNTED_RUNS):
                rng = random.Random(f"{size}/{n}/{run}")
                found = randomised((size,) * (n // size), rng, rollback=rollback, trials=draws)
                yield measurement(
                    method=method,
                    place=f"size={size}, peers={n}",
                    seed=run,
                    round=0,
                    metric="partitions",
                    value=float(len(found)),
                    certified=math.inf,
                )


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
