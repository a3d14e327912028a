"""Cells as features and labels, row by row, by the rules of a schema."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedpriv.data.table.infer import EVENTS
from fedpriv.data.table.owners import same_form
from fedpriv.data.table.read import Cells
from fedpriv.data.table.schema import (
    CLASSIFICATION,
    REGRESSION,
    SURVIVAL,
    Category,
    Number,
    Schema,
    range_text,
    some_of,
)
from fedpriv.data.table.settings import (
    ACCEPT,
    DROP,
    FILL,
    MERGE,
    REFUSE,
    ReadingRules,
    TableSettings,
)
from fedpriv.util.pasted import pasted

FEATURE = "data.missing=fill fills it, data.missing=drop leaves the row out"
OWNER = "data.incomplete=drop leaves the row out"
"""What the settings can do about a missing feature, and about a missing label, user or silo."""


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


def encode(cells: Cells, schema: Schema, table: TableSettings, rules: ReadingRules) -> Encoded:
    """Features and labels of all rows. Raises DataError for a cell that the table's rules refuse.

    table: whether missing labels and owners, and unknown classes are refused or dropped.
    rules: whether missing features, and values outside of lists and ranges are refused, dropped,
        filled or accepted.
    """
    notes: list[str] = []
    kept = np.ones(len(cells.frame), dtype=bool)
    for column in (schema.user, schema.silo):
        if column is not None:
            empty = cells.frame[column].isna().to_numpy()
            kept &= _there(cells, column, empty, OWNER, table.incomplete, notes)
    y, known = _labels(cells, schema, table, rules, notes)
    x, whole = features_of(cells, schema, rules, notes)
    return Encoded(x, y, kept & known & whole, tuple(notes))


def features_of(
    cells: Cells, schema: Schema, table: ReadingRules, notes: list[str]
) -> tuple[np.ndarray, np.ndarray]:
    """`Encoded.x`, and which rows have all that the rules ask for, (n,) bool."""
    kept = np.ones(len(cells.frame), dtype=bool)
    columns = []
    for feature in schema.features:
        if isinstance(feature, Number):
            values, missing = _number(cells, feature, table, notes)
        else:
            values, missing = _category(cells, feature, table, notes)
        columns.append(values.astype(np.float32))
        kept &= _there(cells, feature.name, missing, FEATURE, table.missing, notes)
    return np.hstack(columns), kept


def _there(
    cells: Cells, column: str, missing: np.ndarray, ways: str, rule: str, notes: list[str]
) -> np.ndarray:
    """Which rows may stay, (n,) bool, as far as missing cells of this column decide.

    ways: what the settings can do about it.
    """
    if not missing.any():
        return ~missing
    if rule == REFUSE:
        cells.refuse_rows(column, missing, "a missing value", ways)
        return ~missing
    done = "filled" if rule == FILL else "left out"
    notes.append(f"{int(missing.sum())} rows without {column} are {done}")
    return ~missing | (rule == FILL)


def refuse_or_note(
    cells: Cells,
    column: str,
    wrong: np.ndarray,
    what: str,
    accepted: tuple[str, str],
    outside: str,
    notes: list[str],
) -> None:
    """Refuse the rows of `wrong` (n,) bool, whose values are outside of a public list or range; or
    note how many there are.

    what: why a row is refused.
    accepted: what `data.outside=accept` does with such a value, and what the value is then.
    outside: the rule, `data.outside`.
    """
    does, becomes = accepted
    if outside == REFUSE:
        cells.refuse_rows(column, wrong, what, f"{pasted('data.outside', ACCEPT)} {does}")
    elif wrong.any():
        notes.append(f"column {column}: {int(wrong.sum())} values are {becomes}")


def _within(
    cells: Cells,
    column: str,
    values: np.ndarray,
    bounds: tuple[float, float],
    date: str | None,
    table: ReadingRules,
    notes: list[str],
) -> np.ndarray:
    """Numbers of a column (n,), refused or cut where they are out of bounds."""
    beyond = (values < bounds[0]) | (values > bounds[1])
    what = f"outside {range_text(bounds, date)}"
    ways = ("cuts it", "cut to the range")
    refuse_or_note(cells, column, beyond, what, ways, table.outside, notes)
    return np.asarray(np.clip(values, *bounds))


def _number(
    cells: Cells, feature: Number, table: ReadingRules, notes: list[str]
) -> tuple[np.ndarray, np.ndarray]:
    """(n, 1), and which are missing: 0, the middle of the range or a released mean, or NaN where
    there is no range."""
    values = cells.numbers(feature.name, feature.date)
    missing = cells.read_numbers(feature.name, feature.date)[1]
    if feature.range is None:
        return values[:, None], missing
    low, high = feature.range
    inside = _within(cells, feature.name, values, feature.range, feature.date, table, notes)
    if feature.scale is None:
        scaled = (inside - low) / (high - low) * 2 - 1
    else:
        scaled = (inside - feature.scale[0]) / feature.scale[1]
    return np.where(np.isnan(scaled), 0.0, scaled)[:, None], missing


def _category(
    cells: Cells, feature: Category, table: ReadingRules, notes: list[str]
) -> tuple[np.ndarray, np.ndarray]:
    """(n, k): a 0/1 feature for each category; and which are missing."""
    cells.require_printable(feature.name)
    places = cells.places(feature.name, feature.values)
    what = f"not in the public list ({some_of(feature.values)})"
    accepted = ("makes it no category", "in no category")
    refuse_or_note(cells, feature.name, places == -2, what, accepted, table.outside, notes)
    return np.asarray(places[:, None] == np.arange(len(feature.values))), places == -1


def _labels(
    cells: Cells, schema: Schema, table: TableSettings, rules: ReadingRules, notes: list[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Labels as `Records.y`, and which rows have one."""
    label = schema.label
    if label.problem == CLASSIFICATION:
        form = same_form if table.similar_ids == MERGE else str
        places = cells.places(label.column, label.classes, form)
        return places, _labelled(cells, label.column, places, label.classes, table, notes)
    assert label.range is not None  # of all other labels
    measured = label.time or label.column
    values = cells.numbers(measured)
    there = _there(cells, measured, np.isnan(values), OWNER, table.incomplete, notes)
    if label.problem == SURVIVAL:
        cells.refuse_rows(measured, values < 0, "a time of survival must not be negative")
    inside = _within(cells, measured, values, label.range, None, rules, notes)
    origin, unit = label.origin_and_unit
    standard = ((inside - origin) / unit).astype(np.float32)
    if label.problem == REGRESSION:
        return standard, there
    events = label.events or tuple(EVENTS)
    places = cells.places(label.column, events, str if label.events else str.casefold)
    there &= _labelled(cells, label.column, places, events, table, notes)
    means = [*map(EVENTS.get, events)] if not label.events else [0] * (len(events) - 1) + [1]
    happened = np.array([*means, 0, 0])[places]
    event = np.where(values > unit, 0.0, happened)  # nothing was seen to happen before the end
    return np.stack([event, standard], axis=1).astype(np.float32), there


def _labelled(
    cells: Cells,
    column: str,
    places: np.ndarray,
    known: tuple[str, ...],
    table: TableSettings,
    notes: list[str],
) -> np.ndarray:
    """Which rows have a label that is known. Refuses any other, unless such rows are left out."""
    there = _there(cells, column, places == -1, OWNER, table.incomplete, notes)
    unknown = places == -2
    if not unknown.any():
        return there
    if table.rare != DROP:
        shown = ", ".join(known[:6]) + (" ..." if len(known) > 6 else "")
        remedy = f"{pasted('data.rare', DROP)} leaves such rows out"
        cells.refuse_rows(column, unknown, f"allowed: {shown}", remedy)
    notes.append(f"{int(unknown.sum())} rows of another {column} are left out")
    return np.asarray(there & ~unknown)
