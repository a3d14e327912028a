"""Rounds that ended without a sum, and rounds whose sum taught nothing."""

from __future__ import annotations

from fedpriv.errors import AggregationAbortedError
from fedpriv.runs.folder import RunFolder
from fedpriv.runs.tables import TIMINGS


def account_for_empty_rounds(folder: RunFolder) -> str | None:
    """List the rounds that learned nothing in status.json. Returns a warning; None if there are
    none."""
    rounds = folder.rows(TIMINGS)
    empty = {row["round"]: row["empty"] for row in rounds if row.get("empty")}
    folder.status(empty_rounds=empty)
    if not empty:
        return None
    number, reason = next(iter(empty.items()))
    return f"{len(empty)} of {len(rounds)} rounds learned nothing; round {number}: {reason}"


def account_for_aborts(folder: RunFolder) -> None:
    """List the rounds without a sum in status.json. Raises AggregationAbortedError when no round
    had one."""
    rounds = folder.rows(TIMINGS)
    aborted = {row["round"]: row["aborted"] for row in rounds if row["aborted"]}
    folder.status(aborted_rounds=aborted)
    if rounds and len(aborted) == len(rounds):
        last = rounds[-1]
        raise AggregationAbortedError(
            f"no round had a sum; round {last['round']}: {last['aborted']}"
        )
