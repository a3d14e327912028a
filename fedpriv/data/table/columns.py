"""Columns of a table for statistics: numbers within public bounds, and public lists of categories.

Nothing is read off the records: bounds, categories, names of silos and the largest number of users
are settings, so that neighbouring files differ in one user's rows alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedpriv.data.base import Corpus, DataSet, Records
from fedpriv.data.stability import Stage
from fedpriv.data.table.encode import refuse_or_note
from fedpriv.data.table.owners import in_one_silo, owners_of, same_form, uncovered_persons
from fedpriv.data.table.read import Cells, read_cells
from fedpriv.data.table.schema import Category, Number, range_text, some_of
from fedpriv.data.table.settings import (
    ACCEPT,
    DROP,
    FILL,
    MERGE,
    REFUSE,
    SCOPES,
    SILO,
    SIMILAR,
    TABLE,
    ReadingRules,
    require_one_of,
    require_owners,
)
from fedpriv.data.table.written import DECIMALS, LARGEST, POINT
from fedpriv.errors import DataError, require
from fedpriv.models.regression import Regression
from fedpriv.util.pasted import pasted
from fedpriv.util.streams import Streams

MOST_USERS = 10**6
BOUNDS = f"a name with two public bounds up to {LARGEST:g}, or with a public list of categories"


@dataclass(frozen=True)
class Columns(ReadingRules, DataSet):
    """Rows of a table with a column for the user and for the silo.

    path: the table, CSV or Parquet (.parquet); None: the data frame of a call in Python.
    columns: for each column its name, and two numbers, its bounds, or texts, its categories.
    user: column that says whose record it is.
    silo: column that says who holds it; None: no silos.
    silos: names of all silos, which are public.
    one_row_per_user: there is no column of users, because every row is another person.
    user_scope: table (a name is one person in all silos) or silo (in each silo another person).
    similar_ids: names that may mean the same: refuse, merge or keep.
    incomplete: rows without user or silo: refuse or drop.
    users: no table has more users.
    outside: values outside bounds and lists: accept (cut to the bounds; in no category) or refuse.
    decimal: sign before decimals.
    """

    path: str | None = None
    columns: list[list[Any]] = field(default_factory=list)
    user: str | None = None
    silo: str | None = None
    silos: list[str] = field(default_factory=list)
    one_row_per_user: bool = False
    user_scope: str = TABLE
    similar_ids: str = REFUSE
    incomplete: str = REFUSE
    users: int = MOST_USERS
    outside: str = ACCEPT
    decimal: str | None = POINT

    outputs = 1
    task = Regression()
    natural_users = True
    disjoint_test = True  # there are no test records
    numbers_are_public = False  # places of the names that are in the file
    reading = Stage("reading the table row by row, within public bounds")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of(
            self,
            user_scope=SCOPES,
            similar_ids=SIMILAR,
            incomplete=(REFUSE, DROP),
            missing=(FILL,),  # a missing cell adds nothing to its column's sums
            decimal=DECIMALS,  # reading it off the table would look at all rows
        )
        names = [one.name for one in self._features]
        require(bool(names), "data.columns", "[]", "columns, such as [[age,0,110],[sex,f,m]]")
        for role in ("user", "silo"):
            taken = getattr(self, role) in names
            require(not taken, f"data.{role}", getattr(self, role), "none of data.columns")
        require_owners(self.user, self.silo, self.user_scope, alone=self.one_row_per_user)
        listed = bool(self.silos) == (self.silo is not None)
        require(
            listed,
            "data.silos",
            self.silos,
            "the names of all silos in column data.silo, as in data.silos=[a,b]",
        )
        fits = 1 <= self.users <= MOST_USERS
        require(fits, "data.users", self.users, f"a number up to {MOST_USERS}")

    @property
    def _features(self) -> tuple[Number | Category, ...]:
        return numbers_and_categories(self.columns)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self._features),)

    @property
    def natural_silos(self) -> int | None:
        return None if self.silo is None else len(self.silos)

    @property
    def silo_names(self) -> tuple[str, ...]:
        return tuple(self.silos)

    @property
    def users_of_one_silo(self) -> bool:
        return in_one_silo(self)

    @property
    def user_is(self) -> str:
        if self.user is None:
            return "every row is taken as another person, also where a person has several"
        two = "a person in two counts as two users, which an epsilon covers one by one"
        apart = f"in one silo: {two}"
        where = apart if self.user_scope == SILO else "in the whole table"
        return f"a user is one value of column {self.user} {where}"

    @property
    def not_covered(self) -> tuple[str, ...]:
        return uncovered_persons(self)

    def public_users(self, streams: Streams) -> int:
        return self.users

    def load(self, streams: Streams) -> Corpus:
        path = None if self.path is None else Path(self.root or "") / Path(self.path).expanduser()
        known = path is None or path.exists()
        require(known, "data.path", self.path, f"no such file (looked for {path})")
        cells = read_cells(path, self)
        features = self._features
        roles = [name for name in (self.user, self.silo) if name is not None]
        named = [*roles, *(one.name for one in features)]
        lacking = [name for name in named if name not in cells.frame]
        if lacking:
            raise DataError(f"{cells.name}: no column {', '.join(lacking)}")
        cells = replace(cells, frame=cells.frame[named])
        held = owners_of(cells, self, self.user, self.silo, tuple(self.silos))
        if len(held.keys) > self.users:
            raise DataError(f"{cells.name}: {len(held.keys)} users; data.users={self.users}")
        here = held.user >= 0
        if held.silo is not None:
            here &= held.silo >= 0
        if self.incomplete == REFUSE:
            ways = f"{pasted('data.incomplete', DROP)} leaves such rows out"
            cells.refuse_rows(roles[0] if roles else "", ~here, "no user or no silo", ways)
        if not here.any():
            raise DataError(f"{cells.name}: no row has a user")
        merged = self.similar_ids == MERGE
        notes = [*held.notes]
        x = np.stack([self._positions(cells, one, notes) for one in features], axis=1)
        train = Records(
            x[here],
            np.zeros(int(here.sum()), dtype=np.float32),
            None if held.silo is None else held.silo[here],
            held.user[here],
            n_users=self.users,
            user_names=tuple(map(same_form, held.keys)) if merged else held.keys,
        )
        none = Records(x[:0], train.y[:0], train.silo if train.silo is None else train.silo[:0])
        return Corpus(train, none, notes=tuple(notes))

    def _positions(self, cells: Cells, feature: Number | Category, notes: list[str]) -> np.ndarray:
        """(n,) float64: positions between the bounds, 0 to 1, or places in the list; NaN where
        there is none. Values outside are refused or noted."""
        if isinstance(feature, Category):
            # Cells are read one by one: 1.0 is in the list 1, 2, 3, and True in true, false.
            forms = set(map(same_form, feature.values))
            alike = same_form if len(forms) == len(feature.values) else str
            places = cells.places(feature.name, feature.values, alike)
            unknown, found = places == -2, np.where(places < 0, np.nan, places)
            what = f"not in the public list ({some_of(feature.values)})"
        else:
            assert feature.range is not None
            low, high = feature.range
            values = cells.numbers(feature.name)
            unknown, found = (values < low) | (values > high), (values - low) / (high - low)
            found = np.clip(found, 0.0, 1.0)
            what = f"outside {range_text(feature.range)}"
        ways = ("takes such rows", what)
        refuse_or_note(cells, feature.name, unknown, what, ways, self.outside, notes)
        return np.asarray(found, dtype=np.float64)


def numbers_and_categories(columns: Sequence[Sequence[Any]]) -> tuple[Number | Category, ...]:
    """The columns of a setting `data.columns`. Raises ConfigError for one that is neither."""
    found: list[Number | Category] = []
    for column in columns:
        name, *given = column or [""]
        texts = bool(given) and all(isinstance(one, str) for one in given)
        if isinstance(name, str) and texts and len(set(given)) == len(given):
            found.append(Category(name, tuple(given)))
            continue
        numbers = [one for one in given if type(one) in (int, float) and abs(one) <= LARGEST]
        pair = len(given) == len(numbers) == 2 and numbers[0] < numbers[1]
        require(isinstance(name, str) and pair, "data.columns", column, BOUNDS)
        found.append(Number(name, (float(numbers[0]), float(numbers[1]))))
    names = [one.name for one in found]
    require(len(set(names)) == len(names), "data.columns", ", ".join(names), "each column once")
    return tuple(found)
