"""Every known counterexample: the epsilon that a paper claims, the one that is certified, and one
that is attained."""

from __future__ import annotations

import math
from pathlib import Path

from fedpriv.papers.counterexample import Counterexample
from fedpriv.papers.hu import counterexamples as hu_counterexamples
from fedpriv.papers.huang import theory as huang
from fedpriv.papers.lowy import counterexamples as lowy_counterexamples
from fedpriv.papers.uldp_fl import counterexamples as uldp_counterexamples
from fedpriv.reports.canvas import plt
from fedpriv.reports.number_table import write_table

MARKS = {
    "claimed": ("x", "C3"),
    "certified": ("o", "C0"),
    "attained": ("|", "k"),
    "by_proof": ("s", "0.6"),
}
MEANING = {
    "claimed": "claimed by the paper",
    "certified": "certified: holds for all data",
    "attained": "attained: real for some data",
    "by_proof": "the paper's route, its conditions kept",
}
FAILS = {
    "number": ("the number fails", "C3"),
    "proof": ("only the proof fails", "C2"),
    "open": ("the proof fails, number open", "0.45"),
}
"""What fails, as the figure says it: in words, and as the colour of the row."""


def all_counterexamples() -> list[Counterexample]:
    """Of all papers, in their order."""
    papers = uldp_counterexamples, hu_counterexamples, huang, lowy_counterexamples
    return [example for paper in papers for example in paper.counterexamples()]


def draw(folder: Path, profile: str = "quick") -> Path:
    """Write claimed_certified.csv and figure.png into `folder`; returns the picture's path."""
    examples = all_counterexamples()
    folder.mkdir(parents=True, exist_ok=True)
    rows = ([e.name, *(getattr(e, kind) for kind in MARKS), e.fails, e.note] for e in examples)
    write_table(folder / "claimed_certified.csv", ["name", *MARKS, "fails", "note"], rows)

    figure, axis = plt.subplots(figsize=(10.5, 1.6 + 0.42 * len(examples)), layout="constrained")
    for kind, (marker, color) in MARKS.items():
        points = [(getattr(e, kind), row) for row, e in enumerate(examples)]
        points = [
            (value, row) for value, row in points if value is not None and math.isfinite(value)
        ]
        values, places = zip(*points)
        size = 160 if marker == "|" else 45
        axis.scatter(
            values, places, marker=marker, color=color, s=size, label=MEANING[kind], zorder=3
        )
    for row, example in enumerate(examples):
        words, color = FAILS[example.fails]
        ends = example.claimed, max(example.certified, example.attained or 0)
        if math.isfinite(ends[1]):
            axis.plot(
                ends,
                [row, row],
                color=color,
                ls="-" if example.fails == "number" else ":",
                lw=1.8,
                zorder=1,
            )
        text = f"{words}: {_in_order(example)}"
        axis.annotate(
            text,
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
    figure.legend(
        *axis.get_legend_handles_labels(), loc="outside upper center", ncol=4, fontsize=8.5
    )
    figure.savefig(folder / "figure.png", dpi=150)
    plt.close(figure)
    return folder / "figure.png"


def _in_order(example: Counterexample) -> str:
    """Claimed, attained, certified and the paper's own route from small to large, equal ones
    once.
    """
    shown = [example.claimed, example.attained, example.certified, example.by_proof]
    return " < ".join(map(_number, sorted({value for value in shown if value is not None})))


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
