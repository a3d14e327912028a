"""Reading CSV files as numbers, with errors that name the file, the line and the column."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.errors import DataError
from fedpriv.util.untrusted_files import opened

if TYPE_CHECKING:
    import pandas as pd

LARGEST = 1e9
"""Largest accepted size of a value. Values of our data sets are far smaller; a damaged one may be
larger, and scaling by it would flatten its whole column."""
MOST_BYTES = 2**30
"""Size limit of a file; the largest of our data sets has 150 million bytes."""


def read_csv(
    path: Path,
    columns: list[str] | None = None,
    *,
    header: bool = True,
    text: tuple[str, ...] = (),
    missing: str | None = None,
    comment: str | None = None,
) -> pd.DataFrame:
    """A CSV file as float64 columns, with the line numbers of the file as index.

    columns: names that the header line must hold, None for any names; for a file without a header
        line, the names to use.
    header: whether the first line names the columns.
    text: columns that stay strings.
    missing: mark of an unknown value, which becomes NaN. Without it, every value must be a number
        of size `LARGEST` or less. Quotes around values are dropped (OpenML writes classes as '0').
    comment: mark that starts a comment. If it is given, comment lines and blank lines are skipped.

    Raises DataError.
    """
    frame = _read(path, None if header else columns, text)
    if columns is not None:
        require_columns(str(path), list(frame.columns), columns)
    frame.index += 1 + header
    if comment:
        blank = (frame.isna() | (frame == "")).all(axis=1)
        frame = frame[~(blank | frame.iloc[:, 0].astype(str).str.startswith(comment))]
    if frame.empty:
        raise DataError(f"{path}: no records")
    values = {name: _numbers(frame[name], missing) for name in frame.columns if name not in text}
    wrong = np.column_stack(
        [values[name][1] if name in values else frame[name].isna() for name in frame.columns]
    )
    if wrong.any():
        row, place = divmod(int(wrong.argmax()), frame.shape[1])
        value: object = frame.iat[row, place]
        absent = value != value or not str(value).strip()
        reason = f"{value!s:.40} is not a finite number of a sensible size"
        raise _cell_error(path, frame, row, place, "a missing value" if absent else reason)
    return frame.assign(**{name: numbers for name, (numbers, _) in values.items()})


def refuse(
    path: Path, frame: pd.DataFrame, name: str, *, wrong: np.ndarray | pd.Series, allowed: str
) -> None:
    """Raise DataError for the first row of a table from `read_csv` where `wrong` (n,) holds."""
    wrong = np.asarray(wrong, dtype=bool)
    if wrong.any():
        row = int(wrong.argmax())
        place = list(frame.columns).index(name)
        value: object = frame.iat[row, place]
        shown = f"{value:g}" if isinstance(value, float) else f"{value!s:.40}"
        raise _cell_error(path, frame, row, place, f"{shown}; allowed: {allowed}")


def _cell_error(path: Path, frame: pd.DataFrame, row: int, place: int, text: str) -> DataError:
    line, column = frame.index[row], frame.columns[place]
    return DataError(f"{path}: line {line}, column {column}: {text}")


def require_columns(name: str, found: list[str], expected: Sequence[str]) -> None:
    """Raise DataError unless a file's columns are those expected, in any order."""
    lacking = [column for column in expected if column not in found]
    surplus = [str(column) for column in found if column not in expected]
    if lacking or surplus:
        raise DataError(
            f"{name}: line 1: wrong columns: missing {', '.join(lacking[:5]) or 'none'}; "
            f"unexpected {', '.join(surplus[:5]) or 'none'}"
        )


def _read(path: Path, names: list[str] | None, text: tuple[str, ...]) -> pd.DataFrame:
    import pandas as pd

    try:
        with warnings.catch_warnings(), opened(path, MOST_BYTES) as file:
            # For a first line with too many values pandas only warns.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            return pd.read_csv(
                file,
                header=None if names else 0,
                names=names,
                dtype=dict.fromkeys(text, str),
                index_col=False,
                skip_blank_lines=False,
                skipinitialspace=True,
                keep_default_na=False,
                low_memory=False,
            )
    except (ValueError, OSError, pd.errors.ParserWarning) as error:
        reason = str(error).strip().splitlines()[0].removeprefix("Error tokenizing data. C error: ")
        raise DataError(f"{path}: not a readable table: {reason}") from error


def _numbers(column: pd.Series, missing: str | None) -> tuple[np.ndarray, np.ndarray]:
    """Values as float64 (n,), and which of them are wrong (n,) bool."""
    import pandas as pd

    unknown: np.ndarray | bool = False
    if column.dtype.kind not in "iuf":
        stripped = column.astype(str).str.strip(" '\"")
        unknown = (stripped == missing).to_numpy() & column.notna().to_numpy()
        column = pd.to_numeric(stripped, errors="coerce")
    values = column.to_numpy(np.float64)
    return values, ~(np.abs(values) <= LARGEST) & ~np.asarray(unknown)
