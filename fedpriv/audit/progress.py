"""What an audit does just now, on stderr, with the time left."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from fedpriv.runs.progress import Patience, time_left

SECONDS = 10.0
"""A round that ends so long after the last line has a line of its own."""


class AuditProgress:
    """A line for each stage, for rounds of long stages, and after a long silence. A context.

    quiet: show nothing.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._stage = "preparing"
        self._start = self._shown = time.monotonic()
        self._patience = Patience(
            lambda seconds: self._say(
                f"{self._stage}: {time.monotonic() - self._start:.0f} s so far"
            )
        )

    def __enter__(self) -> AuditProgress:
        if not self._quiet:
            self._patience.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._quiet:
            self._patience.__exit__()

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
        self._patience.restart()
        print(f"audit: {text}", file=sys.stderr, flush=True)
