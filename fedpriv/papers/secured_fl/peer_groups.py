"""Groups of peers (Jeon et al., SecureD-FL): Fig. 1, partitions; Fig. 2, messages of an iteration;
Fig. 6, how many partitions there are."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np

from fedpriv.aggregation.admm.peer import RELAY, SUM, Y
from fedpriv.papers.secured_fl.peer_transcripts import transcript
from fedpriv.reports.canvas import Axes, plt
from fedpriv.reports.number_table import write_table
from fedpriv.topology.design import designed
from fedpriv.topology.groups import Partition, most_partitions
from fedpriv.topology.randomised import ROLLBACK, RUNS, randomised

PEERS = 9
SIZE = 3
PHASES = {
    Y: ("C0", "y, inside groups"),
    SUM: ("C3", "sums, between leaders"),
    RELAY: ("C2", "sums, passed on"),
}
NUMBERS = {3: range(9, 61, 6), 4: range(16, 61, 12)}
"""Peers by the size of a group, as in Fig. 6; there the bound is attained."""
QUICK_RUNS = 3


def partitions(folder: Path, profile: str) -> bool:
    """Fig. 1: which peers hear each other in which iteration."""
    found = designed(PEERS, SIZE)
    figure, axes = plt.subplots(1, len(found), figsize=(3 * len(found), 3.3), layout="constrained")
    figure.suptitle(
        f"{PEERS} peers in groups of {SIZE}: {len(found)} partitions, no two peers in a group twice"
    )
    for number, (axis, groups) in enumerate(zip(axes, found), 1):
        _peers(axis, groups)
        axis.set_title(f"iterations {number}, {number + len(found)}, ...", fontsize=9)
    return _saved(folder)


def messages(folder: Path, profile: str) -> bool:
    """Fig. 2: who sends what in one iteration of a real aggregation."""
    groups = designed(PEERS, SIZE)[0]
    letters = transcript(PEERS, 1)
    figure, axes = plt.subplots(
        1, len(PHASES), figsize=(3.4 * len(PHASES), 3.7), layout="constrained"
    )
    figure.suptitle(f"messages of the first iteration, {PEERS} peers in groups of {SIZE}")
    for axis, (phase, (color, name)) in zip(axes, PHASES.items()):
        places = _peers(axis, groups)
        sent = [letter for letter in letters if letter.message.phase == f"{phase} 1"]
        for letter in sent:
            start, end = (
                places[int(who.removeprefix("silo"))] for who in (letter.sender, letter.receiver)
            )
            look = {
                "arrowstyle": "->",
                "color": color,
                "shrinkA": 9,
                "shrinkB": 9,
                "connectionstyle": "arc3,rad=0.12",
            }
            axis.annotate("", end, start, arrowprops=look)
        axis.set_title(f"{name}: {len(sent)} messages", fontsize=9)
    return _saved(folder)


def how_many(folder: Path, profile: str) -> bool:
    """Fig. 6: partitions that the randomised construction finds, those that are built in, and the
    bound."""
    runs = RUNS if profile == "paper" else QUICK_RUNS
    rows = []
    figure, axes = plt.subplots(1, len(NUMBERS), figsize=(10, 4), layout="constrained")
    for axis, (size, numbers) in zip(axes, NUMBERS.items()):
        for n in numbers:
            sizes = (size,) * (n // size)
            each = {
                rollback: [
                    len(randomised(sizes, random.Random(run), rollback=rollback))
                    for run in range(runs)
                ]
                for rollback in (ROLLBACK, None)
            }
            with_rollback, printed = (float(np.mean(found)) for found in each.values())
            rows.append(
                (size, n, most_partitions(sizes), len(designed(n, size)), with_rollback, printed)
            )
        here = np.array([row[1:] for row in rows if row[0] == size])
        axis.plot(here[:, 0], here[:, 1], color="0.5", ls=":", lw=2, label="bound")
        axis.plot(here[:, 0], here[:, 2], "o-", ms=5, color="C0", label="designs")
        axis.plot(here[:, 0], here[:, 3], "s-", ms=4, color="C1", label="randomised, with rollback")
        axis.plot(here[:, 0], here[:, 4], "^-", ms=4, color="C3", label="randomised, as printed")
        axis.set(title=f"groups of {size}", xlabel="peers", ylabel="partitions", ylim=(0, None))
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=8.5)
    figure.supxlabel(f"randomised constructions: mean of {runs} runs", fontsize=8)
    saved = _saved(folder)
    columns = (
        "group size",
        "peers",
        "bound",
        "designs",
        "randomised with rollback",
        "randomised as printed",
    )
    write_table(folder / "partitions.csv", columns, rows)
    return saved


def _peers(axis: Axes, groups: Partition) -> list[tuple[float, float]]:
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


def _saved(folder: Path) -> bool:
    folder.mkdir(parents=True, exist_ok=True)
    plt.savefig(folder / "figure.png", dpi=150)
    plt.close()
    return True
