"""Reading a schema off the records: types, categories, the label's problem, users and silos.

Every rule is stated here and shown by `fedpriv data`. What it finds may tell something about the
records, so no epsilon covers it until a schema file says the same from public knowledge.
"""

from __future__ import annotations

import math
import re

import numpy as np

from fedpriv.data.table.owners import same_form
from fedpriv.data.table.read import Cells, number_of
from fedpriv.data.table.schema import (
    CLASSIFICATION,
    REGRESSION,
    SURVIVAL,
    Category,
    Label,
    Number,
    Schema,
)
from fedpriv.data.table.settings import TableSettings
from fedpriv.errors import DataError, require

MOST_CATEGORIES = 50
"""A column with more different texts is refused, unless `data.categories` names it."""
MOST_NAMED_CATEGORIES = 1_000
DECIMAL_COMMA = re.compile(r"[-+]?\d+(,\d+)+")
"""A number with commas, before decimals or between thousands."""
FEW_NUMBERS = 10
"""A label of at most so many different whole numbers is a class."""
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
            require(column in columns, f"data.{role}", column, f"a column of {cells.name}: {shown}")
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
    features = tuple(
        _feature(cells, str(name), named=name in table.categories)
        for name in cells.frame.columns
        if name not in taken
    )
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
        unused=tuple(table.drop),
        read_off=(*read_off, *(["names of silos"] if silos else []), "number of users"),
    )


def range_of(label: Label) -> str:
    """The name of a label's range among what was read off the records."""
    return f"range of {label.column if label.time is None else label.time}"


def _feature(cells: Cells, name: str, *, named: bool) -> Number | Category:
    column = cells.frame[name]
    leave_out = f"leave it out with data.drop=[{name}]"
    if column.isna().all():
        raise DataError(f"{cells.name}: column {name}: no value in any row; {leave_out}")
    if column.dtype == np.float64:
        return Number(name)
    texts = tuple(map(str, column.cat.categories))
    numbers = {text for text in texts if math.isfinite(number_of(text))}
    commas = {text for text in texts if DECIMAL_COMMA.fullmatch(text)}
    other = f"name the column in data.categories, or {leave_out}"
    if not named and commas and len(commas) + len(numbers) == len(texts):
        remedy = f"a number with a comma: data.decimal=',' reads it; or {other}"
        cells.refuse(name, commas.__contains__, remedy)
    if not named and numbers and 2 * column.isin(numbers).sum() >= column.notna().sum():
        remedy = f"among numbers; add it to data.missing_marks, or {other}"
        cells.refuse(name, lambda text: text not in numbers, remedy)
    most = MOST_NAMED_CATEGORIES if named else MOST_CATEGORIES
    if len(texts) > most:
        raise DataError(
            f"{cells.name}: column {name}: {len(texts)} different texts, more than {most}; {other}"
        )
    return Category(name, texts)


def _label(cells: Cells, table: TableSettings) -> Label:
    """The label of a table. Raises DataError for one that cannot be learned."""
    name = str(table.label)
    where = f"{cells.name}: column {name}"
    column = cells.frame[name]
    if column.isna().all():
        raise DataError(f"{where}: no label in any row")
    if table.time is not None:
        times = cells.numbers(table.time)
        longest = float(times[~np.isnan(times)].max(initial=0.0))
        if longest == 0:
            raise DataError(f"{cells.name}: column {table.time}: no positive time of survival")
        return Label(name, SURVIVAL, range=(0.0, longest), time=table.time)
    texts = [] if column.dtype == np.float64 else list(map(str, column.cat.categories))
    numbers = [number_of(text) for text in texts]
    finite = bool(np.isfinite(numbers).all())
    few = len(texts) <= FEW_NUMBERS and all(map(float.is_integer, numbers))
    if table.problem == REGRESSION or (table.problem is None and finite and not few):
        values = cells.numbers(name)
        low, high = float(np.nanmin(values)), float(np.nanmax(values))
        if low == high:
            raise DataError(f"{where}: only one value, {low:g}: nothing can be learned")
        return Label(name, REGRESSION, range=(low, high))
    if not 2 <= len(texts) <= MOST_CLASSES:
        raise DataError(f"{where}: {len(texts)} different labels; from 2 to {MOST_CLASSES} classes")
    first: dict[str, str] = {}
    for text in texts:
        other = first.setdefault(same_form(text), text)
        if other != text:
            raise DataError(
                f"{where}: the classes {other:.40} and {text:.40} may be one: write one"
            )
    return Label(name, CLASSIFICATION, tuple(sorted(texts, key=float) if finite else texts))
