"""What has become of the runs of a sweep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from rich.console import Console

from fedpriv.errors import FedprivError
from fedpriv.reports.finished_runs import Run, place, read_run
from fedpriv.reports.report import Report
from fedpriv.runs.folder import STATUS, read_status
from fedpriv.runs.journal import in_progress

MOST_SHOWN = 40
"""More runs than this are counted, and only those that are not done are named."""


@dataclass(frozen=True)
class State:
    """One run of a sweep: its words, and done, running, killed (no process is at it), interrupted
    or failed."""

    folder: Path
    words: str
    state: str
    reason: str


def states(folder: Path) -> list[State]:
    """Every run at or below a sweep's folder, in the order of its jobs."""
    found = []
    for path in sorted({file.parent for file in folder.rglob(STATUS)}, key=place):
        status = read_status(path)
        state = str(status.get("state", "damaged"))
        if state == "running" and not in_progress(path):
            state = "killed"
        reason = " ".join(str(status.get("reason") or "").split())
        found.append(State(path, _words(path), state, reason))
    return found


def _words(path: Path) -> str:
    try:
        return " ".join(
            map(str, yaml.safe_load((path / ".hydra" / "overrides.yaml").read_text()) or [])
        )
    except (OSError, ValueError, TypeError, yaml.YAMLError):
        return ""


def print_sweep(folder: Path, console: Console) -> list[State]:
    """Print the states of a sweep's runs and, for each data set, the table of those that are done;
    returns the states."""
    from rich.table import Table

    found = states(folder)
    counts = Counter(state.state for state in found)
    shown = (
        found if len(found) <= MOST_SHOWN else [state for state in found if state.state != "done"]
    )
    table = Table("run", "settings", "state", "reason")
    for state in shown:
        table.add_row(state.folder.name, state.words, state.state, state.reason)
    if shown:
        console.print(table)
    console.print(
        ", ".join(f"{number} {state}" for state, number in counts.items()), soft_wrap=True
    )
    runs = [
        run
        for state in found
        if state.state == "done" and (run := read_run(state.folder)) is not None
    ]
    for members in _by_data(runs):
        try:
            Report.of(members).print(console)
        except FedprivError as error:  # a table more or less does not end a sweep
            console.print(f"no table: {error}", markup=False, soft_wrap=True)
    return found


def _by_data(runs: Sequence[Run]) -> list[list[Run]]:
    found: dict[str, list[Run]] = {}
    for run in runs:
        data = {key: value for key, value in run.config.get("data", {}).items() if key != "root"}
        found.setdefault(repr(sorted(data.items())), []).append(run)
    return list(found.values())
