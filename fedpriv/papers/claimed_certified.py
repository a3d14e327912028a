"""Every known counterexample: the epsilon that a paper claims, the certified one, and one that is
attained."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd

from fedpriv.papers.counterexample import Counterexample
from fedpriv.papers.hu import counterexamples as hu_counterexamples
from fedpriv.papers.huang import theory as huang
from fedpriv.papers.lowy import counterexamples as lowy_counterexamples
from fedpriv.papers.uldp_fl import counterexamples as uldp_counterexamples
from fedpriv.reports.canvas import plt, save

MARKS = {
    "claimed": ("x", "C3", "claimed by the paper"),
    "certified": ("o", "C0", "certified: our bound for all data"),
    "attained": ("|", "k", "attained: real for some data"),
    "by_proof": ("s", "0.6", "the paper's route, its conditions kept"),
}
"""Marker, colour and legend of each epsilon."""
FAILURES = {
    "number": ("the number fails", "C3", "-"),
    "proof": ("only the proof fails", "C2", ":"),
    "open": ("the proof fails, number open", "0.45", ":"),
}
"""Text, colour and line style of a row, by what fails."""


def all_counterexamples() -> list[Counterexample]:
    """The counterexamples of all papers, in the papers' order."""
    papers = uldp_counterexamples, hu_counterexamples, huang, lowy_counterexamples
    return [example for paper in papers for example in paper.counterexamples()]


def draw(folder: Path, profile: str = "quick") -> None:
    """Write claimed_certified.csv and figure.png into a folder."""
    examples = all_counterexamples()
    rows = ([e.name, *(getattr(e, name) for name in MARKS), e.fails, e.note] for e in examples)
    table = pd.DataFrame(rows, columns=["name", *MARKS, "fails", "note"])
    table.to_csv(folder / "claimed_certified.csv", index=False)

    figure, axis = plt.subplots(figsize=(10.5, 1.6 + 0.42 * len(examples)), layout="constrained")
    for name, (marker, color, label) in MARKS.items():
        points = [(getattr(e, name), row) for row, e in enumerate(examples)]
        values, places = zip(*((v, row) for v, row in points if v is not None and math.isfinite(v)))
        size = 160 if marker == "|" else 45
        axis.scatter(values, places, marker=marker, color=color, s=size, label=label, zorder=3)
    for row, example in enumerate(examples):
        text, color, style = FAILURES[example.fails]
        ends = example.claimed, max(example.certified, example.attained or 0)
        if math.isfinite(ends[1]):
            axis.plot(ends, [row, row], color=color, ls=style, lw=1.8, zorder=1)
        axis.annotate(
            f"{text}: {_ascending(example)}",
            (1.01, row),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=8,
            color=color,
        )
    axis.set_yticks(range(len(examples)), [f"{e.name}\n{e.note}" for e in examples], fontsize=7.5)
    axis.invert_yaxis()
    axis.set(xscale="log", xlabel="epsilon")
    axis.grid(alpha=0.3, axis="x")
    legend = axis.get_legend_handles_labels()
    figure.legend(*legend, loc="outside upper center", ncol=4, fontsize=8.5)
    save(figure, folder / "figure.png")


def _ascending(example: Counterexample) -> str:
    """The example's different epsilons, from small to large."""
    epsilons = {getattr(example, name) for name in MARKS} - {None}
    return " < ".join(f"{e:,.0f}" if e >= 1000 else f"{e:.4g}" for e in sorted(epsilons))
