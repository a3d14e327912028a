"""A run's folder: the only thing that passes from training to plotting.

config.yaml             resolved configuration
metrics.csv             round, loss, metrics, norms: non-private diagnostics
timings.csv             round, seconds per phase, why the round released nothing (else empty)
traffic.csv             round (0: first set-up), query or set-up, step, party, messages and bytes
                        that it sent in this step
epsilon.csv             round, observer, unit, adjacency, method, certified, claimed, numbers of
                        assumptions, status
assumptions.csv         round that needs it first, number, assumption
utility.csv             metrics of the last model, a trivial one and one without privacy, for
                        parts of the test records
statistics.csv          what an analysis releases, in place of metrics, utility and a model
status.json             running, done, interrupted or failed with the reason; labels of the run
roster.csv              verification keys of all parties (`fedpriv.crypto.roster`)
ledger.json             how the ledger that pays for the run stood (`fedpriv.runs.charging`)
rounds_begun.csv        one line for each attempt at a round (`fedpriv.runs.journal`)
model.safetensors       the released model
bundle/                 what using the model takes (`fedpriv.bundles`)
checkpoint.safetensors  the state after a round

Tables grow by whole lines (`fedpriv.runs.tables`). A checkpoint is written after its round's lines
are on disk. A resumed run cuts the tables back to the checkpoint and repeats the later rounds; the
journal is never cut. Files are replaced by writing a temporary file and renaming it. A background
thread writes the checkpoints: a newer one replaces one that still waits, on a slow disk or, in a
seeded run, within a second.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import OmegaConf
from safetensors.numpy import save

from fedpriv.crypto.roster import Roster
from fedpriv.errors import ConfigError, FedprivError
from fedpriv.runs.checkpoint import Checkpoint, Origin
from fedpriv.runs.journal import JOURNAL, Journal
from fedpriv.runs.status import STATUS
from fedpriv.runs.tables import EPSILON, MARKED, METRICS, TABLES, TIMINGS, Tables
from fedpriv.util.durable_files import replace_file
from fedpriv.util.untrusted_files import read_json

CHECKPOINT = "checkpoint.safetensors"
CONFIG = "config.yaml"
WORDS = Path(".hydra/overrides.yaml")
ROSTER = "roster.csv"


class RunFolder:
    """Reads and writes the files of one run.

    path: the folder.
    tables: of the run (`fedpriv.runs.tables`).
    whole: folder of the run that a person resumes to continue this one; None: its own.
    """

    def __init__(self, path: Path, whole: Path | None = None) -> None:
        self.path = path
        self.whole = whole or path
        self.tables = Tables(path)
        self._facts: dict[str, Any] = {}

    def begin(self, config_yaml: str, words: Sequence[str] = ()) -> Journal:
        """Start a new run here. Returns its journal, which locks the folder.

        words: its overrides on the command line.

        Raises FedprivError when the folder cannot be written or already holds a run. Nothing is
        written where another process runs.
        """
        self.require_free()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with ExitStack() as opened:
                journal = opened.enter_context(Journal(self.path))
                # A journal alone is what a full disk left.
                if journal.total or (self.path / CONFIG).exists():
                    raise self._taken
                if words:
                    self.write_words(words)
                replace_file(self.path / CONFIG, config_yaml.encode())
                opened.pop_all()
        except OSError as error:
            raise FedprivError(
                f"hydra.run.dir={self.path}: cannot be written ({error.strerror})"
            ) from error
        return journal

    def write_words(self, words: Sequence[str]) -> None:
        """Write the overrides of a run to the file that Hydra's launchers have for them."""
        (self.path / WORDS).parent.mkdir(parents=True, exist_ok=True)
        replace_file(self.path / WORDS, OmegaConf.to_yaml(list(words)).encode())

    def require_free(self) -> None:
        """Raise FedprivError when the folder holds a run."""
        if (self.path / STATUS).exists():
            raise self._taken

    @property
    def _taken(self) -> FedprivError:
        return FedprivError(
            f"hydra.run.dir={self.path}: already holds a run; resume={self.path} continues it"
        )

    def status(self, **facts: Any) -> None:
        """Merge `facts` into status.json; a file that was deleted since the last call is written
        again."""
        path = self.path / STATUS
        now = datetime.now(UTC).isoformat(timespec="seconds")
        if not self._facts:
            with suppress(FileNotFoundError, ValueError):
                self._facts = read_json(path)
        self._facts |= {"updated": now, **facts}
        content = (json.dumps(self._facts, indent=2) + "\n").encode()
        try:
            replace_file(path, content)
        except OSError:
            if not path.exists():
                raise
            # On a full disk, the last block of the existing file may still have room.
            with open(path, "r+b") as file:
                file.write(content)
                file.truncate()

    def ended(self, state: str, reason: str, traceback: str | None = None) -> None:
        """Record in status.json how a run ended early, if the disk still permits it."""
        with suppress(OSError):
            self.status(state=state, reason=reason, traceback=traceback)

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Replace the last checkpoint, after its tables are on disk."""
        self.tables.fsync()
        # Private: it holds what silos remember, and no observer of the run may see that.
        replace_file(self.path / CHECKPOINT, checkpoint.packed(), mode=0o600)

    def load_checkpoint(self) -> Checkpoint | None:
        """The last checkpoint; None when the run ended before its first. Raises FedprivError when
        it is damaged."""
        path = self.path / CHECKPOINT
        return Checkpoint.read(path) if path.exists() else None

    @property
    def roster(self) -> Roster | None:
        """The roster of the last process of this run; None without one. Raises FedprivError when it
        is damaged."""
        path = self.path / ROSTER
        return Roster.read(path) if path.exists() else None

    def require_journal(self) -> None:
        """Raise FedprivError when the journal of a run with a checkpoint is missing."""
        path = self.path / JOURNAL
        if (self.path / CHECKPOINT).exists() and not path.exists():
            raise FedprivError(f"{path} is missing, so what the run has shown so far is unknown")

    def open_for_resume(
        self, origin: Origin, *, synced: bool = True
    ) -> tuple[Checkpoint | None, Journal]:
        """The checkpoint to resume from, and the journal, which locks the folder.

        origin: configuration and versions of the resumed run.
        synced: whether each line of the journal was on disk before its round (`Journal.append`).

        Raises FedprivError, naming the file, in these cases: the checkpoint belongs to another
        configuration; the journal lists fewer rounds than were recorded, so the cost of some rounds
        is unknown; a table is damaged.
        """
        place = self.path / CHECKPOINT
        self.require_journal()  # opening the journal creates it
        with ExitStack() as opened:
            journal = opened.enter_context(Journal(self.path))
            saved = self.load_checkpoint()
            if saved:
                saved.check(place, origin)
            elif journal.total:
                raise FedprivError(f"{place} is missing, although {journal.path} lists rounds")
            completed = set(range(1, saved.round + 1)) if saved else set()
            timed = set(self.tables.rounds(TIMINGS) if (self.path / TIMINGS).exists() else [])
            recorded = completed | timed if synced else completed
            if recorded - set(journal.attempts) or journal.total < (saved.attempts if saved else 0):
                raise FedprivError(
                    f"{journal.path} was cut: it lists fewer rounds than the run has recorded"
                )
            if lost := completed - timed:
                raise FedprivError(f"{self.path / TIMINGS} is damaged: it lacks round {min(lost)}")
            opened.pop_all()
        return saved, journal

    def rewind(self, saved: Checkpoint | None) -> bool:
        """Cut every table back to a checkpoint; None empties them. Returns False when epsilon.csv
        was damaged and has been removed.

        Raises FedprivError, naming it, for another table that no longer holds what the run
        recorded.
        """
        whole = True
        for table in TABLES:
            if saved is None:
                self.tables.remove(table)
            elif table not in MARKED:
                self.tables.cut(table, saved.round)
            elif not self.tables.cut_to(table, saved.tables.get(table, (0, ""))):
                if table != EPSILON:
                    raise FedprivError(
                        f"{self.path / table} is damaged: it no longer holds the rounds up to "
                        f"{saved.round}; to run again, use the settings in {self.path / CONFIG}"
                    )
                self.tables.remove(table)
                whole = False
        return whole

    @property
    def evaluated(self) -> list[int]:
        """The rounds with a row in metrics.csv, without round 0."""
        return [number for number in self.tables.rounds(METRICS) if number]

    def save_model(self, parameters: dict[str, np.ndarray]) -> None:
        """Write the model, each array under the name of its parameter."""
        replace_file(self.path / "model.safetensors", save(parameters))


def require_writable(key: str, folder: Path) -> None:
    """Raise ConfigError for setting `key` when nothing can be written in a folder to be made."""
    above = [folder, *folder.resolve().parents]
    existing = next(one for one in above if one.exists())
    try:
        os.rmdir(tempfile.mkdtemp(dir=existing))
    except OSError as error:
        allowed = f"a folder that can be written ({existing}: {error.strerror})"
        raise ConfigError(key, folder, allowed) from error
