"""The state of each run of a sweep, and the table of the finished ones."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from fedpriv.errors import FedprivError
from fedpriv.reports.assessment.folder_files import read_overrides
from fedpriv.reports.finished_runs import read_run, run_folders
from fedpriv.reports.groups import DATA, group_by_settings
from fedpriv.reports.report import Report
from fedpriv.reports.selection_cost import release_choices
from fedpriv.runs.status import Status

MAX_SHOWN = 40
"""A longer list shows only runs that are not done."""


@dataclass(frozen=True)
class RunState:
    """One run of a sweep.

    folder: of the run.
    words: its overrides on the command line.
    state: done, running, killed (no process works on it), interrupted, failed or damaged.
    reason: why it failed.
    """

    folder: Path
    words: str
    state: str
    reason: str


def run_states(folder: Path) -> list[RunState]:
    """Every run at or below a sweep's folder, in the order of its jobs."""
    found = []
    for path in run_folders(folder):
        try:
            status = Status.read(path)
            state, reason = status.state_in(path), status.reason or ""
        except FedprivError as error:
            state, reason = "damaged", str(error)
        words = " ".join(read_overrides(path) or [])
        found.append(RunState(path, words, state, reason))
    return found


def print_sweep(folder: Path, console: Console) -> list[RunState]:
    """Print and return the states of a sweep's runs; for each data set, print the table of the
    finished ones; then write what a private choice may publish."""
    found = run_states(folder)
    counts = Counter(state.state for state in found)
    short = len(found) <= MAX_SHOWN
    shown = [state for state in found if short or state.state != "done"]
    table = Table("run", "settings", "state", "reason")
    for state in shown:
        table.add_row(str(state.folder.relative_to(folder)), state.words, state.state, state.reason)
    if shown:
        console.print(table)
    totals = ", ".join(f"{number} {state}" for state, number in counts.items())
    console.print(totals, soft_wrap=True)
    read = [read_run(state.folder) for state in found if state.state == "done"]
    done = [run for run in read if run is not None]
    for members in group_by_settings(done, DATA).values():
        try:
            report = Report.of(members)
        except FedprivError as error:  # a missing table must not end a sweep
            console.print(f"no table: {error}", soft_wrap=True)
            continue
        report.print(console)
        for path in release_choices(report.selections):
            console.print(f"to publish, and nothing else of the sweep: {path}", soft_wrap=True)
    return found
