"""What an audit does just now, on stderr, with the time left."""

from __future__ import annotations

import sys
import time

from fedpriv.runs.progress import time_left
from fedpriv.util.printing import say

SECONDS = 10.0
"""A round that ends so long after the last line has a line of its own."""


class AuditProgress:
    """A line for each stage, and for rounds of long stages.

    quiet: show nothing.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._stage = "preparing"
        self._start = self._shown = time.monotonic()

    def stage(self, text: str, seconds: float | None = None) -> None:
        """Begin a stage.

        seconds: that it takes at most, apart from its last step; None: not known.
        """
        self._stage = text
        self._start = time.monotonic()
        self._say(text if seconds is None else f"{text}  {time_left(seconds)}")

    def round(self, number: int, rounds: int) -> None:
        """Round `number` of a stage's `rounds` has ended."""
        now = time.monotonic()
        if number < rounds and now - self._shown >= SECONDS:
            left = (now - self._start) / number * (rounds - number)
            self._say(f"{self._stage}: round {number}/{rounds}  {time_left(left)}")

    def _say(self, text: str) -> None:
        if self._quiet:
            return
        self._shown = time.monotonic()
        say(f"audit: {text}", file=sys.stderr, flush=True)
