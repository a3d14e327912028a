"""The console of printed tables."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

PIPED_WIDTH = 240
"""Columns of output that no terminal shows. At 80, columns of a file or of a log would be cut."""


def wide_console() -> Console:
    """A console for stdout that is as wide as the terminal; for a file or a pipe as wide as tables
    need, unless COLUMNS is set."""
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PIPED_WIDTH
    return console
