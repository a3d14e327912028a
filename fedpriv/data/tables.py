"""Numbers from CSV files, with errors that name the file, the line and the column."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

LARGEST = 1e9
"""No column of our data sets comes near; a damaged value may, and scaling by it would take a whole
column away."""


def read_csv(
    path: Path,
    columns: list[str] | None = None,
    *,
    header: bool = True,
    text: tuple[str, ...] = (),
    missing: str | None = None,
) -> pd.DataFrame:
    """A CSV file as float64 columns, except the columns in `text`, which stay strings.

    columns: names that the header line must hold, None for any; without a header line (`header`
        False), their names.
    missing: the mark that stands for an unknown value and becomes NaN; without it every value must
        be a number, at most `LARGEST` in size. Quotes around values are dropped (OpenML writes
        classes as '0'). Raises DataError.
    """
    frame = _read(path, None if header else columns, text)
    if columns is not None:
        _require_columns(path, list(frame.columns), columns)
    if frame.empty:
        raise DataError(f"{path}: no records")
    worst: tuple[int, str, object] | None = None
    for name in frame.columns:
        if name in text:
            bad = frame[name].isna().to_numpy()
        else:
            values, bad = _numbers(frame[name], missing)
        row = int(bad.argmax())
        if bad[row] and (worst is None or row < worst[0]):
            worst = (row, name, frame[name].iloc[row])
        if name not in text:
            frame[name] = values
    if worst:
        row, name, value = worst
        absent = value != value or not str(value).strip()
        shown = (
            "a missing value"
            if absent
            else f"{value!s:.40} is not a finite number of a sensible size"
        )
        raise DataError(f"{path}: line {row + 1 + header}, column {name}: {shown}")
    return frame


def refuse(
    path: Path, frame: pd.DataFrame, name: str, *, wrong: np.ndarray | pd.Series, allowed: str
) -> None:
    """Raise DataError for the first row of a table with a header line where `wrong` (n,) holds."""
    wrong = np.asarray(wrong, dtype=bool)
    if wrong.any():
        row = int(wrong.argmax())
        raise DataError(
            f"{path}: line {row + 2}, column {name}: {frame[name].iloc[row]!s:.40}; allowed: "
            f"{allowed}"
        )


def _require_columns(path: Path, found: list[str], expected: list[str]) -> None:
    if found == expected:
        return
    lacking = [name for name in expected if name not in found]
    surplus = [str(name) for name in found if name not in expected]
    what = [f"missing {', '.join(lacking[:5])}"] if lacking else []
    what += [f"unexpected {', '.join(surplus[:5])}"] if surplus else []
    raise DataError(
        f"{path}: line 1: wrong columns: {'; '.join(what) or 'not in the official order'}"
    )


def _read(path: Path, names: list[str] | None, text: tuple[str, ...]) -> pd.DataFrame:
    import pandas as pd

    try:
        with warnings.catch_warnings():
            # A first line with too many values is only a warning in pandas.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            return pd.read_csv(
                path,
                header=None if names else 0,
                names=names,
                dtype=dict.fromkeys(text, str),
                index_col=False,
                skip_blank_lines=False,
                keep_default_na=False,
                low_memory=False,
            )
    except pd.errors.EmptyDataError as error:
        raise DataError(f"{path}: the file is empty") from error
    except pd.errors.ParserWarning as error:
        raise DataError(
            f"{path}: line 1 names fewer columns than the records have values"
        ) from error
    except (pd.errors.ParserError, UnicodeDecodeError, OSError) as error:
        raise DataError(
            f"{path}: not a readable table: {str(error).strip().splitlines()[0]}"
        ) from error


def _numbers(column: pd.Series, missing: str | None) -> tuple[np.ndarray, np.ndarray]:
    """Values as float64 (n,) and which of them are wrong (n,) bool."""
    import pandas as pd

    if column.dtype.kind in "iuf":
        values = column.to_numpy(np.float64)
        return values, ~(np.abs(values) <= LARGEST)
    stripped = column.astype(str).str.strip(" '\"")
    unknown = (stripped == missing).to_numpy() & column.notna().to_numpy()
    values = pd.to_numeric(stripped, errors="coerce").to_numpy(np.float64)
    return values, ~(np.abs(values) <= LARGEST) & ~unknown
