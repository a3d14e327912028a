"""A run's folder: the only thing that passes from training to plotting.

config.yaml     the resolved configuration
metrics.csv     round, loss, metrics, norms: non-private diagnostics
timings.csv     round, seconds per phase, why the round released nothing (empty if it did)
traffic.csv     round (0 for the first set-up), query or setup, step, party, messages and bytes it sent in this step
epsilon.csv     round, observer, unit, adjacency, method, certified, claimed, assumptions, status
status.json     running, done or failed with the reason; assumptions and labels of the epsilons
begun.csv       a line each time that a round begins, see `fedpriv.begun`
model.safetensors, checkpoint.safetensors

Tables grow by whole lines. A checkpoint is written after its round's lines, so a resumed run cuts the tables back to
the checkpoint and repeats what came later; what was begun is never cut. Files that are replaced are written beside
their place and renamed. Checkpoints are written behind the rounds: where the disk is slower than they are, a newer one
takes the place of one that still waits.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from fedpriv.begun import NAME as BEGUN
from fedpriv.begun import Begun
from fedpriv.checkpoint import Checkpoint, Origin
from fedpriv.durable import keep
from fedpriv.errors import FedprivError

TABLES = ("metrics.csv", "timings.csv", "epsilon.csv", "traffic.csv")
CHECKPOINT = "checkpoint.safetensors"


def replace_file(path: Path, content: bytes) -> None:
    """Write `content` to `path` so that a reader, or a crash, sees the old file or the new one and nothing between."""
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "wb") as file:
        file.write(content)
        keep(file)
    os.replace(temporary, path)


class RunFolder:
    """Writes and reads one run's files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._columns: dict[str, list[str]] = {}

    def create(self, config_yaml: str) -> None:
        """Start a new run here. Raises FedprivError when the folder cannot be written or already holds a run."""
        if any((self.path / name).exists() for name in ("status.json", BEGUN)):
            raise FedprivError(f"hydra.run.dir={self.path}: holds a run already; resume={self.path} continues it")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            replace_file(self.path / "config.yaml", config_yaml.encode())
        except OSError as error:
            raise FedprivError(f"hydra.run.dir={self.path}: cannot write there ({error.strerror})") from error

    def append(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows to a table; the first row ever written names the columns, later ones must have the same."""
        if not rows:
            return
        path = self.path / table
        columns = list(rows[0])
        new = not path.exists()
        if table not in self._columns:
            self._columns[table] = columns if new else _header(path)
        known = self._columns[table]
        if any(list(row) != known for row in rows):
            raise ValueError(f"{table}: columns {columns} differ from {known}")
        with open(path, "a", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            if new:
                writer.writerow(columns)
            writer.writerows([_cell(value) for value in row.values()] for row in rows)

    def rows(self, table: str) -> list[dict[str, str]]:
        """A table's rows as text; none when nothing has been written to it."""
        path = self.path / table
        if not path.exists():
            return []
        with open(path, newline="") as file:
            return list(csv.DictReader(file))

    def status(self, **facts: Any) -> None:
        """Merge `facts` into status.json."""
        path = self.path / "status.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        known |= {"updated": datetime.now(UTC).isoformat(timespec="seconds"), **facts}
        replace_file(path, (json.dumps(known, indent=2) + "\n").encode())

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Keep it in place of the last one."""
        replace_file(self.path / CHECKPOINT, checkpoint.packed())

    def load_checkpoint(self) -> Checkpoint | None:
        """The last one, or None when the run ended before its first. Raises FedprivError when it is damaged."""
        path = self.path / CHECKPOINT
        return Checkpoint.read(path) if path.exists() else None

    def going_on(self, origin: Origin) -> tuple[Checkpoint | None, Begun]:
        """What a run of this origin goes on from, and the rounds that were begun here, locked for it.

        Raises FedprivError, naming the file, when the checkpoint is another configuration's, or when fewer rounds are
        known to have begun than were recorded: what they showed could not be charged.
        """
        saved = self.load_checkpoint()
        path = self.path / BEGUN
        if saved:
            saved.check(self.path / CHECKPOINT, origin)
            if not path.exists():
                raise FedprivError(f"{path} is missing: what the run has shown so far is not known")
        begun = Begun(self.path)
        try:
            recorded = {int(row["round"]) for row in self.rows("timings.csv")}
            recorded |= set(range(1, saved.round + 1)) if saved else set()
            if recorded - set(begun.attempts) or begun.total < (saved.begun if saved else 0):
                raise FedprivError(f"{path} was cut: it lists fewer rounds than the run has recorded")
            if begun.total and not saved:
                raise FedprivError(f"{self.path / CHECKPOINT} is missing, and rounds were begun ({path})")
        except BaseException:
            begun.close()
            raise
        return saved, begun

    def rewind(self, round: int) -> None:
        """Cut every table back to its whole lines of rounds up to `round`; -1 empties them."""
        for table in TABLES:
            self.cut(table, round)

    def cut(self, table: str, round: int) -> None:
        """Cut one table back as `rewind` does."""
        path = self.path / table
        if not path.exists():
            return
        if round < 0:
            path.unlink()
            return
        header, *lines = path.read_text().splitlines(keepends=True)
        whole = [line for line in lines if line.endswith("\n") and int(line.split(",", 1)[0]) <= round]
        replace_file(path, "".join([header, *whole]).encode())

    def save_model(self, parameters: dict[str, np.ndarray]) -> None:
        """The model under the names of its parameters, readable by any safetensors library."""
        from safetensors.numpy import save

        replace_file(self.path / "model.safetensors", save(parameters))


def _header(path: Path) -> list[str]:
    with open(path, newline="") as file:
        return next(csv.reader(file))


def _cell(value: Any) -> Any:
    """Floats as their shortest exact text; nothing for what is not there."""
    if value is None:
        return ""
    return repr(float(value)) if isinstance(value, float | np.floating) else value
