"""Cells as features and labels, row by row, by the rules of a schema."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedpriv.data.table.read import Cells, number_of
from fedpriv.data.table.schema import (
    CLASSIFICATION,
    REGRESSION,
    Category,
    Label,
    Number,
    Schema,
)
from fedpriv.errors import DataError

REFUSE, FILL, DROP, ACCEPT = "refuse", "fill", "drop", "accept"
EVENTS = {"0": 0.0, "1": 1.0, "false": 0.0, "true": 1.0, "0.0": 0.0, "1.0": 1.0}
"""Texts of an event column."""


@dataclass(frozen=True)
class Rules:
    """What happens to cells that do not fit.

    missing: a feature is missing: `REFUSE` the file, `FILL` (a number with the middle of its range
        or the mean of the training records, a category with none), or `DROP` the row.
    incomplete: a label, a user or a silo is missing: `REFUSE` or `DROP` the row.
    outside: a category that is not listed, or a number beyond its range: `REFUSE`, or `ACCEPT` (as
        no category, or cut to the range).
    """

    missing: str = REFUSE
    incomplete: str = REFUSE
    outside: str = REFUSE


@dataclass(frozen=True)
class Encoded:
    """The records of a table, in the order of the file.

    x: (n, d) float32; NaN where an unscaled number is missing.
    y: (n,) or (n, 2), as `Records.y`.
    kept: (n,) bool: rows that are records.
    notes: what was left out, filled or cut, with the number of rows.
    """

    x: np.ndarray
    y: np.ndarray
    kept: np.ndarray
    notes: tuple[str, ...]


def encode(cells: Cells, schema: Schema, rules: Rules) -> Encoded:
    """Features and labels of all rows. Raises DataError for a cell that the rules refuse."""
    n = len(cells.frame)
    x = np.empty((n, schema.width), dtype=np.float32)
    kept = np.ones(n, dtype=bool)
    notes: list[str] = []
    y, labelled = _labels(cells, schema.label, rules)
    kept &= labelled
    if not labelled.all():
        notes.append(f"{int((~labelled).sum())} rows without a label are left out")
    place = 0
    for feature in schema.features:
        end = place + feature.width
        if isinstance(feature, Number):
            missing = _number(cells, feature, rules, x[:, place], notes)
        else:
            missing = _category(cells, feature, rules, x[:, place:end], notes)
        place = end
        if not missing.any():
            continue
        if rules.missing == REFUSE:
            raise cells.error(
                feature.name,
                missing,
                "a missing value; data.missing=fill fills it, data.missing=drop leaves the row out",
            )
        done = "filled" if rules.missing == FILL else "the rows are left out"
        notes.append(f"column {feature.name}: {int(missing.sum())} values are missing: {done}")
        if rules.missing == DROP:
            kept &= ~missing
    return Encoded(x, y, kept, tuple(notes))


def _number(
    cells: Cells, feature: Number, rules: Rules, out: np.ndarray, notes: list[str]
) -> np.ndarray:
    """Write a column of numbers into `out` (n,). Returns which are missing, (n,) bool."""
    column = cells.frame[feature.name]
    if column.dtype != np.float64:
        if column.isna().all():
            values = np.full(len(column), np.nan)
        else:
            raise cells.error(feature.name, _first_text(column), "a number is expected")
    else:
        values = np.asarray(column.to_numpy())
    missing = np.asarray(np.isnan(values))
    if feature.range is None:
        out[:] = values
        return missing
    low, high = feature.range
    beyond = (values < low) | (values > high)
    if beyond.any():
        if rules.outside == REFUSE:
            raise cells.error(
                feature.name,
                beyond,
                f"outside the range {low:g} to {high:g}; data.outside=accept cuts it",
            )
        notes.append(f"column {feature.name}: {int(beyond.sum())} values are cut to the range")
    out[:] = np.where(missing, 0.0, to_unit(np.clip(values, low, high), feature.range))
    return missing


def to_unit(values: np.ndarray, bounds: tuple[float, float]) -> np.ndarray:
    """Values with the bounds at -1 and 1."""
    low, high = bounds
    return np.asarray((values - low) / (high - low) * 2 - 1)


def _category(
    cells: Cells, feature: Category, rules: Rules, out: np.ndarray, notes: list[str]
) -> np.ndarray:
    """Write a column of categories into `out` (n, k). Returns which are missing, (n,) bool."""
    column = cells.frame[feature.name]
    if column.dtype == np.float64:
        raise DataError(
            f"{cells.name}: column {feature.name}: numbers, where one of "
            f"{', '.join(feature.values[:5])} is expected"
        )
    place = {value: number for number, value in enumerate(feature.values)}
    texts = [str(text) for text in column.cat.categories]
    codes = np.array([*(place.get(text, -2) for text in texts), -1])[column.cat.codes.to_numpy()]
    unknown = codes == -2
    if unknown.any():
        if rules.outside == REFUSE:
            raise cells.error(
                feature.name,
                unknown,
                f"not in the public list ({', '.join(feature.values[:5])}"
                f"{' ...' if len(feature.values) > 5 else ''}); data.outside=accept makes it no "
                "category",
            )
        notes.append(f"column {feature.name}: {int(unknown.sum())} values are in no category")
    out[:] = 0.0
    rows = np.flatnonzero(codes >= 0)
    out[rows, codes[rows]] = 1.0
    return np.asarray(codes == -1)


def _labels(cells: Cells, label: Label, rules: Rules) -> tuple[np.ndarray, np.ndarray]:
    """Labels as `Records.y`, and which rows have one, (n,) bool."""
    encoders: dict[str, Callable[[], tuple[np.ndarray, np.ndarray]]] = {
        CLASSIFICATION: lambda: _classes(cells, label),
        REGRESSION: lambda: _targets(cells, label, rules),
    }
    y, there = encoders.get(label.problem, lambda: _survival(cells, label, rules))()
    if not there.all() and rules.incomplete == REFUSE:
        name = label.column if cells.frame[label.column].isna().any() else label.columns[-1]
        wrong = cells.frame[name].isna().to_numpy()
        raise cells.error(
            name, wrong, "no label; data.incomplete=drop leaves rows without a label out"
        )
    return y, there


def _classes(cells: Cells, label: Label) -> tuple[np.ndarray, np.ndarray]:
    codes = _coded(cells, label.column, {name: place for place, name in enumerate(label.classes)})
    return np.where(np.isnan(codes), 0, codes).astype(np.int64), ~np.isnan(codes)


def _targets(cells: Cells, label: Label, rules: Rules) -> tuple[np.ndarray, np.ndarray]:
    column = cells.frame[label.column]
    if column.dtype != np.float64:
        texts = [str(text) for text in column.cat.categories]
        numbers = np.array([*map(number_of, texts), np.nan])
        if np.isnan(numbers[:-1]).any():
            raise cells.error(label.column, _first_text(column), "a number is expected")
        values = numbers[column.cat.codes.to_numpy()]
    else:
        values = column.to_numpy()
    assert label.range is not None  # of every regression
    low, high = label.range
    beyond = (values < low) | (values > high)
    if beyond.any() and rules.outside == REFUSE:
        raise cells.error(
            label.column, beyond, f"outside {low:g} to {high:g}; data.outside=accept cuts it"
        )
    there = ~np.isnan(values)
    unit = to_unit(np.clip(np.where(there, values, low), low, high), label.range)
    return unit.astype(np.float32), there


def _survival(cells: Cells, label: Label, rules: Rules) -> tuple[np.ndarray, np.ndarray]:
    assert label.time is not None  # of every survival label
    assert label.range is not None
    event = _coded(cells, label.column, EVENTS)
    time = cells.frame[label.time]
    if time.dtype != np.float64:
        raise cells.error(label.time, _first_text(time), "a number is expected")
    times = time.to_numpy()
    if (times <= 0).any():
        raise cells.error(label.time, times <= 0, "a time of survival must be positive")
    longest = label.range[1]
    beyond = times > longest
    if beyond.any() and rules.outside == REFUSE:
        raise cells.error(
            label.time,
            beyond,
            f"longer than {longest:g}; data.outside=accept ends the observation there",
        )
    event = np.where(beyond, 0.0, event)  # nothing was seen to happen before the end
    there = ~np.isnan(event) & ~np.isnan(times)
    y = np.stack([event, np.minimum(times, longest) / longest], axis=1)
    return np.where(there[:, None], y, 0.5).astype(np.float32), there


def _coded(cells: Cells, name: str, codes: dict[str, float] | dict[str, int]) -> np.ndarray:
    """Numbers of the texts of a column, (n,) float64, NaN where one is missing."""
    column = cells.frame[name]
    texts = [str(text) for text in column.cat.categories]
    number = np.array([*(codes.get(text, np.inf) for text in texts), np.nan], dtype=np.float64)
    found = np.asarray(number[column.cat.codes.to_numpy()])
    if np.isinf(found).any():
        shown = ", ".join(list(codes)[:6]) + (" ..." if len(codes) > 6 else "")
        raise cells.error(name, np.isinf(found), f"allowed: {shown}")
    return found


def _first_text(column: object) -> np.ndarray:
    """Which cells of a categorical column are no numbers, (n,) bool."""
    texts = [str(text) for text in column.cat.categories]  # type: ignore[attr-defined]
    codes: np.ndarray = column.cat.codes.to_numpy()  # type: ignore[attr-defined]
    wrong = [place for place, text in enumerate(texts) if np.isnan(number_of(text))]
    found = np.isin(codes, wrong)
    return found if found.any() else codes >= 0
