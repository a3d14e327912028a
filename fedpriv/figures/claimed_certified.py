"""Every known counterexample: the epsilon that a paper claims, the one that is certified, and one that is attained."""

from __future__ import annotations

import math
from pathlib import Path

from fedpriv.figures.canvas import plt
from fedpriv.figures.tables import write_table
from fedpriv.theory import hu_counterexamples, huang, uldp_counterexamples
from fedpriv.theory.counterexample import Counterexample

MARKS = {"claimed": ("x", "C3"), "certified": ("o", "C0"), "attained": ("|", "k")}
MEANING = {
    "claimed": "claimed by the paper",
    "certified": "certified: holds for all data",
    "attained": "attained: real for some data",
}


def all_counterexamples() -> list[Counterexample]:
    """Of all papers, in their order."""
    return [*uldp_counterexamples.counterexamples(), *hu_counterexamples.counterexamples(), *huang.counterexamples()]


def draw(folder: Path) -> Path:
    """Write claimed_certified.csv and figure.png into `folder`; returns the picture's path."""
    examples = all_counterexamples()
    folder.mkdir(parents=True, exist_ok=True)
    rows = ([e.name, *(getattr(e, kind) for kind in MARKS), e.note] for e in examples)
    write_table(folder / "claimed_certified.csv", ["name", *MARKS, "note"], rows)

    figure, axis = plt.subplots(figsize=(9.5, 1.6 + 0.42 * len(examples)), layout="constrained")
    for kind, (marker, color) in MARKS.items():
        points = [(getattr(e, kind), row) for row, e in enumerate(examples)]
        points = [(value, row) for value, row in points if value is not None and math.isfinite(value)]
        size = 160 if marker == "|" else 45
        values, places = zip(*points)
        axis.scatter(values, places, marker=marker, color=color, s=size, label=MEANING[kind], zorder=3)
    for row, example in enumerate(examples):
        ends = example.claimed, max(example.certified, example.attained or 0)
        if math.isfinite(ends[1]):
            axis.plot(ends, [row, row], color="0.75", lw=1.5, zorder=1)
        shown = [example.claimed, example.attained, example.certified]
        text = " < ".join(map(_number, dict.fromkeys(value for value in shown if value is not None)))
        axis.annotate(text, (1.01, row), xycoords=("axes fraction", "data"), va="center", fontsize=8)
    axis.set_yticks(range(len(examples)), [f"{e.name}\n{e.note}" for e in examples], fontsize=7.5)
    axis.invert_yaxis()
    axis.set(xscale="log", xlabel="epsilon")
    axis.grid(alpha=0.3, axis="x")
    figure.legend(*axis.get_legend_handles_labels(), loc="outside upper center", ncol=3, fontsize=8.5)
    figure.savefig(folder / "figure.png", dpi=150)
    plt.close(figure)
    return folder / "figure.png"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
