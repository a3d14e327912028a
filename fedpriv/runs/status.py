"""status.json: how a run stands, and what its numbers are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from fedpriv.runs.journal import in_progress
from fedpriv.runs.labels import UNKNOWN
from fedpriv.runtime.identity import RunIdentity
from fedpriv.util.untrusted_files import as_type, read_json, readable

STATUS = "status.json"
STATES = ("running", "done", "interrupted", "failed")
EARLY: Mapping[str, Any] = {
    **dict.fromkeys(("label", "metric", "observer", "randomness"), ""),
    **dict.fromkeys(("rounds", "delta", "records"), 0),
    "dp_valid": None,
    "not_covered": [],
    "labels": {},
    "identity": dict.fromkeys((one.name for one in fields(RunIdentity)), ""),
}
"""What a run that failed before its first round has not written."""


@dataclass(frozen=True)
class Status:
    """The entries of status.json.

    state: running, done, interrupted or failed.
    rounds: planned ones.
    label: name of its method.
    metric: name of its main metric.
    observer: whose epsilon stands for the run.
    delta: of its epsilons.
    randomness: "system" (private) or "simulation" (seeded); "" if it failed before its first round.
    dp_valid: whether the run says that it protects somebody; None: it does not say.
    not_covered: what no epsilon of the run covers, a line each.
    labels: by file, and by column or key, what each value is made of (`fedpriv.runs.labels`).
    records: number of training records, a diagnostic.
    identity: keyed digests of what it computes with.
    reason: why it ended early.
    updated: when it was written last.
    repeated_rounds: number of a round: attempts that its tables do not record.
    device, devices: of its last process, and of all its processes.
    simulated: what its parties left out that parties of their own would do; empty: nothing.
    parameters: of its network.
    users: where users come from, and the public numbers of users and silos.
    versions: package: version.
    commit: of fedpriv's source.
    noise: name of a query: its noise multiplier.
    warnings: what a resumed run has changed, a line each.
    tracker: the name under which its tracker knows it.
    epsilon: certified after the last round; None: not finite, or not done.
    empty_rounds: number of each round that learned nothing: why.
    left_out: silos that it has gone on without.
    lost_parties: number of a round: name of each party that was lost: why.
    """

    state: str
    rounds: int
    label: str
    metric: str
    observer: str
    delta: float
    randomness: str
    dp_valid: bool | None
    not_covered: tuple[str, ...]
    labels: Mapping[str, str | Mapping[str, str]]
    records: int
    identity: RunIdentity
    reason: str | None = None
    updated: str = ""
    repeated_rounds: Mapping[str, int] = field(default_factory=dict)
    device: str = ""
    devices: tuple[str, ...] = ()
    simulated: str = ""
    parameters: int | None = None
    users: Mapping[str, str | int] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    commit: str = ""
    noise: Mapping[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    tracker: str = ""
    epsilon: float | None = None
    empty_rounds: Mapping[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    lost_parties: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @staticmethod
    def read(folder: Path) -> Status:
        """The status of the run in a folder. Raises FedprivError, in one line, for a file that is
        missing or malformed."""
        path = folder / STATUS
        with readable(path):
            values = read_json(path)
            early = values.get("state") == "failed" and "identity" not in values
            status: Status = as_type(Status, {**EARLY, **values} if early else values)
            if status.state not in STATES:
                raise ValueError(f"state={status.state:.60}: expected {', '.join(STATES)}")
        return status

    def state_in(self, folder: Path) -> str:
        """The state of the run in a folder; "killed" if it says "running" and no process works
        there."""
        killed = self.state == "running" and not in_progress(folder)
        return "killed" if killed else self.state

    @staticmethod
    def find(folder: Path) -> Status | None:
        """Like `read`; None without a file, and for one that a crash has left without its values: a
        resumed run writes it anew."""
        try:
            read_json(folder / STATUS)
        except (FileNotFoundError, ValueError):
            return None
        return Status.read(folder)

    def metric_label(self, metric: str) -> str:
        """What a column of metrics.csv is made of: `released`, or a diagnostic of something."""
        return self.label_of("metrics.csv", metric)

    def label_of(self, table: str, column: str) -> str:
        """The same of a column of another table."""
        labels = self.labels.get(table)
        return labels.get(column, UNKNOWN) if isinstance(labels, Mapping) else UNKNOWN
