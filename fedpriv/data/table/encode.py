"""Cells as features and labels, row by row, by the rules of a schema."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedpriv.data.table.read import Cells
from fedpriv.data.table.schema import CLASSIFICATION, REGRESSION, Category, Number, Schema
from fedpriv.data.table.settings import FILL, REFUSE, ReadingRules, TableSettings

EVENTS = ("0", "1", "false", "true", "0.0", "1.0")
"""Texts of an event column: no and yes in turn."""


@dataclass(frozen=True)
class Encoded:
    """The records of a table, in the order of the file.

    x: (n, d) float32, not scaled yet; NaN where an unscaled number is missing.
    y: (n,) or (n, 2), as `Records.y`; any value where the row is no record.
    kept: (n,) bool: rows that are records.
    notes: what was left out, filled or cut, with the number of rows.
    """

    x: np.ndarray
    y: np.ndarray
    kept: np.ndarray
    notes: tuple[str, ...]


def encode(cells: Cells, schema: Schema, table: TableSettings) -> Encoded:
    """Features and labels of all rows. Raises DataError for a cell that the table's rules refuse.

    table: whether missing features, missing labels and owners, and values outside of lists and
        ranges are refused, dropped, filled or accepted.
    """
    notes: list[str] = []
    kept = np.ones(len(cells.frame), dtype=bool)
    for column in (*schema.label.columns, schema.user, schema.silo):
        if column is not None:
            kept &= _there(cells, column, table.incomplete, "data.incomplete=drop", notes)
    y = _labels(cells, schema, table, notes)
    x, whole = features_of(cells, schema, table, notes)
    return Encoded(x, y, kept & whole, tuple(notes))


def features_of(
    cells: Cells, schema: Schema, table: ReadingRules, notes: list[str]
) -> tuple[np.ndarray, np.ndarray]:
    """`Encoded.x`, and which rows have all that the rules ask for, (n,) bool."""
    kept = np.ones(len(cells.frame), dtype=bool)
    columns = []
    for feature in schema.features:
        if isinstance(feature, Number):
            values = _number(cells, feature, table, notes)
        else:
            values = _category(cells, feature, table, notes)
        columns.append(values.astype(np.float32))
        ways = "data.missing=fill fills it, data.missing=drop"
        kept &= _there(cells, feature.name, table.missing, ways, notes)
    return np.hstack(columns), kept


def _there(cells: Cells, column: str, rule: str, ways: str, notes: list[str]) -> np.ndarray:
    """Which rows may stay, (n,) bool, as far as missing cells of this column decide."""
    missing = cells.frame[column].isna().to_numpy()
    if not missing.any():
        return ~missing
    if rule == REFUSE:
        cells.refuse_rows(column, missing, "a missing value", f"{ways} leaves the row out")
        return ~missing
    done = "filled" if rule == FILL else "left out"
    notes.append(f"{int(missing.sum())} rows without {column} are {done}")
    return ~missing | (rule == FILL)


def _within(
    cells: Cells, column: str, bounds: tuple[float, float], table: ReadingRules, notes: list[str]
) -> np.ndarray:
    """A column of numbers (n,), refused or cut where they are out of bounds."""
    values = cells.numbers(column)
    low, high = bounds
    beyond = (values < low) | (values > high)
    if beyond.any():
        if table.outside == REFUSE:
            allowed = f"outside {low:g} to {high:g}"
            cells.refuse_rows(column, beyond, allowed, "data.outside=accept cuts it")
        else:
            notes.append(f"column {column}: {int(beyond.sum())} values are cut to the range")
    return np.asarray(np.clip(values, low, high))


def _to_unit(values: np.ndarray, bounds: tuple[float, float]) -> np.ndarray:
    """Values with the bounds at -1 and 1."""
    low, high = bounds
    return np.asarray((values - low) / (high - low) * 2 - 1)


def _number(cells: Cells, feature: Number, table: ReadingRules, notes: list[str]) -> np.ndarray:
    """(n, 1): a missing number is 0, the middle of the range, or NaN where there is no range."""
    if feature.range is None:
        return cells.numbers(feature.name)[:, None]
    values = _within(cells, feature.name, feature.range, table, notes)
    return np.where(np.isnan(values), 0.0, _to_unit(values, feature.range))[:, None]


def _category(cells: Cells, feature: Category, table: ReadingRules, notes: list[str]) -> np.ndarray:
    """(n, k): a 0/1 feature for each category."""
    places = cells.places(feature.name, feature.values)
    unknown = places == -2
    if unknown.any():
        if table.outside == REFUSE:
            allowed = f"not in the public list ({', '.join(feature.values[:5])}, ...)"
            remedy = "data.outside=accept makes it no category"
            cells.refuse_rows(feature.name, unknown, allowed, remedy)
        else:
            notes.append(f"column {feature.name}: {int(unknown.sum())} values are in no category")
    return np.asarray(places[:, None] == np.arange(len(feature.values)))


def _labels(cells: Cells, schema: Schema, table: TableSettings, notes: list[str]) -> np.ndarray:
    """Labels as `Records.y`."""
    label = schema.label
    if label.problem == CLASSIFICATION:
        return _known(cells, label.column, label.classes)
    assert label.range is not None  # of all other labels
    if label.problem == REGRESSION:
        values = _within(cells, label.column, label.range, table, notes)
        return _to_unit(values, label.range).astype(np.float32)
    assert label.time is not None
    times = cells.numbers(label.time)
    if (times <= 0).any():
        raise cells.error(label.time, times <= 0, "a time of survival must be positive")
    ends = _within(cells, label.time, label.range, table, notes)
    happened = _known(cells, label.column, EVENTS) % 2
    longest = label.range[1]
    event = np.where(times > longest, 0.0, happened)  # nothing was seen to happen before the end
    return np.stack([event, ends / longest], axis=1).astype(np.float32)


def _known(cells: Cells, column: str, known: tuple[str, ...]) -> np.ndarray:
    """Places of a column's texts among those known. Raises DataError for any other."""
    shown = ", ".join(known[:6]) + (" ..." if len(known) > 6 else "")
    cells.refuse(column, lambda text: text not in known, f"allowed: {shown}")
    return cells.places(column, known)
