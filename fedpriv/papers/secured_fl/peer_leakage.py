"""What curious peers learn in each iteration of an aggregation by ADMM (Jeon et al., SecureD-FL).

The figure shows two things: whose models curious peers can compute from the messages of a real
aggregation, and how narrow an interval a single message leaves for a coordinate.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from fedpriv.aggregation.admm.penalty import PRESETS, Penalty
from fedpriv.aggregation.admm.transcript import Eavesdroppers
from fedpriv.papers.secured_fl.peer_transcripts import transcript
from fedpriv.parties.traffic import Letter
from fedpriv.reports.canvas import MARKERS, Axes, grid_and_legend, plt, save
from fedpriv.reports.number_table import write_table
from fedpriv.topology.design import designed

SIZE = 3
MAX_COLLUDERS = 3
PEERS = {"quick": (9, 15), "paper": (9, 15, 21)}
COALITIONS = {"quick": 40, "paper": 500}
"""Number of coalitions of each size that are tried, by profile."""
COLUMNS = ("peers", "colluders", "iteration", "others determined", "of others", "safe by the paper")


class Leakage(NamedTuple):
    """What the worst coalition of a size learns.

    peers: how many there are.
    colluders: size of the coalition.
    determined: number of other peers whose models it knows, after each iteration.
    """

    peers: int
    colluders: int
    determined: tuple[int, ...]

    @property
    def claimed(self) -> int:
        """Iterations that the paper calls safe, 2 t_g - 1."""
        return 2 * len(designed(self.peers, SIZE)) - 1


def draw(folder: Path, profile: str) -> None:
    """Write leakage.csv and figure.png into a folder."""
    found = [each for peers in PEERS[profile] for each in leakage(peers, COALITIONS[profile])]
    rows = (
        (k.peers, k.colluders, iteration, number, k.peers - k.colluders, k.claimed)
        for k in found
        for iteration, number in enumerate(k.determined, 1)
    )
    write_table(folder / "leakage.csv", COLUMNS, rows)
    panels = len(PEERS[profile]) + 1
    figure, axes = plt.subplots(1, panels, figsize=(4.4 * panels, 4.2), layout="constrained")
    for axis, peers in zip(axes, PEERS[profile]):
        _draw_determined(axis, [each for each in found if each.peers == peers])
    _draw_widths(axes[-1])
    figure.supxlabel(
        f"rho = 1; the worst of at most {COALITIONS[profile]} coalitions a size, on transcripts "
        "of real aggregations",
        fontsize=8,
    )
    save(figure, folder / "figure.png")


def leakage(peers: int, coalitions: int) -> Iterator[Leakage]:
    """The worst of `coalitions` coalitions of each size, on one transcript."""
    iterations = 2 * len(designed(peers, SIZE)) - 1
    letters = transcript(peers, iterations)
    for colluders in range(1, MAX_COLLUDERS + 1):
        every = list(combinations(range(peers), colluders))
        step = -(-len(every) // coalitions)
        found = [_count_determined(coalition, letters, peers) for coalition in every[::step]]
        yield Leakage(
            peers, colluders, max(found, key=lambda row: [number > 0 for number in row] + list(row))
        )


def _count_determined(
    colluders: tuple[int, ...], letters: list[Letter], peers: int
) -> tuple[int, ...]:
    shares = {f"silo{k}": 1 / peers for k in range(peers)}
    steps = Eavesdroppers([f"silo{k}" for k in colluders], Penalty(1.0), shares).steps(letters)
    return tuple(len(step.determined) for step in steps)


def _draw_determined(axis: Axes, found: list[Leakage]) -> None:
    for marker, each in zip(MARKERS, found):
        iterations = range(1, len(each.determined) + 1)
        name = "one peer" if each.colluders == 1 else f"{each.colluders} peers together"
        axis.plot(iterations, each.determined, marker=marker, ms=4, label=name)
    peers = found[0].peers
    axis.axvline(found[0].claimed, color="0.5", ls=":", label="the paper calls safe up to here")
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
