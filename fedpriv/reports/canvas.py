"""matplotlib for pictures that go to files: it never opens a window, and its PDFs hold text as Type
42 fonts, which journals ask for."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogFormatter, MaxNLocator
from matplotlib.transforms import ScaledTranslation

__all__ = [
    "MARKERS",
    "Axes",
    "Figure",
    "Line2D",
    "MaxNLocator",
    "PlainLog",
    "ScaledTranslation",
    "plt",
    "savable",
    "save_bounds",
]

MARKERS = "os^Dv<>pXP*h"
"""Of lines, by their number: they tell lines apart where colours do not, in print or to the
colour-blind."""

matplotlib.rcParams.update({"pdf.fonttype": 42, "ps.fonttype": 42})


class PlainLog(LogFormatter):
    """Labels of a log axis as plain numbers, where matplotlib finds room for one."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        return f"{x:g}" if super().__call__(x, pos) else ""


def savable(path: Path) -> bool:
    """Whether a picture can be written to a file of this name."""
    return path.suffix.lower().removeprefix(".") in FigureCanvasBase.get_supported_filetypes()


def save_bounds(figure: Figure, path: Path, *, bound: str, measured: str, about: str) -> Path:
    """Save a figure of bounds, dashed, beside what was measured, and close it.

    about: what was run. Returns `path`.
    """
    handles = [
        Line2D([], [], color="k", ls=ls, marker=marker) for ls, marker in (("--", ""), ("-", "o"))
    ]
    figure.legend(handles, [bound, measured], loc="outside upper center", ncol=2, fontsize=9)
    figure.supxlabel(about, fontsize=7.5)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return path
