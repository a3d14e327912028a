"""Reading a schema off the records: types, categories, the label's problem, users and silos.

Every rule is stated here and shown by `fedpriv data`. What it finds may tell something about the
records, so no epsilon covers it until a schema file says the same from public knowledge.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from fedpriv.data.table.people import same_form
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
from fedpriv.errors import DataError, require

MOST_CATEGORIES = 50
"""A column with more different texts is refused, unless `data.categories` names it."""
MOST_NAMED_CATEGORIES = 1_000
DECIMAL_COMMA = re.compile(r"[-+]?\d+(,\d+)+")
"""A number with commas, before decimals or between thousands."""
FEW_NUMBERS = 10
"""A label of at most so many different whole numbers is a class."""
MOST_CLASSES = 1_000


@dataclass(frozen=True)
class Roles:
    """What the settings say about columns.

    label, time, user, silo: names of columns; None: there is none.
    problem: one of `PROBLEMS`; None: read off the label.
    drop: columns that are left out.
    categories: columns of categories although they contain numbers.
    """

    label: str
    time: str | None = None
    user: str | None = None
    silo: str | None = None
    problem: str | None = None
    drop: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """Columns whose cells are texts even if they are numbers."""
        named = [self.user, self.silo, None if self.problem == REGRESSION else self.label]
        return (*(one for one in named if one is not None), *self.categories)

    def require_columns(self, name: str, columns: list[str]) -> None:
        """Raise ConfigError for a column that does not exist or that has two roles."""
        roles: dict[str, list[str | None]] = {
            "data.label": [self.label],
            "data.time": [self.time],
            "data.user": [self.user],
            "data.silo": [self.silo],
            "data.drop": list(self.drop),
        }
        taken: dict[str, str] = {}
        for key, named in roles.items():
            for column in named:
                if column is None:
                    continue
                shown = ", ".join(columns[:12]) + (" ..." if len(columns) > 12 else "")
                require(column in columns, key, column, f"a column of {name}: {shown}")
                allowed = f"another column than {taken.get(column)}"
                require(column not in taken, key, column, allowed)
                taken[column] = key
        for column in self.categories:
            free = column in columns and column not in taken
            require(free, "data.categories", column, f"a column of {name} without another role")


def infer(cells: Cells, roles: Roles, n_users: int, silos: tuple[str, ...]) -> Schema:
    """The schema of a table. Raises DataError for a column whose meaning is not clear.

    n_users: number of users that the table names.
    silos: names of its silos.
    """
    roles.require_columns(cells.name, list(cells.frame.columns))
    taken = {roles.label, roles.time, roles.user, roles.silo, *roles.drop}
    features = tuple(
        _feature(cells, str(name), named=name in roles.categories)
        for name in cells.frame.columns
        if name not in taken
    )
    if not features:
        raise DataError(f"{cells.name}: no column is left for the features")
    label = label_of(cells, roles)
    return Schema(
        features,
        label,
        n_users,
        user=roles.user,
        silo=roles.silo,
        silos=silos,
        unused=roles.drop,
        read_off=_read_off(features, label, silos=bool(silos)),
    )


def _read_off(
    features: tuple[Number | Category, ...], label: Label, *, silos: bool
) -> tuple[str, ...]:
    """What of an inferred schema the records decided, for a person."""
    found = [f"categories of {one.name}" for one in features if isinstance(one, Category)]
    if label.classes:
        found.insert(0, f"classes of {label.column}")
    if label.range is not None:
        found.insert(0, range_of(label))
    return (*found, *(["names of silos"] if silos else []), "number of users")


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
    texts = [str(text) for text in column.cat.categories]
    codes = column.cat.codes.to_numpy()
    numeric = np.array([_is_number(text) for text in texts] + [False])
    among = numeric[codes].sum()
    comma = np.array([bool(DECIMAL_COMMA.fullmatch(text)) for text in texts] + [False])
    if comma.any() and not named and (comma | numeric)[:-1].all():
        raise cells.error(
            name,
            comma[codes],
            "a number with a comma: data.decimal=',' reads it; or name the column in "
            f"data.categories, or {leave_out}",
        )
    if among and not named and 2 * among >= (codes >= 0).sum():
        raise cells.error(
            name,
            (codes >= 0) & ~numeric[codes],
            "among numbers; add it to data.missing_marks, or name the column in "
            f"data.categories, or {leave_out}",
        )
    most = MOST_NAMED_CATEGORIES if named else MOST_CATEGORIES
    if len(texts) > most:
        hint = "" if named else "name it in data.categories, or "
        raise DataError(
            f"{cells.name}: column {name}: {len(texts)} different texts, more than {most}; "
            f"{hint}{leave_out}"
        )
    return Category(name, tuple(texts))


def label_of(cells: Cells, roles: Roles) -> Label:
    """The label of a table. Raises DataError for one that cannot be learned."""
    name = roles.label
    column = cells.frame[name]
    where = f"{cells.name}: column {name}"
    if column.isna().all():
        raise DataError(f"{where}: no label in any row")
    if roles.problem == REGRESSION:
        if column.dtype != np.float64:
            wrong = [not _is_number(str(text)) for text in column.cat.categories]
            raise cells.error(
                name,
                np.isin(column.cat.codes.to_numpy(), np.flatnonzero(wrong)),
                "a number is expected, because data.problem=regression",
            )
        return Label(name, REGRESSION, range=_bounds(where, column.to_numpy()))
    texts = [str(text) for text in column.cat.categories]
    if roles.time is not None or roles.problem == SURVIVAL:
        require(roles.time is not None, "data.time", "null", "a column, because of survival")
        return Label(name, SURVIVAL, range=_horizon(cells, str(roles.time)), time=roles.time)
    numbers = all(map(_is_number, texts))
    whole = numbers and all(float(text).is_integer() for text in texts)
    if roles.problem is None and numbers and not (whole and len(texts) <= FEW_NUMBERS):
        values = np.array([*map(float, texts), np.nan])[column.cat.codes.to_numpy()]
        return Label(name, REGRESSION, range=_bounds(where, values))
    _refuse_classes(where, texts)
    return Label(
        name, CLASSIFICATION, classes=tuple(sorted(texts, key=float) if numbers else texts)
    )


def _refuse_classes(where: str, texts: list[str]) -> None:
    if len(texts) < 2:
        raise DataError(f"{where}: only one class, {texts[0]:.40}: nothing can be learned")
    if len(texts) > MOST_CLASSES:
        raise DataError(f"{where}: {len(texts)} different labels; at most {MOST_CLASSES} classes")
    first: dict[str, str] = {}
    for text in texts:
        other = first.setdefault(same_form(text), text)
        if other != text:
            raise DataError(
                f"{where}: the classes {other:.40} and {text:.40} may be one: write one"
            )


def _bounds(where: str, values: np.ndarray) -> tuple[float, float]:
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    if low == high:
        raise DataError(f"{where}: only one value, {low:g}: nothing can be learned")
    return low, high


def _horizon(cells: Cells, name: str) -> tuple[float, float]:
    column = cells.frame[name]
    if column.dtype != np.float64:
        raise DataError(f"{cells.name}: column {name}: numbers are expected, as times of survival")
    longest = float(np.nanmax(column.to_numpy())) if column.notna().any() else math.nan
    if not longest > 0:
        raise DataError(f"{cells.name}: column {name}: no positive time of survival")
    return 0.0, longest


def _is_number(text: str) -> bool:
    return math.isfinite(number_of(text))
