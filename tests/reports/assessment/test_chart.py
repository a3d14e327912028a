"""The chart of a report, on a narrow page too."""

import re
from pathlib import Path

import pytest

from fedpriv.reports.assessment import chart as module
from fedpriv.reports.assessment.chart import Line, chart

CSS = Path(module.__file__).with_name("page.css").read_text()
LETTER = max(int(size) for size in re.findall(r"svg text { font-size: (\d+)px", CSS))
DIGIT = 0.64
"""Width of a digit of DejaVu Sans, over the height of a letter."""
BELOW = 0.25
"""How far letters reach below their line, over the height of a letter."""


@pytest.mark.parametrize(
    "values", [(0.8, 0.95), (1, 3), (-0.003, 0.001), (1e-5, 3e-5), (10_000, 12_500), (-1e5, 2e5)]
)
def test_the_name_of_the_upright_axis_is_beside_its_numbers(values):
    """At 400 pixels the name "accuracy" lay over 0.875."""
    points = list(enumerate(values, start=1))
    drawn = chart([Line("one", points)], x="epsilon", y="accuracy", title="costs")
    numbers = re.findall(r'<text y="[\d.]+" x="([\d.]+)" text-anchor="end"[^>]*>([^<]+)<', drawn)
    assert len(numbers) >= 3
    [line] = re.findall(r'<text transform="translate\(([\d.]+) [^>]*>accuracy<', drawn)
    left = min(float(end) - len(number) * DIGIT * LETTER for end, number in numbers)
    assert float(line) + BELOW * LETTER < left
    assert float(line) >= 0.8 * LETTER  # the name is not cut off
    assert LETTER == module.LETTER
