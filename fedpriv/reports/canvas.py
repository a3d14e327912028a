"""matplotlib for figures in files, and the parts that several figures share.

No window is ever opened. PDFs embed text as Type 42 fonts, which journals ask for.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import (
    LogFormatter,
    LogFormatterMathtext,
    MaxNLocator,
)
from matplotlib.transforms import ScaledTranslation

from fedpriv.util.printing import printable

__all__ = [
    "MARKERS",
    "Axes",
    "Figure",
    "FontProperties",
    "Line2D",
    "MaxNLocator",
    "ScaledTranslation",
    "grid_and_legend",
    "plain_ticks",
    "plot_band",
    "plt",
    "save",
    "save_bounds",
    "supports_suffix",
]

MARKERS = "os^Dv<>pXP*h"
"""One marker for each line, so that lines differ in print and for colour-blind readers too."""

matplotlib.rcParams.update({"pdf.fonttype": 42, "ps.fonttype": 42})


class PlainLog(LogFormatter):
    """Labels of a log axis as plain numbers, where matplotlib finds room for a label."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        return f"{x:g}" if super().__call__(x, pos) else ""


def supports_suffix(path: Path) -> bool:
    """Whether matplotlib can write a file with this suffix."""
    return path.suffix.lower().removeprefix(".") in FigureCanvasBase.get_supported_filetypes()


def plot_band(
    axis: Axes, curve: pd.DataFrame, *, edge_width: float | None = 0, **line_style: Any
) -> None:
    """Plot a line through the means, in a band of one standard deviation on each side.

    curve: columns `mean` and `std`; the index is x.
    edge_width: of the band; None is matplotlib's default.
    """
    (line,) = axis.plot(curve.index, curve["mean"], **line_style)
    low = curve["mean"] - curve["std"]
    high = curve["mean"] + curve["std"]
    color = line.get_color()
    axis.fill_between(curve.index, low, high, color=color, alpha=0.2, lw=edge_width)


def plain_ticks(axis: Axes, values: Iterable[float]) -> None:
    """Label these values of x as plain numbers, and no others."""
    ticks = list(values)
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.minorticks_off()


def grid_and_legend(axis: Axes, fontsize: float, **options: Any) -> None:
    """Add a light grid and a legend."""
    axis.grid(alpha=0.3)
    axis.legend(fontsize=fontsize, **options)


def save(figure: Figure, path: Path, dpi: int = 150) -> None:
    """Write a figure to a file, and close it. Texts are shown as they are, without formulas: names
    may come from a stranger's folder."""
    for axis in (one for axes in figure.axes for one in (axes.xaxis, axes.yaxis)):
        if isinstance(axis.get_major_formatter(), LogFormatterMathtext):
            axis.set_major_formatter(PlainLog(labelOnlyBase=True))
            axis.set_minor_formatter(PlainLog(labelOnlyBase=False, minor_thresholds=(1.5, 0.4)))
    for text in figure.findobj(Text):
        text.set(text=printable(text.get_text()), parse_math=False)
    figure.savefig(path, dpi=dpi)
    plt.close(figure)


def save_bounds(figure: Figure, path: Path, *, bound: str, measured: str, about: str) -> None:
    """Save a figure of bounds (dashed) and measurements (solid), and close it.

    bound, measured: names for the legend.
    about: what was run.
    """
    handles = [
        Line2D([], [], color="k", ls=ls, marker=marker) for ls, marker in (("--", ""), ("-", "o"))
    ]
    figure.legend(handles, [bound, measured], loc="outside upper center", ncol=2, fontsize=9)
    figure.supxlabel(about, fontsize=7.5)
    save(figure, path)
