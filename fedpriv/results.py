"""A run's folder: the only thing that passes from training to plotting.

config.yaml     the resolved configuration
metrics.csv     round, loss, metrics, norms: non-private diagnostics
timings.csv     round, seconds per phase, why the round released nothing (empty if it did)
traffic.csv     round (0 for the first set-up), query or setup, step, party, messages and bytes it sent in this step
epsilon.csv     round, observer, unit, adjacency, method, certified, claimed, assumptions, status
status.json     running, done or failed with the reason; assumptions and labels of the epsilons
model.safetensors, checkpoint.safetensors

Tables grow by whole lines. A checkpoint is written after its round's lines, so a resumed run cuts the tables back to
the checkpoint and repeats what came later; files that are replaced are written beside their place and renamed.
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

from fedpriv.errors import FedprivError

TABLES = ("metrics.csv", "timings.csv", "epsilon.csv", "traffic.csv")
CHECKPOINT = "checkpoint.safetensors"


def replace_file(path: Path, content: bytes) -> None:
    """Write `content` to `path` so that a reader, or a crash, sees the old file or the new one and nothing between."""
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


class RunFolder:
    """Writes and reads one run's files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._columns: dict[str, list[str]] = {}

    def create(self, config_yaml: str) -> None:
        """Start a new run here. Raises FedprivError when the folder cannot be written or already holds a run."""
        if (self.path / "status.json").exists():
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
        known = self._columns.setdefault(table, columns if new else _header(path))
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

    def save_checkpoint(self, round: int, state: dict[str, np.ndarray]) -> None:
        """Keep the state after `round`, bit for bit."""
        from safetensors.numpy import save

        replace_file(self.path / CHECKPOINT, save(state, metadata={"round": str(round)}))

    def load_checkpoint(self) -> tuple[int, dict[str, np.ndarray]] | None:
        """The last (round, state), or None when the run ended before its first checkpoint."""
        from safetensors import SafetensorError, safe_open

        path = self.path / CHECKPOINT
        if not path.exists():
            return None
        try:
            with safe_open(path, framework="numpy") as file:
                return int(file.metadata()["round"]), {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        except (SafetensorError, KeyError, TypeError, ValueError) as error:
            raise FedprivError(f"resume={self.path}: {CHECKPOINT} is damaged ({error})") from error

    def rewind(self, round: int) -> None:
        """Cut every table back to its whole lines of rounds up to `round`; -1 empties them."""
        for table in TABLES:
            path = self.path / table
            if not path.exists():
                continue
            if round < 0:
                path.unlink()
                continue
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
