"""Reading tables: cells as they are written, with errors in one line.

Every format goes the way of CSV text, so that one set of rules decides what a cell means. Each line
is looked at twice: once for the form of the file (encoding, quotes, number of cells), once for its
values.
"""

from __future__ import annotations

import csv
import io
import re
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.data.files import noted
from fedpriv.data.table.frames import MOST_BYTES, as_csv, read_parquet
from fedpriv.errors import DataError, FedprivError
from fedpriv.util.plain_numbers import plain_number
from fedpriv.util.untrusted_files import require_regular

if TYPE_CHECKING:
    import pandas as pd

SEPARATORS = ",;\t|"
MOST_COLUMNS = 10_000
CELL_CHARACTERS = 10_000
"""Limit of one cell."""
LARGEST = 1e12
"""Largest accepted size of a number."""
FRAME = "the data frame"
"""Name of a given data frame in messages."""

_given: ContextVar[pd.DataFrame | None] = ContextVar("given_frame", default=None)


@contextmanager
def given_frame(frame: pd.DataFrame | None) -> Iterator[None]:
    """Context in which `data=table` without a path reads this data frame."""
    token = _given.set(frame)
    try:
        yield
    finally:
        _given.reset(token)


def frame_in_use() -> pd.DataFrame | None:
    """The data frame of the innermost `given_frame`."""
    return _given.get()


@dataclass(frozen=True)
class Format:
    """How the cells of a file are written.

    separator: sign between two cells; None: the one of `SEPARATORS` that the first line has most.
    decimal: sign before the decimals of a number.
    encoding: of a CSV file.
    missing: texts that stand for a missing value, beside an empty cell.
    """

    separator: str | None = None
    decimal: str = "."
    encoding: str = "utf-8"
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cells:
    """The cells of a table.

    name: of the file, for messages.
    frame: a column for each name. A column is of numbers (float64, missing ones NaN), or
        categorical with stripped texts, missing ones without a category. The index has the lines
        of the file.
    notes: what a reader should know of the file.
    """

    name: str
    frame: pd.DataFrame
    notes: tuple[str, ...] = field(default=())

    def error(self, column: str, wrong: np.ndarray, what: str) -> DataError:
        """The error for the first row of `wrong` (n,) bool, with line and value of the column."""
        row = int(wrong.argmax())
        value = self.frame[column].iloc[row]
        shown = "" if value != value else f"{value!s:.40}: "
        more = f" ({int(wrong.sum())} rows)" if wrong.sum() > 1 else ""
        return DataError(
            f"{self.name}: line {self.frame.index[row]}, column {column}: {shown}{what}{more}"
        )


def read_cells(path: Path | None, form: Format, texts: Iterable[str]) -> Cells:
    """The cells of a CSV file, of a Parquet file (its name ends with .parquet), or of the given
    data frame if there is no path.

    texts: columns that stay texts even if all of their cells are numbers.

    Raises DataError with one line.
    """
    if path is None:
        frame = frame_in_use()
        if frame is None:
            raise FedprivError(
                "data.path=null: the path of a table, or fedpriv.run(..., frame=...)"
            )
        return _cells(FRAME, as_csv(FRAME, frame), Format(",", missing=form.missing), texts)
    try:
        require_regular(path, MOST_BYTES)
        noted(path)
        if path.suffix.lower() in (".parquet", ".pq"):
            text = as_csv(str(path), read_parquet(path))
            return _cells(str(path), text, Format(",", missing=form.missing), texts)
        _refuse_binary(path)
        return _cells(str(path), path, form, texts)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise DataError(f"{path}: {reason}") from error


def _refuse_binary(path: Path) -> None:
    with open(path, "rb") as file:
        head = file.read(4)
        if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise ValueError("UTF-16; save it as UTF-8")
        if head == b"PK\x03\x04" or head == b"\xd0\xcf\x11\xe0":
            raise ValueError("a workbook or an archive, not a CSV file; export it as CSV")
        file.seek(0)
        while chunk := file.read(1 << 20):
            if b"\0" in chunk:
                raise ValueError("not a text file: it contains zero bytes")


def _ends_in_a_line(path: Path) -> bool:
    with open(path, "rb") as file:
        file.seek(-1, io.SEEK_END)
        return file.read(1) in (b"\n", b"\r")


def _cells(name: str, source: Path | io.StringIO, form: Format, texts: Iterable[str]) -> Cells:
    shape = _Shape.of(name, source, form)
    text = frozenset(texts)
    frame = _values(name, source, form, shape, text)
    truths = {column for column, values in frame.items() if _has_truths(values)}
    if truths:  # read them again, as they are written
        frame = _values(name, source, form, shape, text.union(map(str, truths)))
    if len(frame) != len(shape.lines):
        raise DataError(f"{name}: {len(shape.lines)} lines, of which {len(frame)} can be read")
    frame.index = shape.lines
    for column in shape.names:
        frame[column] = _stripped(frame[column], form, keep=column in text)
    cells = Cells(name, frame, shape.notes)
    _refuse_odd_cells(cells)
    return cells


@dataclass(frozen=True)
class _Shape:
    """The form of a CSV file: names of its columns, line of each row, and its separator."""

    names: list[str]
    lines: np.ndarray
    separator: str
    notes: tuple[str, ...]

    @classmethod
    def of(cls, name: str, source: Path | io.StringIO, form: Format) -> _Shape:
        with _opened(source, form.encoding) as file:
            try:
                shape = cls._read(name, file, form)
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{name}: not {form.encoding} ({error.reason}); "
                    "set data.encoding, for example latin-1"
                ) from error
            except csv.Error as error:
                raise DataError(f"{name}: not a readable table: {error}") from error
        cut = isinstance(source, Path) and not _ends_in_a_line(source)
        return replace(shape, notes=("the last line has no end: is the file whole?",) * cut)

    @classmethod
    def _read(cls, name: str, file: io.TextIOBase, form: Format) -> _Shape:
        first = file.readline()
        if not first.strip():
            raise DataError(
                f"{name}: {'line 1 is empty' if file.readline() else 'the file is empty'}"
            )
        separator = form.separator or max(SEPARATORS, key=_unquoted(first).count)
        file.seek(0)
        rows = csv.reader(file, delimiter=separator, strict=True)
        names = _names(name, next(rows))
        lines, blank, width = [], 0, len(names)
        before = rows.line_num
        for row in rows:
            line, before = before + 1, rows.line_num
            if not row:
                blank = blank or line
                continue
            if blank:
                raise DataError(f"{name}: line {blank} is blank")
            if len(row) != width:
                raise DataError(
                    f"{name}: line {line}: {len(row)} cells; the first line has {width}"
                )
            lines.append(line)
        if not lines:
            raise DataError(f"{name}: no records, only names of columns")
        return cls(names, np.array(lines), separator, ())


@contextmanager
def _opened(source: Path | io.StringIO, encoding: str) -> Iterator[io.TextIOBase]:
    if isinstance(source, io.StringIO):
        source.seek(0)
        yield source
        return
    try:
        with open(source, encoding=_without_mark(encoding), newline="") as file:
            yield file
    except LookupError as error:
        raise DataError(f"data.encoding={encoding:.40}: allowed: an encoding of Python") from error


def _without_mark(encoding: str) -> str:
    """An encoding that drops the mark with which some programs begin UTF-8."""
    return "utf-8-sig" if encoding.lower().replace("_", "-") in ("utf-8", "utf8") else encoding


def _unquoted(line: str) -> str:
    return re.sub(r'"[^"]*"', "", line)


def _names(name: str, cells: list[str]) -> list[str]:
    names = [cell.strip() for cell in cells]
    if len(names) > MOST_COLUMNS:
        raise DataError(f"{name}: line 1: {len(names)} columns; at most {MOST_COLUMNS} are read")
    for place, one in enumerate(names, start=1):
        if not one:
            hint = "; a table from pandas needs to_csv(index=False)" if place == 1 else ""
            raise DataError(f"{name}: line 1: column {place} has no name{hint}")
        if not one.isprintable():
            raise DataError(f"{name}: line 1: column {place}: {one!r:.60} is no printable name")
    twice = sorted({one for one in names if names.count(one) > 1})
    if twice:
        raise DataError(f"{name}: line 1: two columns have the name {twice[0]}")
    alike: dict[str, str] = {}
    for one in names:
        other = alike.setdefault(one.casefold(), one)
        if other != one:
            raise DataError(f"{name}: line 1: columns {other} and {one} differ only in case")
    if all(re.fullmatch(r"[-+]?[\d.,]+", one) for one in names):
        raise DataError(f"{name}: line 1 has numbers where the names of the columns are expected")
    return names


def _values(
    name: str, source: Path | io.StringIO, form: Format, shape: _Shape, text: frozenset[str]
) -> pd.DataFrame:
    import pandas as pd

    if isinstance(source, io.StringIO):
        source.seek(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            return pd.read_csv(
                source,
                sep=shape.separator,
                decimal=form.decimal,
                encoding=_without_mark(form.encoding),
                names=shape.names,
                header=0,
                index_col=False,
                dtype=dict.fromkeys(text & set(shape.names), "category"),
                na_values=["", *form.missing],
                keep_default_na=False,
                skipinitialspace=True,
                skip_blank_lines=True,
                low_memory=False,
                float_precision="round_trip",  # as Python's float, see `number_of`
            )
    except (pd.errors.ParserError, pd.errors.ParserWarning, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split()).removeprefix("Error tokenizing data. C error: ")
        raise DataError(f"{name}: not a readable table: {reason}") from error


def _has_truths(column: pd.Series) -> bool:
    """Whether pandas has read words such as TRUE as truth values."""
    import pandas as pd

    return column.dtype == bool or (
        column.dtype == object and pd.api.types.infer_dtype(column, skipna=True) == "boolean"
    )


def number_of(text: str) -> float:
    """The number that a text writes, NaN if it writes none. A cell means the same whichever other
    cells its column has, so that no row changes how another is read."""
    try:
        return plain_number(text)
    except ValueError:
        return np.nan


def _stripped(column: pd.Series, form: Format, *, keep: bool) -> pd.Series:
    """A column as numbers (float64) or as stripped texts (categorical).

    keep: leave numbers as texts.
    """
    import pandas as pd

    if column.dtype.kind in "iuf" and not keep:
        return _without_marks(column.astype(np.float64), form)
    codes, found = pd.factorize(column.astype(object))
    marks = {"", *form.missing}
    stripped = [str(value).strip() for value in found]
    if not keep:
        plain = [one.replace(form.decimal, ".") if form.decimal != "." else one for one in stripped]
        numbers = np.array([number_of(one) for one in plain], dtype=np.float64)
        real = np.array([one not in marks for one in stripped], dtype=bool)
        if not np.isnan(numbers[real]).any():  # also where all are missing
            values = pd.Series(np.append(numbers, np.nan)[codes], index=column.index)
            return _without_marks(values, form)
    names = sorted({one for one in stripped if one not in marks})
    place = {one: number for number, one in enumerate(names)}
    new = np.array([place.get(one, -1) for one in stripped] + [-1])
    return pd.Series(
        pd.Categorical.from_codes(new[codes], pd.Index(names, dtype=object)), index=column.index
    )


def _without_marks(numbers: pd.Series, form: Format) -> pd.Series:
    """Numbers without those that stand for a missing value, however they are written: the mark -999
    means -999.0 too. It depends on no other cell."""
    return numbers.mask(numbers.isin([number_of(mark) for mark in form.missing]))


def _refuse_odd_cells(cells: Cells) -> None:
    """Refuse infinite and huge numbers, and texts that are no printable line."""
    for name in cells.frame.columns:
        column = cells.frame[name]
        if column.dtype == np.float64:
            wrong = np.abs(column.to_numpy()) > LARGEST
            if wrong.any():
                raise cells.error(name, wrong, f"not a number up to {LARGEST:g} in size")
            continue
        odd = [
            place
            for place, text in enumerate(column.cat.categories)
            if len(text) > CELL_CHARACTERS or not text.isprintable() or "\ufffd" in text
        ]
        if odd:
            wrong = np.isin(column.cat.codes.to_numpy(), odd)
            raise cells.error(
                name,
                wrong,
                "a text of several lines, or with characters that are not "
                "printable: is the encoding right?",
            )
