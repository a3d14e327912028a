"""Rounds that learned nothing, although they ended with a sum."""

from __future__ import annotations

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
