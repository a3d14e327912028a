"""matplotlib for pictures that go to files: it never opens a window."""

from __future__ import annotations

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

__all__ = ["Axes", "Figure", "Line2D", "plt"]
