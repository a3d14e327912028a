"""What curious peers know after each iteration of an aggregation by ADMM (Jeon et al., SecureD-FL),
from the messages of a real one; and how narrow an interval a single message leaves."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from fedpriv.aggregation.admm.penalty import PRESETS, Penalty
from fedpriv.aggregation.admm.transcript import Eavesdroppers
from fedpriv.papers.secured_fl.peer_transcripts import transcript
from fedpriv.parties.traffic import Letter
from fedpriv.reports.canvas import MARKERS, Axes, plt
from fedpriv.reports.number_table import write_table
from fedpriv.topology.design import designed

SIZE = 3
MOST_COLLUDERS = 3
PEERS = {"quick": (9, 15), "paper": (9, 15, 21)}
COALITIONS = {"quick": 40, "paper": 500}
"""How many coalitions of a size are looked at."""
COLUMNS = ("peers", "colluders", "iteration", "others determined", "of others", "safe by the paper")


class Known(NamedTuple):
    """After how many iterations how many others are determined, by the worst coalition of
    `colluders`."""

    peers: int
    colluders: int
    determined: tuple[int, ...]

    @property
    def claimed(self) -> int:
        """Iterations that the paper calls safe, 2 t_g - 1."""
        return 2 * len(designed(self.peers, SIZE)) - 1


def draw(folder: Path, profile: str) -> bool:
    """Write leakage.csv and figure.png."""
    found = [known for peers in PEERS[profile] for known in leakage(peers, COALITIONS[profile])]
    folder.mkdir(parents=True, exist_ok=True)
    rows = (
        (k.peers, k.colluders, iteration, number, k.peers - k.colluders, k.claimed)
        for k in found
        for iteration, number in enumerate(k.determined, 1)
    )
    write_table(folder / "leakage.csv", COLUMNS, rows)
    panels = len(PEERS[profile]) + 1
    figure, axes = plt.subplots(1, panels, figsize=(4.4 * panels, 4.2), layout="constrained")
    for axis, peers in zip(axes, PEERS[profile]):
        _determined(axis, [known for known in found if known.peers == peers])
    _widths(axes[-1])
    figure.supxlabel(
        f"rho = 1; the worst of at most {COALITIONS[profile]} coalitions a size, on transcripts "
        "of real aggregations",
        fontsize=8,
    )
    figure.savefig(folder / "figure.png", dpi=150)
    plt.close(figure)
    return True


def leakage(peers: int, coalitions: int) -> Iterator[Known]:
    """For each number of colluders the worst of the first so many coalitions, from one
    transcript.
    """
    iterations = 2 * len(designed(peers, SIZE)) - 1
    letters = transcript(peers, iterations)
    for colluders in range(1, MOST_COLLUDERS + 1):
        chosen = list(combinations(range(peers), colluders))
        several = chosen[:: -(-len(chosen) // coalitions)]
        found = [_determined_by(several_peers, letters, peers) for several_peers in several]
        yield Known(
            peers, colluders, max(found, key=lambda row: [number > 0 for number in row] + list(row))
        )


def _determined_by(
    colluders: tuple[int, ...], letters: list[Letter], peers: int
) -> tuple[int, ...]:
    shares = {f"silo{k}": 1 / peers for k in range(peers)}
    steps = Eavesdroppers([f"silo{k}" for k in colluders], Penalty(1.0), shares).steps(letters)
    return tuple(len(step.determined) for step in steps)


def _determined(axis: Axes, found: list[Known]) -> None:
    for marker, known in zip(MARKERS, found):
        iterations = range(1, len(known.determined) + 1)
        name = "one peer" if known.colluders == 1 else f"{known.colluders} peers together"
        axis.plot(iterations, known.determined, marker=marker, ms=4, label=name)
    peers = found[0].peers
    claimed = found[0].claimed
    axis.axvline(claimed, color="0.5", ls=":", label="the paper calls safe up to here")
    axis.set(title=f"{peers} peers, {len(designed(peers, SIZE))} partitions", xlabel="iterations")
    axis.set_ylabel("others' models determined")
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)


def _widths(axis: Axes) -> None:
    """Of the interval that a single message leaves, for the authors' schedules."""
    for marker, (name, (iterations, penalty)) in zip(MARKERS, PRESETS.items()):
        axis.plot(
            range(1, iterations + 1), penalty.widths(iterations), marker=marker, ms=3, label=name
        )
    axis.set(
        yscale="log",
        xlabel="iteration",
        ylabel="width of the interval for a coordinate",
        title="a single message",
    )
    axis.grid(alpha=0.3)
    axis.legend(fontsize=7)
