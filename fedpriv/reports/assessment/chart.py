"""A line chart as inline SVG: a metric against epsilon.

Colours are those of Okabe and Ito (Color Universal Design), which colour-blind readers can tell
apart; each line has a marker of its own too, so that it can be told apart in grey.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from fedpriv.reports.templates import environment

WIDTH, HEIGHT = 440.0, 270.0
RIGHT, TOP, BOTTOM = 12.0, 12.0, 44.0
LETTER = 15.0
"""Height of a letter on a narrow page (page.css), where letters are the largest."""
DIGIT = 0.64
"""Width of a digit in a wide font, over a letter's height."""
GAP = 6.0
"""Between the numbers of the upright axis and what is beside them."""
MOST_LINES = 7
"""Lines with a colour and an entry in the legend."""
TICKS = 5
MARKERS = (
    "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0",
    "M-3 -3h6v6h-6z",
    "M0 -4.2L4 3.2H-4z",
    "M0 -4.4L4.4 0L0 4.4L-4.4 0z",
    "M0 4.2L4 -3.2H-4z",
    "M-1.4 -4h2.8v2.6h2.6v2.8h-2.6v2.6h-2.8v-2.6h-2.6v-2.8h2.6z",
    "M-3.6 -1.2L0 -4L3.6 -1.2L2.2 3.4H-2.2z",
)


@dataclass(frozen=True)
class Line:
    """One line.

    name: for the legend.
    points: (epsilon, metric), at least one, finite.
    """

    name: str
    points: Sequence[tuple[float, float]]


WIDE = 30
"""Ratio of the largest to the smallest epsilon from which on the axis is logarithmic."""


@dataclass(frozen=True)
class Axis:
    """An axis.

    ticks: values with a label, ascending; the first and last one are its ends.
    log: whether equal distances are equal ratios.
    """

    ticks: Sequence[float]
    log: bool = False

    @staticmethod
    def of_epsilons(values: Sequence[float]) -> Axis:
        """From zero on; logarithmic with ticks at 1, 2 and 5 for values of very different size."""
        low, high = min(values), max(values)
        if low <= 0 or high < WIDE * low:
            return Axis.of(values, from_zero=True)
        first, last = math.floor(math.log10(low)), math.floor(math.log10(high))
        ticks = [k * 10.0**power for power in range(first, last + 2) for k in (1, 2, 5)]
        begin = max(place for place, tick in enumerate(ticks) if tick <= low * 1.000001)
        end = min(place for place, tick in enumerate(ticks) if tick >= high * 0.999999)
        return Axis(ticks[begin : end + 1], log=True)

    @staticmethod
    def of(values: Sequence[float], *, from_zero: bool = False) -> Axis:
        """An axis with round ticks around the values."""
        low, high = (0.0 if from_zero else min(values)), max(values)
        if not high - low > 1e-9 * max(abs(low), abs(high), 1e-300):
            low, high = low - 0.5 * (not from_zero), high + 0.5
        rough = (high - low) / TICKS
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * k for k in (1, 2, 2.5, 5, 10) if power * k >= rough * 0.999)
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        return Axis([k * step for k in range(first, last + 1)])

    def share(self, value: float) -> float:
        """Place of a value: 0 at the low end, 1 at the high one."""
        low, high = self.ticks[0], self.ticks[-1]
        if self.log:
            return math.log(value / low) / math.log(high / low)
        return (value - low) / (high - low)


def chart(lines: Sequence[Line], *, x: str, y: str, title: str) -> Markup:
    """The chart with its legend below; empty without lines. Of more than `MOST_LINES` lines, the
    first ones are drawn, and the legend counts the others."""
    shown = lines[:MOST_LINES]
    if not shown:
        return Markup("")
    across = Axis.of_epsilons([point[0] for line in shown for point in line.points])
    up = Axis.of([point[1] for line in shown for point in line.points])
    digits = max(len(_number(tick)) for tick in up.ticks)
    left = 1.4 * LETTER + digits * DIGIT * LETTER + 2 * GAP
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM

    def at(epsilon: float) -> str:
        return f"{left + across.share(epsilon) * (right - left):.1f}"

    def height(value: float) -> str:
        return f"{bottom - up.share(value) * (bottom - TOP):.1f}"

    drawn = [
        {
            "name": line.name,
            "look": f"line{number}",
            "marker": MARKERS[number],
            "places": places,
            "marked": places[:: -max(1, len(places) // 8)],
        }
        for number, line in enumerate(shown)
        for places in [[(at(epsilon), height(value)) for epsilon, value in line.points]]
    ]
    template = environment(Path(__file__).parent).get_template("chart.html.jinja")
    return Markup(
        template.render(
            x=x,
            y=y,
            title=title,
            across=[(at(tick), _number(tick)) for tick in across.ticks],
            up=[(height(tick), _number(tick)) for tick in up.ticks],
            lines=drawn,
            more=len(lines) - len(shown),
            left=left,
            right=right,
            top=TOP,
            bottom=bottom,
            gap=GAP,
            letter=LETTER,
            width=WIDTH,
            height=HEIGHT,
        )
    )


def _number(tick: float) -> str:
    return f"{round(tick, 10):g}"
