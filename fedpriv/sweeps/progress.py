"""Progress of a sweep on stderr: one line a run, with k of N and the time left."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from fedpriv.runs.folder import RunFolder
from fedpriv.runs.progress import OnRound, time_left
from fedpriv.runs.status import Status
from fedpriv.runs.tables import METRICS
from fedpriv.util.consoles import HarmlessConsole

LEAST_KNOWN = 0.05
"""Rounds that predict the time of those left, as a share of these: the start of a run is slow."""


class SweepProgress:
    """A line for each run that ends; below it, a bar of all rounds on a terminal. A context.

    rounds: planned rounds of each run.
    words: overrides of each run; those that all share are not shown.
    quiet: show nothing.
    """

    def __init__(
        self,
        rounds: Sequence[int],
        words: Sequence[Sequence[str]] = (),
        *,
        quiet: bool = False,
    ) -> None:
        self._rounds = rounds
        self._shared = set.intersection(*map(set, words)) if len(words) > 1 else set()
        self._quiet = quiet
        self._completed: dict[int, int] = {}
        self._resumed: dict[int, int] = {}
        self._ended = 0
        self._started = time.monotonic()
        self._console = HarmlessConsole(stderr=True)
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TimeRemainingColumn(),
            console=self._console,
            disable=quiet or not self._console.is_terminal,
        )
        self._planned = sum(rounds)
        self._task = self._bar.add_task(self._state(), total=self._planned)

    def __enter__(self) -> SweepProgress:
        self._bar.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._bar.stop()

    def on_round(self, run: int) -> OnRound:
        """What run number `run` (from 0) tells of its rounds."""
        return partial(self._count, run)

    def ended(self, run: int, folder: Path, words: Sequence[str], failure: str | None) -> None:
        """Show the end of run number `run`.

        words: its overrides.
        failure: why it failed; None: it is done.
        """
        self._ended += 1
        self._count(run, self._rounds[run])
        number = f"{self._ended}/{len(self._rounds)}"
        own = [word for word in words if word not in self._shared]
        if not self._quiet:
            text = self._with_time_left(run_line(number, folder, own, failure))
            self._console.print(text, soft_wrap=True)

    def _count(self, run: int, number: int) -> None:
        self._resumed.setdefault(run, number)
        self._completed[run] = number
        self._bar.update(
            self._task, completed=sum(self._completed.values()), description=self._state()
        )

    def _state(self) -> str:
        done = sum(self._completed.values())
        return f"{self._ended}/{len(self._rounds)} runs, {done}/{self._planned} rounds"

    def _with_time_left(self, text: str) -> str:
        done = sum(self._completed.values())
        here = done - sum(self._resumed.values())
        left = self._planned - done
        if here < LEAST_KNOWN * left or left <= 0:
            return text
        return f"{text}, {time_left((time.monotonic() - self._started) / here * left)}"


def run_line(number: str, folder: Path, words: Sequence[str], failure: str | None) -> str:
    """The line of a run that has ended: its main metric and its epsilon, or why it failed.

    number: its place in the sweep.
    words: its overrides.
    """
    result = f"failed: {failure}"
    if failure is None:
        status, rows = Status.read(folder), RunFolder(folder).tables.rows(METRICS)
        value = rows[-1].get(status.metric) if rows else None
        found = [f"{status.metric} {float(value):.4f}"] if value else []
        found += [] if status.epsilon is None else [f"epsilon {status.epsilon:.4g}"]
        result = ", ".join(found) or "done"
    return f"{number}  {' '.join(words)}: {result}"
