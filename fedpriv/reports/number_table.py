"""CSV files with records of numbers."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedpriv.util.durable_files import replace_file


def write_records(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Write at least one record, completely or not at all; all have the keys of the first one."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    replace_file(path, text.getvalue().encode())
