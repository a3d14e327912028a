"""Parquet files and data frames as CSV text, so that one set of rules decides what a cell means."""

from __future__ import annotations

import io
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

MOST_BYTES = 2**33
"""Size limit of a table's file, and of what a Parquet file unpacks to."""
NUMBER_BYTES = 8
EXACT = 2**53
"""Floating point holds each whole number below this size."""


def read_parquet(path: Path) -> pd.DataFrame:
    """The rows of a Parquet file. Raises DataError for one that cannot be read, or that unpacks to
    more than `MOST_BYTES`."""
    try:
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise DataError(f"{path}: Parquet needs pyarrow: pip install 'fedpriv[parquet]'") from error
    try:
        file = parquet.ParquetFile(path)
        about = file.metadata
        groups = [about.row_group(number) for number in range(about.num_row_groups)]
        unpacked = sum(group.total_byte_size for group in groups)
        _require_fits(max(unpacked, about.num_rows * about.num_columns * NUMBER_BYTES))
        texts = [about.schema.column(place).path for place in range(about.num_columns)]
        # A text that many rows share stays one text, so that its size is known before it is copied.
        table = parquet.read_table(path, read_dictionary=texts)
        _require_fits(sum(map(_text_bytes, table.columns)))
        frame: pd.DataFrame = table.to_pandas(types_mapper=_exact_types().get)
    except _TooLargeError as error:
        raise DataError(f"{path}: {error}") from error
    except Exception as error:  # pyarrow's errors have no common base
        reason = " ".join(str(error).split())
        raise DataError(f"{path}: not a readable Parquet file: {reason:.200}") from error
    return frame


def _exact_types() -> dict[Any, Any]:
    """Types of pandas for Arrow's whole numbers and truth values, which stay so, and exact, beside
    missing ones."""
    import pandas as pd
    import pyarrow as arrow

    whole = (f"{sign}nt{bits}" for sign in ("I", "UI") for bits in (8, 16, 32, 64))
    types: dict[Any, Any] = {getattr(arrow, n.lower())(): getattr(pd, f"{n}Dtype")() for n in whole}
    return types | {arrow.bool_(): pd.BooleanDtype()}


class _TooLargeError(Exception):
    pass


def _require_fits(size: int) -> None:
    if size > MOST_BYTES:
        raise _TooLargeError(f"it unpacks to {size} bytes; at most {MOST_BYTES} are read")


def _text_bytes(column: Any) -> int:
    """Bytes of all texts of an Arrow column of a dictionary and its places; 0 for any other."""
    import pyarrow as arrow
    import pyarrow.compute as compute

    if not arrow.types.is_dictionary(column.type):
        return 0
    kinds = arrow.types
    sized = (kinds.is_string, kinds.is_large_string, kinds.is_binary, kinds.is_large_binary)
    if not any(is_sized(column.type.value_type) for is_sized in sized):
        return 0
    return sum(
        compute.sum(compute.take(compute.binary_length(one.dictionary), one.indices)).as_py() or 0
        for one in column.chunks
    )


def as_csv(name: str, frame: pd.DataFrame) -> io.StringIO:
    """A data frame as CSV text, without its index."""
    import pandas as pd

    if frame.columns.nlevels > 1:
        raise DataError(f"{name}: columns with {frame.columns.nlevels} levels of names, not one")
    own = [_own_texts(frame.iloc[:, place]) for place in range(frame.shape[1])]
    text = io.StringIO()
    pd.concat(own, axis=1).to_csv(text, index=False) if own else frame.to_csv(text, index=False)
    text.seek(0)
    return text


def _own_texts(column: pd.Series) -> pd.Series:
    """A column whose cells are written each by itself. The type of a column depends on all of its
    cells: beside a missing one, 5 would be written as 5.0, and beside a time of day, 2020-01-01 as
    2020-01-01 00:00:00."""
    import pandas as pd

    kind = getattr(column.dtype, "kind", "O")
    if kind in "iub" or isinstance(column.dtype, pd.StringDtype):
        return column
    if kind == "f":
        size = np.float32 if str(column.dtype).lower() == "float32" else np.float64
        numbers = column.to_numpy(dtype=size, na_value=np.nan)
        whole = (np.abs(numbers) < EXACT) & (numbers == np.trunc(numbers))
        if not whole.any():
            return column
        cells = numbers.astype(object)
        cells[:] = list(numbers)
        cells[whole] = numbers[whole].astype(np.int64)
        cells[np.isnan(numbers)] = None
    else:
        cells = np.empty(len(column), dtype=object)
        cells[:] = [
            None if value is pd.NaT else _own_text(value) for value in column.astype(object)
        ]
    return pd.Series(cells, index=column.index, name=column.name, dtype=object)


def _own_text(value: object) -> object:
    if isinstance(value, datetime | timedelta):
        return str(value).removesuffix(" 00:00:00")
    if isinstance(value, float) and value.is_integer() and abs(value) < EXACT:
        return int(value)
    return value
