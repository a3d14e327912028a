"""CSV files with the numbers of a figure."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedpriv.util.durable_files import replace_file


def write_table(path: Path, columns: Sequence[str], rows: Iterable[Iterable[Any]]) -> None:
    """Write a CSV file, completely or not at all."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    replace_file(path, text.getvalue().encode())


def write_records(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Write at least one record; the keys of the first one are the columns of all."""
    write_table(path, list(records[0]), (record.values() for record in records))
