"""Reading a schema off the records: types, categories, the label's problem, users and silos.

Every rule is stated here and shown by `fedpriv data`. What it finds may tell something about the
records, so no epsilon covers it until a schema file says the same from public knowledge.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

import numpy as np

from fedpriv.data.table.owners import same_form
from fedpriv.data.table.read import Cells
from fedpriv.data.table.schema import (
    CLASSIFICATION,
    REGRESSION,
    SURVIVAL,
    Category,
    Label,
    Number,
    Schema,
)
from fedpriv.data.table.settings import DROP, KEEP, MERGE, REFUSE, TableSettings
from fedpriv.data.table.written import COMMA, DAY_FIRST, LARGEST, POINT, forms_of, number_of
from fedpriv.errors import ConfigError, DataError, require
from fedpriv.util.pasted import pasted

MOST_CATEGORIES = 50
"""A column with more different texts is left out, unless `data.categories` names it."""
MOST_NAMED_CATEGORIES = 1_000
FEW_NUMBERS = 10
"""A label of at most so many different whole numbers is a class."""
HARDLY_ANY = 0.01
FEW_ROWS = 10
"""A class is rare if one row has it, or fewer than FEW_ROWS rows and than HARDLY_ANY of all."""
NINES = re.compile(r"-9+")
"""A number that often stands for a missing one."""
SOME = 1_000
"""Texts of a column that show which sign is before decimals."""
EVENTS = {
    **dict.fromkeys(("0", "0.0", "false", "f", "no", "n"), 0),
    **dict.fromkeys(("1", "1.0", "true", "t", "yes", "y"), 1),
}
"""What the texts of an event column mean, in small letters."""
ONE_AND_TWO = (("1", "2"), ("1.0", "2.0"))
"""Texts of an event column in which 2 is the event, as R's Surv reads them."""
MOST_CLASSES = 1_000


def require_roles(cells: Cells, table: TableSettings) -> None:
    """Raise ConfigError for a column of the settings that does not exist or that has two roles."""
    columns = list(cells.frame.columns)
    shown = ", ".join(columns[:12]) + (" ..." if len(columns) > 12 else "")
    named = {"label": table.label, "time": table.time, "user": table.user, "silo": table.silo}
    roles = [*named.items(), *(("drop", one) for one in table.drop)]
    taken: dict[str, str] = {}
    for role, column in roles:
        if column is not None:
            key = f"data.{role}"
            if column not in columns:
                folded = {name.casefold(): name for name in columns}
                near = difflib.get_close_matches(column.casefold(), folded, n=1)
                new = folded[near[0]] if near else ""
                dropped = [*(one for one in table.drop if one != column), *([new] if new else [])]
                hint = pasted(key, dropped if role == "drop" else new)
                meant = f"; did you mean {hint} ?" if new else ""
                raise ConfigError(key, column, f"a column of {cells.name}: {shown}{meant}")
            allowed = f"another column than data.{taken.get(column)}"
            require(column not in taken, f"data.{role}", column, allowed)
            taken[column] = role
    for column in table.categories:
        free = column in columns and column not in taken
        allowed = f"a column of {cells.name} without another role"
        require(free, "data.categories", column, allowed)


def infer(cells: Cells, table: TableSettings, n_users: int, silos: tuple[str, ...]) -> Schema:
    """The schema of a table. Raises DataError for a column whose meaning is not clear.

    table: what the settings say about columns.
    n_users: number of users that the table names.
    silos: names of its silos.
    """
    taken = {table.label, table.time, table.user, table.silo, *table.drop}
    found = {
        name: _feature(cells, name, table)
        for name in map(str, cells.frame.columns)
        if name not in taken
    }
    features = tuple(one for one in found.values() if not isinstance(one, str))
    reasons = {name: one for name, one in found.items() if isinstance(one, str)}
    if not features:
        raise DataError(f"{cells.name}: no column is left for the features")
    label = _label(cells, table)
    read_off = [range_of(label)] if label.classes == () else [f"classes of {label.column}"]
    read_off += [f"categories of {one.name}" for one in features if isinstance(one, Category)]
    return Schema(
        features,
        label,
        n_users,
        user=table.user,
        silo=table.silo,
        silos=silos,
        unused=(*table.drop, *reasons),
        read_off=(*read_off, *(["names of silos"] if silos else []), "number of users"),
        decimal=cells.decimal or POINT,
        reasons=reasons,
    )


def range_of(label: Label) -> str:
    """The name of a label's range among what was read off the records."""
    what = "range" if label.scale is None else "range and scale"
    return f"{what} of {label.column if label.time is None else label.time}"


def decimal_of(cells: Cells) -> str:
    """The sign before decimals: the one by which more columns are numbers. Raises DataError where
    the columns do not decide."""
    points, commas, either = [], [], []
    for name in cells.frame.columns:
        texts = cells.texts(name)
        texts = texts[:: max(1, len(texts) // SOME)]
        by_point, by_comma = (
            np.array([number_of(text, sign) for text in texts]) for sign in (POINT, COMMA)
        )
        point, comma = ~np.isnan(by_point), ~np.isnan(by_comma)
        points += [name] * bool(2 * (point & ~comma).sum() > len(texts))
        commas += [name] * bool(2 * (comma & ~point).sum() > len(texts))
        different = point & comma & (by_point != by_comma)
        either += [text for text, odd in zip(texts, different) if odd and COMMA in text][:1]
    if either and not points and not commas and cells.separator not in (COMMA, None):
        ways = (pasted("data.decimal", sign) for sign in (POINT, COMMA))
        more, less = (f"{number_of(either[0], sign):g}" for sign in (POINT, COMMA))
        raise DataError(
            f"{cells.name}: {either[0]:.40} may be {more} ({next(ways)}) or {less} ({next(ways)})"
        )
    return COMMA if len(commas) > len(points) else POINT


def _feature(cells: Cells, name: str, table: TableSettings) -> Number | Category | str:
    """A column as a feature, or why it is left out."""
    named = name in table.categories
    texts = cells.texts(name)
    if not texts:
        return "no value in any row"
    if not named:
        numbers, missing = cells.read_numbers(name)
        date = None
        if np.isnan(numbers[~missing]).all() and (forms := forms_of(texts)):
            date = _date(cells, name, forms, table)
            numbers, missing = cells.read_numbers(name, date)
        known = np.abs(numbers) <= LARGEST
        if 2 * known.sum() >= (~missing).sum():
            _require_numbers(cells, name, table, known | missing, date)
            counts = known.all() and date is None and (np.diff(numbers) == 1).all()
            return "it counts the rows" if counts and len(numbers) > 2 else Number(name, date=date)
    most = MOST_NAMED_CATEGORIES if named else MOST_CATEGORIES
    leave_out = pasted("data.drop", [*table.drop, name])
    if len(texts) > most and named:
        less = pasted("data.categories", [one for one in table.categories if one != name])
        raise DataError(
            f"{cells.name}: column {name}: {len(texts)} different texts, more than {most}; "
            f"{less} {leave_out} leaves it out"
        )
    if len(texts) > most:
        way = pasted("data.categories", [*table.categories, name])
        return f"{len(texts)} different texts ({way} takes it)"
    cells.require_printable(name)
    rare = rare_texts(cells, name) if table.rare == DROP else ()
    return Category(name, tuple(text for text in texts if text not in rare) or tuple(texts))


def _date(cells: Cells, name: str, forms: Sequence[str], table: TableSettings) -> str:
    """The form of a column of dates. Raises DataError if days and months can be exchanged."""
    day_first = {form: form.startswith(DAY_FIRST) for form in forms}
    if len(set(day_first.values())) > 1 and table.day_first is None:
        text = cells.texts(name)[0]
        raise DataError(
            f"{cells.name}: column {name}: {text:.40} has the day first (data.day_first=true) or "
            "the month (data.day_first=false)"
        )
    return next((form for form in forms if day_first[form] == bool(table.day_first)), forms[0])


def _require_numbers(
    cells: Cells, name: str, table: TableSettings, sound: np.ndarray, date: str | None
) -> None:
    """Raise DataError for a text among numbers or dates, and for percents among other numbers."""
    what = "numbers" if date is None else "dates"
    texts = cells.frame[name].astype(str)
    if sound.all() and date is None:
        percent = texts.str.endswith("%").to_numpy()
        given = cells.frame[name].notna().to_numpy()
        if percent.any() and not percent[given].all():
            sound, what = ~(percent & given), "numbers without a percent sign"
            sound = sound if 2 * percent.sum() <= given.sum() else percent | ~given
    if sound.all():
        return
    text = str(cells.frame[name].iloc[int((~sound).argmax())])
    number = any(not np.isnan(number_of(text, sign)) for sign in (POINT, COMMA))
    mark = f"{pasted('data.missing_marks', [*table.missing_marks, text])} takes it as missing"
    alike = "most rows are written otherwise: write all in one form"
    ways = (
        alike if number or forms_of([text]) else mark,
        f"{pasted('data.categories', [*table.categories, name])} takes the column's texts",
        f"{pasted('data.drop', [*table.drop, name])} leaves the column out",
    )
    raise cells.error(name, ~sound, f"among {what}; {'; '.join(ways)}")


def rare_texts(cells: Cells, name: str) -> dict[str, int]:
    """The texts of a column that hardly any row has, and their numbers of rows."""
    number = cells.frame[name].value_counts()
    least = max(2, min(FEW_ROWS, HARDLY_ANY * len(cells.frame)))
    return {str(text): int(count) for text, count in number.items() if 0 < count < least}


def doubtful(cells: Cells, schema: Schema, table: TableSettings) -> list[str]:
    """What may be typing errors and missing values in what was read off the records, in lines."""
    found = []
    for feature in schema.features:
        where = f"column {feature.name}:"
        if isinstance(feature, Number):
            values = cells.numbers(feature.name, feature.date)
            low = np.nanmin(values)
            if NINES.fullmatch(f"{low:g}") and (values[values > low] >= 0).all():
                way = pasted("data.missing_marks", [*table.missing_marks, f"{low:g}"])
                rows = int((values == low).sum())
                found.append(f"{where} {low:g} in {rows} rows: {way} takes it as missing")
            continue
        if alike := similar_texts(feature.values):
            found.append(f"{where} {alike[0]} and {alike[1]} may be one category")
        rare = [text for text in rare_texts(cells, feature.name) if text in feature.values]
        if rare and 2 * len(rare) < len(feature.values):
            way = f"{pasted('data.rare', DROP)} leaves such categories out"
            found.append(f"{where} hardly any row has {', '.join(rare[:3])}: {way}")
    return found


def similar_texts(texts: Sequence[str]) -> tuple[str, str] | None:
    """Two texts that may mean the same, if there are."""
    first: dict[str, str] = {}
    pairs = ((first.setdefault(same_form(text), text), text) for text in texts)
    return next(((one, other) for one, other in pairs if one != other), None)


def _label(cells: Cells, table: TableSettings) -> Label:
    """The label of a table. Raises DataError for one that cannot be learned."""
    name = str(table.label)
    where = f"{cells.name}: column {name}"
    texts = cells.texts(name)
    if not texts:
        raise DataError(f"{where}: no label in any row")
    if table.time is not None:
        times = cells.numbers(table.time)
        longest = float(times[~np.isnan(times)].max(initial=0.0))
        if longest <= 0:
            raise DataError(f"{cells.name}: column {table.time}: no positive time of survival")
        events = _events(cells, name, texts, table)
        return Label(name, SURVIVAL, range=(0.0, longest), time=table.time, events=events)
    numbers = [number_of(text, cells.decimal or POINT) for text in texts]
    finite = bool(np.isfinite(numbers).all())
    few = len(texts) <= FEW_NUMBERS and all(map(float.is_integer, numbers))
    if table.problem == REGRESSION or (table.problem is None and finite and not few):
        values = cells.numbers(name)
        low, high = float(np.nanmin(values)), float(np.nanmax(values))
        if low == high:
            raise DataError(f"{where}: only one value, {low:g}: nothing can be learned")
        scale = float(np.nanmean(values)), float(np.nanstd(values))
        return Label(name, REGRESSION, range=(low, high), scale=scale)
    cells.require_printable(name)
    classes = _classes(cells, name, texts, table)
    order = dict(zip(texts, numbers))
    return Label(
        name, CLASSIFICATION, tuple(sorted(classes, key=order.__getitem__) if finite else classes)
    )


def _classes(
    cells: Cells, name: str, texts: Sequence[str], table: TableSettings
) -> tuple[str, ...]:
    """The classes of a label. Raises DataError for those that may be typing errors."""
    where = f"{cells.name}: column {name}"
    alike = similar_texts(texts)
    if alike is not None and table.similar_ids == REFUSE:
        one, two = (pasted("data.similar_ids", way) for way in (MERGE, KEEP))
        raise DataError(
            f"{where}: the classes {alike[0]:.40} and {alike[1]:.40} may be one: {one} makes them "
            f"one, {two} leaves two"
        )
    rare = rare_texts(cells, name)
    if rare and table.rare == REFUSE and len(texts) > 2:
        odd = cells.frame[name].isin(list(rare)).to_numpy()
        keep, drop = (pasted("data.rare", way) for way in (KEEP, DROP))
        numeric = not np.isnan([number_of(one) for one in texts]).any()
        as_numbers = f"; {pasted('data.problem', REGRESSION)} takes numbers" if numeric else ""
        raise cells.error(
            name,
            odd,
            f"a class that hardly any row has: {keep} keeps it, {drop} leaves such rows out"
            f"{as_numbers}",
        )
    first: dict[str, str] = {}
    for text in texts:
        if table.rare != DROP or text not in rare:
            first.setdefault(same_form(text) if table.similar_ids == MERGE else text, text)
    classes = tuple(first.values())
    if not 2 <= len(classes) <= MOST_CLASSES:
        raise DataError(
            f"{where}: {len(classes)} different labels; 2 to {MOST_CLASSES} are classes"
        )
    return classes


def _events(cells: Cells, name: str, texts: Sequence[str], table: TableSettings) -> tuple[str, ...]:
    """The texts of an event column, the last one for an event that happened; none where they say it
    themselves."""
    event = table.event
    if event is not None:
        known = ", ".join(texts[:6])
        require(event in texts, "data.event", event, f"a text of column {name}: {known}")
        return (*(text for text in texts if text != event), event)
    if all(text.casefold() in EVENTS for text in texts):
        return ()
    if tuple(texts) in ONE_AND_TWO:
        return tuple(texts)
    known_texts = [text for text in texts if text.casefold() in EVENTS]
    odd = [text for text in texts if text not in known_texts] if known_texts else texts
    ways = " or ".join(pasted("data.event", text) for text in texts[:3])
    wrong = cells.frame[name].isin(odd).to_numpy()
    raise cells.error(name, wrong, f"yes or no is expected; {ways} says which one is an event")
