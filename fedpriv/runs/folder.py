"""A run's folder: the only thing that passes from training to plotting.

config.yaml     the resolved configuration
metrics.csv     round, loss, metrics, norms: non-private diagnostics
timings.csv     round, seconds per phase, why the round released nothing (empty if it did)
traffic.csv     round (0 for the first set-up), query or setup, step, party, messages and bytes it
sent in this step epsilon.csv     round, observer, unit, adjacency, method, certified, claimed,
assumptions, status status.json     running, done, interrupted or failed with the reason;
assumptions and labels of the epsilons rounds_begun.csv       a line each time that a round begins,
see `fedpriv.runs.journal` model.safetensors, checkpoint.safetensors

Tables grow by whole lines (`fedpriv.runs.tables`). A checkpoint is written once its round's lines
are on disk, so a resumed run cuts the tables back to the checkpoint and repeats what came later;
what was begun is never cut. Files that are replaced are written beside their place and renamed.
Checkpoints are written behind the rounds: where the disk is slower than they are, a newer one takes
the place of one that still waits, and so it does in a seeded run within a second.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from fedpriv.errors import FedprivError
from fedpriv.runs.checkpoint import Checkpoint, Origin
from fedpriv.runs.journal import NAME as BEGUN
from fedpriv.runs.journal import Journal
from fedpriv.runs.tables import EPSILON, MARKED, METRICS, TABLES, TIMINGS, Tables
from fedpriv.util.durable_files import replace_file

CHECKPOINT = "checkpoint.safetensors"
STATUS = "status.json"
CONFIG = "config.yaml"


class RunFolder:
    """Writes and reads one run's files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tables = Tables(path)

    def create(self, config_yaml: str) -> None:
        """Start a new run here. Raises FedprivError when the folder cannot be written or already
        holds a run."""
        self.begin(config_yaml).close()

    def begin(self, config_yaml: str) -> Journal:
        """The same, locked for the run; nothing is written where another process runs."""
        self.require_free()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            begun = Journal(self.path)
            try:
                if not begun.new:
                    raise self._taken
                replace_file(self.path / CONFIG, config_yaml.encode())
            except BaseException:
                begun.close()
                raise
        except OSError as error:
            raise FedprivError(
                f"hydra.run.dir={self.path}: cannot write there ({error.strerror})"
            ) from error
        return begun

    def require_free(self) -> None:
        """Raises FedprivError when the folder holds a run."""
        if (self.path / STATUS).exists():
            raise self._taken

    @property
    def _taken(self) -> FedprivError:
        return FedprivError(
            f"hydra.run.dir={self.path}: holds a run already; resume={self.path} continues it"
        )

    def append(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows to a table; the first row ever written names the columns, later ones must have
        the same."""
        self.tables.append(table, rows)

    def rows(self, table: str) -> list[dict[str, str]]:
        """A table's rows as text; none when nothing has been written to it."""
        return self.tables.rows(table)

    def status(self, **facts: Any) -> None:
        """Merge `facts` into status.json; one that was cut begins anew."""
        path = self.path / STATUS
        known = read_status(self.path) | {
            "updated": datetime.now(UTC).isoformat(timespec="seconds"),
            **facts,
        }
        content = (json.dumps(known, indent=2) + "\n").encode()
        try:
            replace_file(path, content)
        except OSError:
            if not path.exists():
                raise
            with open(
                path, "r+b"
            ) as file:  # on a full disk there may still be room in the old file's last block
                file.write(content)
                file.truncate()

    def ended(self, state: str, reason: str, traceback: str | None = None) -> None:
        """Say in status.json how a run ended early; what ended it may also keep this from being
        written."""
        try:
            self.status(state=state, reason=reason, traceback=traceback)
        except OSError:
            return

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Keep it in place of the last one, after the tables that it stands for."""
        self.tables.fsync()
        replace_file(self.path / CHECKPOINT, checkpoint.packed())

    def load_checkpoint(self) -> Checkpoint | None:
        """The last one, or None when the run ended before its first. Raises FedprivError when it is
        damaged."""
        path = self.path / CHECKPOINT
        return Checkpoint.read(path) if path.exists() else None

    def open_for_resume(
        self, origin: Origin, *, synced: bool = True
    ) -> tuple[Checkpoint | None, Journal]:
        """What a run of this origin goes on from, and the rounds that were begun here, locked for
        it. kept: whether it keeps the line of every round (`Journal.append`).

        Raises FedprivError, naming the file, when the checkpoint is another configuration's, when
        fewer rounds are known to have begun than were recorded (what they showed could not be
        charged), or when a table is damaged.
        """
        path = self.path / BEGUN
        known = path.exists()
        if not known and (self.path / CHECKPOINT).exists():
            raise FedprivError(f"{path} is missing: what the run has shown so far is not known")
        begun = Journal(self.path)
        try:
            saved = self.load_checkpoint()
            if saved:
                saved.check(self.path / CHECKPOINT, origin)
            if begun.total and not saved:
                raise FedprivError(
                    f"{self.path / CHECKPOINT} is missing, and rounds were begun ({path})"
                )
            timed = self.tables.rounds(TIMINGS) if (self.path / TIMINGS).exists() else []
            recorded = set(timed if synced else ()) | set(
                range(1, saved.round + 1) if saved else ()
            )
            if recorded - set(begun.attempts) or begun.total < (saved.begun if saved else 0):
                raise FedprivError(
                    f"{path} was cut: it lists fewer rounds than the run has recorded"
                )
            if saved and (lost := set(range(1, saved.round + 1)) - set(timed)):
                raise FedprivError(f"{self.path / TIMINGS} is damaged: it lacks round {min(lost)}")
        except BaseException:
            begun.close()
            raise
        return saved, begun

    def rewind(self, saved: Checkpoint | None) -> bool:
        """Cut every table back to a checkpoint; None empties them. False: epsilon.csv was damaged
        and is gone.

        Raises FedprivError, naming it, for another table that no longer holds what the run had
        recorded.
        """
        if saved is None:
            for table in TABLES:
                self.tables.remove(table)
            return True
        whole = True
        for table in TABLES:
            marked = table in MARKED and table in saved.tables
            if not marked:  # also in checkpoints of earlier versions
                self.tables.cut(table, saved.round)
            elif not self.tables.cut_to(table, saved.tables[table]):
                if table != EPSILON:
                    raise FedprivError(
                        f"{self.path / table} is damaged: it no longer holds what was recorded "
                        "up to round "
                        f"{saved.round}; {self.path / CONFIG} holds the settings for another run"
                    )
                self.tables.remove(table)
                whole = False
        return whole

    @property
    def evaluated(self) -> list[int]:
        """The rounds with a row in metrics.csv, but for the start."""
        return [number for number in self.tables.rounds(METRICS) if number]

    def save_model(self, parameters: dict[str, np.ndarray]) -> None:
        """The model under the names of its parameters, readable by any safetensors library."""
        from safetensors.numpy import save

        replace_file(self.path / "model.safetensors", save(parameters))


def read_status(folder: Path) -> dict[str, Any]:
    """status.json of a run's folder; nothing where there is none, or one that was cut."""
    try:
        known = json.loads((folder / STATUS).read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}
