"""Parquet files and data frames as texts, so that one set of rules decides what a cell means."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.data.table.written import POINT
from fedpriv.errors import DataError
from fedpriv.util.installed import how_to_install
from fedpriv.util.untrusted_files import opened

if TYPE_CHECKING:
    import pandas as pd

MOST_BYTES = 2**33
"""Size limit of a table's file, and of what a Parquet file unpacks to."""
CELL_BYTES = 64
"""What a cell takes in memory at most, where its column holds objects."""
EXACT = 2**53
"""Floating point holds each whole number below this size."""


@dataclass(frozen=True)
class Written:
    """A table of n rows as it is written. A text that many rows share is there once.

    names: of the columns.
    columns: for each column the place (n,) of each row's text, -1 where a value is missing, and the
        texts.
    lines: (n,) lines of the file.
    separator: sign between two cells; None: there is none.
    """

    names: list[str]
    columns: list[tuple[np.ndarray, list[str]]]
    lines: np.ndarray
    separator: str | None = None


def read_parquet(path: Path, most: int = MOST_BYTES, *, decimal: str = POINT) -> Written:
    """The texts of a Parquet file. Raises DataError for one that cannot be read, that unpacks to
    more than `most` bytes, or that has lists or structures in its cells."""
    try:
        import pyarrow.parquet as parquet
    except ImportError as error:
        needed = how_to_install("parquet")
        raise DataError(f"{path}: Parquet needs pyarrow: {needed}") from error
    try:
        with opened(path, MOST_BYTES) as file:
            about = parquet.ParquetFile(file).metadata
            groups = [about.row_group(number) for number in range(about.num_row_groups)]
            unpacked = sum(group.total_byte_size for group in groups)
            size = max(unpacked, about.num_rows * about.num_columns * CELL_BYTES)
            if size > most:
                raise ValueError(f"it unpacks to {size} bytes; at most {most} are read")
            columns = [about.schema.column(place) for place in range(about.num_columns)]
            if nested := next((one.path for one in columns if one.path != one.name), None):
                raise ValueError(
                    f"column {nested:.60} has lists or structures, not one value a row"
                )
            table = parquet.read_table(file, read_dictionary=[one.path for one in columns])
        return written(table.to_pandas(integer_object_nulls=True), decimal)
    except Exception as error:  # pyarrow's errors have no common base
        reason = " ".join(str(error).split())
        raise DataError(f"{path}: not a readable Parquet file: {reason:.200}") from error


def written(frame: pd.DataFrame, decimal: str = POINT) -> Written:
    """The texts of a data frame, without its index.

    decimal: sign before the decimals of its numbers.
    """
    text = partial(_text, decimal)
    columns = []
    for place in range(frame.shape[1]):
        column = frame.iloc[:, place]
        if column.dtype == object:  # where 1 and True would be one value
            column = column.map(text, na_action="ignore")
        codes, values = column.array.factorize()  # float32 stays so: 0.1 is no 0.10000000149
        columns.append((codes, list(map(text, values))))
    return Written([str(name) for name in frame.columns], columns, np.arange(len(frame)) + 2)


def _text(decimal: str, value: Any) -> str:
    """A cell as it is written by itself. The type of a column depends on all of its cells: beside a
    missing one 5 is stored as 5.0, and beside a time of day 2020-01-01 as 2020-01-01 00:00:00."""
    if isinstance(value, datetime | timedelta):
        return str(value).removesuffix(" 00:00:00")
    if isinstance(value, float | np.floating) and value.is_integer() and -EXACT < value < EXACT:
        return str(int(value))
    floating = isinstance(value, float | np.floating)
    return str(value).replace(POINT, decimal) if floating else str(value)
