"""Reading tables: cells as they are written, with errors in one line.

Every format becomes texts first, so that one set of rules decides what a cell means, whichever
other cells its column has.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from fedpriv.data.files import noted
from fedpriv.data.table.frames import MOST_BYTES, Written, read_parquet, written
from fedpriv.data.table.settings import ReadingRules
from fedpriv.errors import DataError, FedprivError
from fedpriv.util.plain_numbers import plain_number
from fedpriv.util.untrusted_files import opened

if TYPE_CHECKING:
    import pandas as pd

SEPARATORS = ",;\t|"
MOST_COLUMNS = 10_000
ROWS = 4096
"""Rows that are sorted into columns together."""
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


@dataclass(frozen=True)
class Cells:
    """The cells of a table.

    name: of the file, for messages.
    frame: a column for each name. A column is of numbers (float64, missing ones NaN), or
        categorical with stripped texts, missing ones without a category. The index has the lines
        of the file.
    decimal: sign before the decimals of a text.
    refused: why a row is refused, by its place, where rows are judged one by one; None: the first
        refused cell ends the reading.
    unread: columns of the file that are not in `frame`.
    """

    name: str
    frame: pd.DataFrame
    decimal: str = "."
    refused: dict[int, str] | None = None
    unread: tuple[str, ...] = ()

    def error(self, column: str, wrong: np.ndarray, what: str) -> DataError:
        """The error for the first row of `wrong` (n,) bool, with line and value of the column."""
        row = int(wrong.argmax())
        value = self.frame[column].iloc[row]
        shown = "" if value != value else f"{value!s:.40}: "
        more = f" ({int(wrong.sum())} rows)" if wrong.sum() > 1 else ""
        return DataError(
            f"{self.name}: line {self.frame.index[row]}, column {column}: {shown}{what}{more}"
        )

    def refuse_rows(self, column: str, wrong: np.ndarray, what: str, remedy: str = "") -> None:
        """Refuse the rows of `wrong` (n,) bool.

        remedy: what the settings of a run can do about it.

        Raises DataError unless rows are judged one by one.
        """
        if not wrong.any():
            return
        if self.refused is None:
            raise self.error(column, wrong, f"{what}; {remedy}" if remedy else what)
        for row in np.flatnonzero(wrong):
            value = self.frame[column].iloc[row]
            shown = "" if value != value else f"{value!s:.40}: "
            self.refused.setdefault(int(row), f"column {column}: {shown}{what}")

    def refuse(self, column: str, wrong: Callable[[str], bool], what: str) -> None:
        """Refuse the rows of a column of texts whose text is wrong, as `refuse_rows`."""
        values = self.frame[column].cat
        odd = [place for place, text in enumerate(values.categories) if wrong(text)]
        if odd:
            self.refuse_rows(column, np.isin(values.codes, odd), what)

    def numbers(self, column: str) -> np.ndarray:
        """A column as numbers, (n,) float64, NaN where one is missing. Refuses a text that is no
        number."""
        values = self.frame[column]
        if values.dtype == np.float64:
            return np.asarray(values.to_numpy())
        texts = {text: number_of(text.replace(self.decimal, ".")) for text in values.cat.categories}
        self.refuse(column, lambda text: np.isnan(texts[text]), "a number is expected")
        return np.array([*texts.values(), np.nan])[values.cat.codes.to_numpy()]

    def places(self, column: str, known: Sequence[str]) -> np.ndarray:
        """Place of each row's text among those known, (n,); -1 where it is missing, -2 where it is
        unknown."""
        return places_of(self.frame[column].cat.categories, self.frame[column].cat.codes, known)


def places_of(texts: Iterable[str], codes: Any, known: Sequence[str]) -> np.ndarray:
    """Places among `known`, (n,) int64, of texts that are given by their codes (n,); -1 stays."""
    place = {text: number for number, text in enumerate(known)}
    found = np.array([*(place.get(text, -2) for text in texts), -1])
    return np.asarray(found[np.asarray(codes)])


def read_cells(
    path: Path | None,
    form: ReadingRules,
    texts: Iterable[str],
    *,
    columns: Collection[str] | None = None,
) -> Cells:
    """The cells of a CSV file, of a Parquet file (its name ends with .parquet), or of the given
    data frame if there is no path.

    form: how the cells are written: separator, decimal, encoding and missing marks.
    texts: columns that stay texts even if all of their cells are numbers.
    columns: of new rows, which are judged one by one; None: all columns, and the first cell that
        is refused ends the reading.

    Raises DataError with one line.
    """
    name = FRAME if path is None else str(path)
    try:
        found = _written(path, form)
        names = _checked(found.names)
    except UnicodeDecodeError as error:
        raise DataError(
            f"{name}: not {form.encoding} ({error.reason}); if it is a CSV file, set "
            "data.encoding, for example latin-1"
        ) from error
    except (OSError, ValueError, LookupError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise DataError(f"{name}: {reason}") from error
    import pandas as pd

    kept = frozenset(texts)
    read = {
        column: _values(codes, values, form, keep=column in kept)
        for column, (codes, values) in zip(names, found.columns)
        if columns is None or column in columns
    }
    refused = None if columns is None else dict[int, str]()
    unread = tuple(column for column in names if column not in read)
    frame = pd.DataFrame(read, index=found.lines)
    cells = Cells(name, frame, form.decimal, refused, unread)
    _refuse_odd_cells(cells)
    return cells


def _written(path: Path | None, form: ReadingRules) -> Written:
    if path is None:
        frame = _given.get()
        if frame is None:
            raise FedprivError(
                "data.path=null: the path of a table, or fedpriv.run(..., frame=...)"
            )
        return written(frame)
    noted(path)
    if path.suffix.lower() in (".parquet", ".pq"):
        return read_parquet(path)
    with opened(path, MOST_BYTES) as file:
        return _csv(file, form)


def _csv(raw: BinaryIO, form: ReadingRules) -> Written:
    """The texts of a CSV file. Raises ValueError for rows of another length than the first line."""
    utf8 = codecs.lookup(form.encoding).name == "utf-8"  # some programs begin it with a mark
    encoding = "utf-8-sig" if utf8 else form.encoding
    with io.TextIOWrapper(raw, encoding=encoding, newline="") as file:
        unquoted = re.sub(r'"[^"]*"', "", file.readline())
        separator = form.separator or max(SEPARATORS, key=unquoted.count)
        file.seek(0)
        rows = csv.reader(file, delimiter=separator, skipinitialspace=True, strict=True)
        names = next(rows, [])
        lines = array("q")
        whole = _whole_rows(rows, len(names), lines)
        places: list[dict[str, int]] = [{} for _ in names]
        codes = [array("q") for _ in names]
        while some := list(islice(whole, ROWS)):
            for cells, place, code in zip(zip(*some), places, codes):
                code.extend([place.setdefault(text, len(place)) for text in cells])
    columns = [(np.array(code), list(place)) for code, place in zip(codes, places)]
    return Written(names, columns, np.array(lines))


def _whole_rows(rows: Any, width: int, lines: array[int]) -> Iterator[list[str]]:
    """The rows of a reader. Writes down the line of each. Raises ValueError for a row of another
    width, and for blank lines before a row."""
    before, blank = rows.line_num, False
    for row in rows:
        line, before = before + 1, rows.line_num
        if row and (blank or len(row) != width):
            found = "a blank line before it" if blank else f"{len(row)} cells"
            raise ValueError(f"line {line}: {found}; the first line has {width} cells")
        blank = not row
        if row:
            lines.append(line)
            yield row


def _checked(names: list[str]) -> list[str]:
    """Stripped names of columns. Raises ValueError for names that are none, or not different."""
    names = [name.strip() for name in names]
    if not 0 < len(names) <= MOST_COLUMNS:
        raise ValueError(f"line 1: {len(names)} columns; from 1 to {MOST_COLUMNS} are read")
    for place, name in enumerate(names, start=1):
        if not name or not name.isprintable():
            raise ValueError(
                f"line 1: column {place}: {name!r:.60} is no printable name (a table from pandas "
                "needs to_csv(index=False))"
            )
    folded = [name.casefold() for name in names]
    twice = [name for name in names if folded.count(name.casefold()) > 1]
    if twice:
        raise ValueError(f"line 1: two columns have the name {twice[0]:.60}, in any case")
    if all(re.fullmatch(r"[-+]?[\d.,]+", name) for name in names):
        raise ValueError("line 1 has numbers where the names of the columns are expected")
    return names


def number_of(text: str) -> float:
    """The number that a text writes, NaN if it writes none."""
    try:
        return plain_number(text)
    except ValueError:
        return np.nan


def _values(codes: np.ndarray, texts: list[str], form: ReadingRules, *, keep: bool) -> Any:
    """A column as numbers (float64), or as stripped texts (categorical).

    keep: leave numbers as texts.
    """
    import pandas as pd

    marks = {"", *form.missing_marks}
    stripped = [text.strip() for text in texts]
    if not keep:
        numbers = np.array(
            [*(number_of(text.replace(form.decimal, ".")) for text in stripped), 0.0]
        )
        missing = np.array([*(text in marks for text in stripped), True])
        if not np.isnan(numbers[~missing]).any():  # also where all are missing
            # The mark -999 means -999.0 too.
            missing |= np.isin(numbers, [number_of(mark) for mark in form.missing_marks])
            return np.where(missing, np.nan, numbers)[codes]
    names = sorted(set(stripped) - marks)
    place = {name: number for number, name in enumerate(names)}
    new = np.array([*(place.get(text, -1) for text in stripped), -1])[codes]
    return pd.Categorical.from_codes(new, pd.Index(names, dtype=object))


def _refuse_odd_cells(cells: Cells) -> None:
    """Raise DataError for no rows. Refuse infinite and huge numbers, and texts that are no
    printable line."""
    if not len(cells.frame):
        raise DataError(f"{cells.name}: no records, only names of columns")
    for name in cells.frame.columns:
        column = cells.frame[name]
        if column.dtype == np.float64:
            wrong = np.abs(column.to_numpy()) > LARGEST
            cells.refuse_rows(name, wrong, f"not a number up to {LARGEST:g} in size")
        else:
            cells.refuse(
                name,
                lambda text: not text.isprintable() or "\ufffd" in text,
                "a text of several lines, or with signs that are not printable: is the encoding "
                "right?",
            )
