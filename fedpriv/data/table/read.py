"""Reading tables: cells as they are written, with errors in one line.

Every format becomes texts first, so that one set of rules decides what a cell means, whichever
other cells its column has.
"""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import io
import lzma
import re
import zipfile
import zlib
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from fedpriv.data.files import noted
from fedpriv.data.table.frames import MOST_BYTES, Written, read_parquet, written
from fedpriv.data.table.settings import MISSING_MARKS, ReadingRules
from fedpriv.data.table.written import COMMA, LARGEST, POINT, days_of, example_of, number_of
from fedpriv.errors import DataError, FedprivError
from fedpriv.util.pasted import pasted
from fedpriv.util.untrusted_files import opened, reason_of

if TYPE_CHECKING:
    import pandas as pd

SEPARATORS = ",;\t|"
UNPACK: dict[str, Callable[[Any], Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
MOST_UNPACKED = 2**31
"""Size limit of what a compressed file unpacks to."""
UNNAMED = re.compile(r"(Unnamed: \d+)?")
"""Names of columns without a name, such as the numbers of rows that R and pandas write."""
BINARY = {
    b"PK\x03\x04": "an Excel file or an archive: save the sheet as CSV UTF-8",
    b"\xd0\xcf\x11\xe0": "an old Excel file: save the sheet as CSV UTF-8",
    b"PAR1": "a Parquet file: its name has to end with .parquet",
    b"\x1f\x8b": "a packed file: its name has to end with .gz",
}
"""What a file is that begins so."""
MOST_COLUMNS = 10_000
ROWS = 4096
"""Rows that are sorted into columns together."""
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
    frame: a categorical column of stripped texts for each name, missing ones without a category.
        The index has the lines of the file.
    marks: numbers that stand for a missing value, in any spelling.
    decimal: sign before decimals, None if it is not known yet.
    separator: sign between two cells of the file, None if it has none.
    refused: why a row is refused, by its place, where rows are judged one by one; None: the first
        refused cell ends the reading.
    unread: columns of the file that are not in `frame`.
    known_numbers: columns that were read as numbers.
    """

    name: str
    frame: pd.DataFrame
    marks: tuple[float, ...]
    decimal: str | None
    separator: str | None
    refused: dict[int, str] | None = None
    unread: tuple[str, ...] = ()
    known_numbers: dict[tuple[str, str | None, str], tuple[np.ndarray, np.ndarray]] = field(
        default_factory=dict, compare=False, repr=False
    )

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
        """Refuse the rows of a column whose text is wrong, as `refuse_rows`."""
        values = self.frame[column].cat
        odd = [place for place, text in enumerate(values.categories) if wrong(text)]
        if odd:
            self.refuse_rows(column, np.isin(values.codes, odd), what)

    def texts(self, column: str) -> list[str]:
        """The different texts of a column."""
        return list(map(str, self.frame[column].cat.categories))

    def read_numbers(self, column: str, date: str | None = None) -> tuple[np.ndarray, np.ndarray]:
        """A column as numbers, (n,) float64, NaN where a text writes none; and where it has none,
        (n,) bool.

        date: form of the column's dates, which become days from 1970; None: it has numbers.
        """
        key = (column, date, self.decimal or POINT)
        if key not in self.known_numbers:
            texts = self.texts(column)
            if date is not None:
                numbers = days_of(texts, date)
            else:
                numbers = np.array([number_of(text, key[-1]) for text in texts])
            missing = np.append(np.isin(numbers, self.marks), True)
            codes = self.frame[column].cat.codes.to_numpy()
            numbers = np.where(missing, np.nan, np.append(numbers, np.nan))
            self.known_numbers[key] = numbers[codes], missing[codes]
        return self.known_numbers[key]

    def numbers(self, column: str, date: str | None = None) -> np.ndarray:
        """`read_numbers`, NaN where one is missing. Refuses a text that is no number (or date), and
        a number that is not of a sensible size."""
        values, missing = self.read_numbers(column, date)
        wrong = np.isnan(values) & ~missing
        if wrong.any():
            text = str(self.frame[column].iloc[int(wrong.argmax())])
            comma = date is None and not np.isnan(number_of(text, COMMA))
            remedy = f"{pasted('data.decimal', COMMA)} reads decimal commas" if comma else ""
            what = (
                f"a number{' with a decimal comma' * (self.decimal == COMMA)} is expected"
                if date is None
                else f"a date like {example_of(date)} is expected"
            )
            self.refuse_rows(column, wrong, what, remedy)
        huge = np.abs(values) > LARGEST
        self.refuse_rows(column, huge, f"not a number up to {LARGEST:g} in size")
        return values

    def require_printable(self, column: str) -> None:
        """Raise DataError for a text that is no printable line."""
        self.refuse(
            column,
            lambda text: not text.isprintable() or "\ufffd" in text,
            "a text of several lines, or with signs that are not printable: is the encoding right?",
        )

    def places(
        self, column: str, known: Sequence[str], form: Callable[[str], str] = str
    ) -> np.ndarray:
        """Place of each row's text among those known, (n,); -1 where it is missing, -2 where it is
        unknown.

        form: two texts of one form are one.
        """
        texts = map(form, self.frame[column].cat.categories)
        return places_of(texts, self.frame[column].cat.codes, list(map(form, known)))


def places_of(texts: Iterable[str], codes: Any, known: Sequence[str]) -> np.ndarray:
    """Places among `known`, (n,) int64, of texts that are given by their codes (n,); -1 stays."""
    place = {text: number for number, text in enumerate(known)}
    found = np.array([*(place.get(text, -2) for text in texts), -1])
    return np.asarray(found[np.asarray(codes)])


def read_cells(
    path: Path | None, form: ReadingRules, *, columns: Collection[str] | None = None
) -> Cells:
    """The cells of a CSV file, of a Parquet file (its name ends with .parquet), or of the given
    data frame if there is no path.

    form: how the cells are written: separator, decimal, encoding and missing marks.
    columns: of new rows, which are judged one by one; None: all columns, and the first cell that
        is refused ends the reading.

    Raises DataError with one line.
    """
    name = FRAME if path is None else str(path)
    try:
        found = _written(path, form)
        named = _named(found)
    except UnicodeError as error:
        raise DataError(f"{name}: not {form.encoding}: {_encoding(error)}") from error
    except (OSError, ValueError, LookupError, csv.Error) as error:
        raise DataError(f"{name}: {reason_of(error)}") from error
    except (EOFError, RuntimeError, zlib.error, zipfile.BadZipFile, lzma.LZMAError) as error:
        raise DataError(f"{name}: cannot be unpacked: {error}") from error
    import pandas as pd

    marks = {"", *MISSING_MARKS, *form.missing_marks}
    read = {
        column: _stripped(*found.columns[place], marks)
        for column, place in named.items()
        if columns is None or column in columns
    }
    if not len(found.lines):
        raise DataError(f"{name}: no records, only names of columns")
    numbers = tuple(number for mark in marks if not np.isnan(number := number_of(mark)))
    frame = pd.DataFrame(read, index=found.lines)
    refused = None if columns is None else dict[int, str]()
    unread = tuple(column for column in named if column not in read)
    return Cells(name, frame, numbers, form.decimal, found.separator, refused, unread)


def _encoding(error: UnicodeError) -> str:
    """What may read a file that is not in the encoding that was said."""
    raw = error.object if isinstance(error, UnicodeDecodeError) else b""
    try:
        raw.decode("cp1252")
        return f"{pasted('data.encoding', 'cp1252')} reads a file of Windows"
    except UnicodeDecodeError:
        return f"{pasted('data.encoding', 'latin-1')} reads any file"


def _written(path: Path | None, form: ReadingRules) -> Written:
    if path is None:
        frame = _given.get()
        if frame is None:
            raise FedprivError(
                "data.path=null: the path of a table, or fedpriv.run(..., frame=...)"
            )
        return written(frame, form.decimal or POINT)
    noted(path)
    if path.suffix.lower() in (".parquet", ".pq"):
        return read_parquet(path, decimal=form.decimal or POINT)
    utf8 = codecs.lookup(form.encoding).name == "utf-8"  # some programs begin it with a mark
    with _unpacked(path) as raw:
        if utf8:
            _refuse_binary(raw.read(256))
            raw.seek(0)
        encoding = "utf-8-sig" if utf8 else form.encoding
        with io.TextIOWrapper(raw, encoding=encoding, newline="") as text:
            return _csv(text, form)


@contextmanager
def _unpacked(path: Path) -> Iterator[BinaryIO]:
    """An open file, unpacked if its name says that it is compressed. Raises ValueError for one that
    unpacks to too much."""
    suffix = path.suffix.lower()
    with opened(path, MOST_BYTES) as file:
        if suffix == ".zip":
            archive = zipfile.ZipFile(file)
            inside = [one for one in archive.infolist() if not one.is_dir()]
            names = [one for one in inside if not one.filename.startswith("__MACOSX/")]
            if len(names) != 1:
                raise ValueError(f"{len(names)} files are inside; unpack it, and name one")
            yield _bounded(archive.open(names[0]))
        else:
            yield _bounded(UNPACK[suffix](file)) if suffix in UNPACK else file


def _bounded(packed: Any) -> io.BytesIO:
    raw = packed.read(MOST_UNPACKED + 1)
    if len(raw) > MOST_UNPACKED:
        raise ValueError(f"it unpacks to more than {MOST_UNPACKED} bytes")
    return io.BytesIO(raw)


def _refuse_binary(head: bytes) -> None:
    """Raise ValueError for the head of a file that is no text in UTF-8."""
    for start, what in BINARY.items():
        if head.startswith(start):
            raise ValueError(f"not a text file but {what}")
    zeros = [head[place::2].count(0) for place in (0, 1)]
    if head[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        raise ValueError(f"not utf-8: {pasted('data.encoding', 'utf-16')} reads it")
    if max(zeros) > len(head) / 4 > min(zeros):
        order = "be" if zeros[0] > zeros[1] else "le"
        raise ValueError(f"not utf-8: {pasted('data.encoding', f'utf-16-{order}')} reads it")


def _csv(file: io.TextIOWrapper, form: ReadingRules) -> Written:
    """The texts of a CSV file. Raises ValueError for rows of another length than the first line."""
    first = file.readline()
    said = re.fullmatch(r"sep=(.)\s*", first)  # as Excel begins some files
    if said is None:
        file.seek(0)
    unquoted = re.sub(r'"[^"]*"', "", first)
    found = said[1] if said else max(SEPARATORS, key=unquoted.count)
    separator = form.separator or found
    rows = csv.reader(file, delimiter=separator, skipinitialspace=True, strict=True)
    names = next(rows, [])
    lines = array("q")
    whole = _whole_rows(rows, len(names), lines, before=int(said is not None))
    places: list[dict[str, int]] = [{} for _ in names]
    codes = [array("q") for _ in names]
    while some := list(islice(whole, ROWS)):
        for cells, place, code in zip(zip(*some), places, codes):
            code.extend([place.setdefault(text, len(place)) for text in cells])
    columns = [(np.array(code), list(place)) for code, place in zip(codes, places)]
    return Written(names, columns, np.array(lines), separator)


def _whole_rows(rows: Any, width: int, lines: array[int], before: int) -> Iterator[list[str]]:
    """The rows of a reader. Writes down the line of each. Raises ValueError for a row of another
    width, and for blank lines before a row.

    before: number of lines that the reader has not counted.
    """
    last, blank = rows.line_num, False
    for row in rows:
        line, last = last + 1 + before, rows.line_num
        empty = not row or (len(row) == width and not "".join(row).strip())
        if not empty and (blank or len(row) != width):
            found = "a blank line before it" if blank else f"{len(row)} cells"
            raise ValueError(f"line {line}: {found}; the first line has {width} cells")
        blank = empty
        if not empty:
            lines.append(line)
            yield row


def _named(found: Written) -> dict[str, int]:
    """The place of each column by its stripped name. Columns without a name are left out if they
    come first, where R and pandas write the number of the row, or if they are empty. Raises
    ValueError for other names that are none, and for two that are not different."""
    names = [" ".join(name.split()) for name in found.names]
    if not 0 < len(names) <= MOST_COLUMNS:
        raise ValueError(f"line 1: {len(names)} columns; from 1 to {MOST_COLUMNS} are read")
    if all(re.fullmatch(r"[-+]?[\d.,]+", name) for name in names):
        raise ValueError("line 1 has numbers where the names of the columns are expected")
    kept: dict[str, int] = {}
    folded: set[str] = set()
    for place, name in enumerate(names):
        if UNNAMED.fullmatch(name):
            if place == 0 or not "".join(found.columns[place][1]).strip():
                continue
            raise ValueError(f"line 1: column {place + 1} has no name")
        if not name.isprintable():
            raise ValueError(f"line 1: column {place + 1}: {name!r:.60} is no printable name")
        if name.casefold() in folded:
            raise ValueError(f"line 1: two columns have the name {name:.60}, in any case")
        folded.add(name.casefold())
        kept[name] = place
    if not kept:
        raise ValueError("line 1: no column has a name")
    return kept


def _stripped(codes: np.ndarray, texts: list[str], marks: set[str]) -> Any:
    """A categorical column of stripped texts. A mark has no category."""
    import pandas as pd

    stripped = [text.strip() for text in texts]
    names = sorted(set(stripped) - marks)
    new = places_of(stripped, codes, names)
    return pd.Categorical.from_codes(np.maximum(new, -1), pd.Index(names, dtype=object))
