"""A run's tables: CSV files that grow by whole lines.

A checkpoint stores the length and digest of each table at its round (`Tables.marks`), and is
written after the tables are on disk. A resumed run cuts the tables back to those lengths. A table
whose bytes no longer match the digest is damaged.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedpriv.errors import FedprivError
from fedpriv.util.durable_files import fsync_all, fsync_folder, replace_file
from fedpriv.util.untrusted_files import TABLE_BYTES, read_bytes

METRICS = "metrics.csv"
TIMINGS = "timings.csv"
EPSILON = "epsilon.csv"
ASSUMPTIONS = "assumptions.csv"
TRAFFIC = "traffic.csv"
UTILITY = "utility.csv"
STATISTICS = "statistics.csv"
"""Both are written once, at the end."""
TABLES = (METRICS, TIMINGS, ASSUMPTIONS, EPSILON, TRAFFIC)
MARKED = (METRICS, ASSUMPTIONS, EPSILON, TRAFFIC)
"""Tables that are equal in equal runs. Times differ, so they are no part of a checkpoint."""
ROUND = b"round,"
"""What every table begins with."""


class Tables:
    """The tables of one run's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._columns: dict[str, list[str]] = {}
        self._named: set[str] = set()
        self._written: dict[str, tuple[int, Any]] = {}

    def append(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows to a table. The first row names the columns; later rows must have the same."""
        if not rows:
            return
        path = self.folder / table
        columns = list(rows[0])
        size, digest = self._state(table)
        if table not in self._columns:
            if size and self._header(table) != columns:
                raise FedprivError(f"{path} is damaged (its first line is not {','.join(columns)})")
            self._columns[table] = columns
        found = path.stat().st_size if path.exists() else 0
        if found != size:
            raise FedprivError(
                f"{path} has {found} bytes, not the {size} that this run has written"
            )
        known = self._columns[table]
        if any(list(row) != known for row in rows):
            raise ValueError(f"{table}: columns {columns} differ from {known}")
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if not size:
            writer.writerow(columns)
        writer.writerows([_text(value) for value in row.values()] for row in rows)
        content = text.getvalue().encode()
        with open(path, "ab") as file:
            file.write(content)
        digest.update(content)
        self._written[table] = (size + len(content), digest)

    def rows(self, table: str) -> list[dict[str, str]]:
        """A table's rows as text; empty when there is no file. Raises FedprivError when the file is
        not a table."""
        path = self.folder / table
        if not path.exists():
            return []
        try:
            return list(csv.DictReader(io.StringIO(self._content(table).decode(), newline="")))
        except (UnicodeDecodeError, csv.Error) as error:
            raise FedprivError(f"{path} is damaged ({error})") from error

    def rounds(self, table: str) -> list[int]:
        """The round of each whole line. Raises FedprivError when a line has none."""
        return [number for number, _ in self._lines(table)]

    def marks(self) -> dict[str, tuple[int, str]]:
        """Length and digest of each table of `MARKED`."""
        states = {table: self._state(table) for table in MARKED}
        return {table: (size, digest.hexdigest()) for table, (size, digest) in states.items()}

    def fsync(self) -> None:
        """Return once all rows survive a crash."""
        present = {table for table in TABLES if (self.folder / table).exists()}
        fsync_all(self.folder / table for table in sorted(present))
        if present - self._named:
            fsync_folder(self.folder)
            self._named = present

    def cut_to(self, table: str, mark: tuple[int, str]) -> bool:
        """Cut a table back to a mark. Returns False, and changes nothing, when the table no longer
        starts with the marked bytes."""
        path = self.folder / table
        size, expected = mark
        content = self._content(table)
        if hashlib.sha256(content[:size]).hexdigest() != expected:
            return False
        if not size:
            self.remove(table)
        elif len(content) > size:
            replace_file(path, content[:size])
        return True

    def cut(self, table: str, round: int) -> None:
        """Cut a table back to the whole lines of rounds up to `round`. Raises FedprivError when a
        line has no round."""
        path = self.folder / table
        content = self._content(table)
        if _unfinished(content):
            self.remove(table)
        else:
            lines = [line for number, line in self._lines(table) if number <= round]
            header = content.split(b"\n", 1)[0]
            self._forget(table)
            replace_file(path, b"".join([header + b"\n", *lines]))

    def remove(self, table: str) -> None:
        """Delete a table."""
        self._forget(table)
        (self.folder / table).unlink(missing_ok=True)

    def _lines(self, table: str) -> list[tuple[int, bytes]]:
        """Round and bytes of each line that ends in a newline."""
        path = self.folder / table
        content = self._content(table)
        if _unfinished(content):
            return []
        header, *lines = content.splitlines(keepends=True)
        try:
            content.decode()
            if not header.startswith(ROUND):
                raise ValueError(f"its first line is {header[:20]!r}")
            return [(int(line.split(b",", 1)[0]), line) for line in lines if line.endswith(b"\n")]
        except ValueError as error:
            raise FedprivError(f"{path} is damaged ({error})") from error

    def _forget(self, table: str) -> None:
        self._written.pop(table, None)
        self._columns.pop(table, None)

    def _state(self, table: str) -> tuple[int, Any]:
        """Length so far, and a digest that further rows are added to."""
        if table not in self._written:
            content = self._content(table)
            self._written[table] = (len(content), hashlib.sha256(content))
        return self._written[table]

    def _header(self, table: str) -> list[str]:
        return next(csv.reader([self._content(table).decode().partition("\n")[0]]), [])

    def _content(self, table: str) -> bytes:
        """The bytes of a table; empty without a file. Raises FedprivError for one that is no
        regular file, or too large."""
        path = self.folder / table
        try:
            return read_bytes(path, TABLE_BYTES) if path.exists() else b""
        except ValueError as error:
            raise FedprivError(f"{path} is damaged ({error})") from error


def _unfinished(content: bytes) -> bool:
    """Whether a table has no more than a part of its first line: the disk was full."""
    return b"\n" not in content and ROUND.startswith(content[: len(ROUND)])


def _text(value: Any) -> Any:
    """Floats are written with the fewest digits that round-trip, None as an empty cell."""
    if value is None:
        return ""
    return repr(float(value)) if isinstance(value, float | np.floating) else value
