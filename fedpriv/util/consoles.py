"""The consoles of printed tables and progress."""

from __future__ import annotations

import os
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from fedpriv.util.printing import printable

PIPED_WIDTH = 240
"""Columns of output that no terminal shows. At 80, columns of a file or of a log would be cut."""


class HarmlessConsole(Console):
    """A console that shows texts as they are: no markup, no emoji, no sign that a reader cannot
    see. What rich itself sends to control the terminal stays."""

    def __init__(self, *, stderr: bool = False, soft_wrap: bool = False) -> None:
        super().__init__(
            stderr=stderr, soft_wrap=soft_wrap, highlight=False, markup=False, emoji=False
        )

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """The segments of a text or a table."""
        for segment in super().render(renderable, options):
            shown = segment.text if segment.control else printable(segment.text)
            yield Segment(shown, segment.style, segment.control)


def wide_console() -> Console:
    """A console for stdout that is as wide as the terminal; for a file or a pipe as wide as tables
    need, unless COLUMNS is set."""
    console = HarmlessConsole()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PIPED_WIDTH
    return console
