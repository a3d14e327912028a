"""A table of your own: CSV, Parquet or a data frame, described by names of columns."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from fedpriv.data.base import Corpus, DataSet, Records
from fedpriv.data.files import noted
from fedpriv.data.stability import DistanceBound, Stage, unbounded
from fedpriv.data.table import describe, owners, people
from fedpriv.data.table.encode import ACCEPT, DROP, FILL, REFUSE, Encoded, Rules, encode
from fedpriv.data.table.infer import Roles, infer
from fedpriv.data.table.owners import Owners, owners_of, shared_keys
from fedpriv.data.table.read import Cells, Format, read_cells
from fedpriv.data.table.schema import PROBLEMS, Schema, read_schema
from fedpriv.data.table.tasks import task_of
from fedpriv.errors import ConfigError, DataError, require
from fedpriv.models.tasks import Task
from fedpriv.util.streams import Streams

USER, RECORD = SPLITS = ("user", "record")
PURPOSE = "train/test split of a table"
MISSING_MARKS = ["NA", "N/A", "NaN", "nan", "NULL", "null", "None", "?"]
IN_THE_SCHEMA = ("label", "time", "user", "silo", "problem", "drop", "categories")
"""Keys that a schema file replaces."""


@dataclass(frozen=True)
class Table(DataSet):
    """Records of a table with a column for the label, for the user and for the silo.

    root: folder that relative paths start from; None: the current folder.
    path: the table, CSV or Parquet (.parquet); None: the data frame of `fedpriv.run(frame=...)`.
    schema: a schema file, which replaces label, time, user, silo, problem, drop and categories.
    schema_digest: SHA-256 that the schema file must have; None: any.
    label: column to predict; for survival, whether the event happened (0 or 1).
    time: for survival, column of the time to the event or to the end of the observation.
    user: column that says whose record it is, for example the patient.
    silo: column that says who holds it, for example the hospital; None: no silos.
    one_row_per_user: there is no such column, because every row is another person.
    user_scope: table (a name is one person in all silos) or silo (in each silo another person).
    similar_ids: names that may mean the same, such as "7" and "07 ": refuse, merge or keep.
    problem: regression, classification or survival; None: read off the label.
    metric: main metric of classification, balanced_accuracy or accuracy.
    drop: columns that are left out.
    categories: columns of categories although they contain numbers, or many different texts.
    missing: missing features: refuse, fill or drop (the row).
    incomplete: rows without label, user or silo: refuse or drop.
    outside: values outside public lists and ranges: refuse, or accept (in no category; cut to the
        range).
    missing_marks: texts that stand for a missing value, beside an empty cell.
    test: a table of test records with the same columns; None: users are split.
    test_share: share of the users in the test part, by a coin of each.
    split: user (nobody is on both sides) or record (every record has its own coin; a test table may
        contain users who train).
    separator: sign between two cells; None: comma, semicolon, tab or bar, as in the first line.
    decimal: sign before decimals.
    encoding: of a CSV file.
    """

    path: str | None = None
    schema: str | None = None
    schema_digest: str | None = None
    label: str | None = None
    time: str | None = None
    user: str | None = None
    silo: str | None = None
    one_row_per_user: bool = False
    user_scope: str = owners.TABLE
    similar_ids: str = people.REFUSE
    problem: str | None = None
    metric: str = "balanced_accuracy"
    drop: list[str] = field(default_factory=list)
    categories: list[str] = field(default_factory=list)
    missing: str = REFUSE
    incomplete: str = REFUSE
    outside: str = REFUSE
    missing_marks: list[str] = field(default_factory=lambda: list(MISSING_MARKS))
    test: str | None = None
    test_share: float = 0.2
    split: str = USER
    separator: str | None = None
    decimal: str = "."
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        for name, allowed in (
            ("user_scope", owners.SCOPES),
            ("similar_ids", people.SIMILAR),
            ("problem", (None, *PROBLEMS)),
            ("metric", ("balanced_accuracy", "accuracy")),
            ("missing", (REFUSE, FILL, DROP)),
            ("incomplete", (REFUSE, DROP)),
            ("outside", (REFUSE, ACCEPT)),
            ("split", SPLITS),
            ("decimal", (".", ",")),
        ):
            shown = ", ".join("null" if one is None else one for one in allowed)
            require(getattr(self, name) in allowed, f"data.{name}", getattr(self, name), shown)
        single = self.separator is None or (len(self.separator) == 1 and self.separator != '"')
        require(single, "data.separator", self.separator, "one sign, or null")
        inside = 0 < self.test_share < 1
        require(inside, "data.test_share", self.test_share, "a share between 0 and 1")
        self._require_roles()

    def _require_roles(self) -> None:
        if self.schema is not None:
            for name in IN_THE_SCHEMA:
                value = getattr(self, name)
                require(not value, f"data.{name}", value, "null, because data.schema says it")
        else:
            pinned = self.schema_digest
            require(pinned is None, "data.schema_digest", pinned, "null without data.schema")
            require(self.label is not None, "data.label", "null", "the column to predict")
            alone = self.time is None or self.problem in (None, "survival")
            require(alone, "data.time", self.time, f"null, because data.problem={self.problem}")
            named = (self.user is None) == self.one_row_per_user
            allowed = "the column that says whose record it is, or data.one_row_per_user=true"
            without = "null, or data.one_row_per_user=false"
            shown = "null" if self.user is None else self.user
            require(named, "data.user", shown, allowed if self.user is None else without)
            held = self.silo is not None or self.user_scope == owners.TABLE
            require(
                held, "data.user_scope", self.user_scope, "table, because there is no data.silo"
            )

    # What a run needs before records are read.

    @cached_property
    def declared(self) -> Schema:
        """The schema: of its file, or read off the table."""
        if self.schema is not None:
            schema = read_schema(self._path(self.schema), self.schema_digest)
            own = (schema.user is None) == self.one_row_per_user
            allowed = f"{'true' if schema.user is None else 'false'}, as {self.schema} says"
            require(own, "data.one_row_per_user", self.one_row_per_user, allowed)
            return schema
        cells = self._cells()
        roles = self._roles
        roles.require_columns(cells.name, list(cells.frame.columns))
        found = self._owners(cells, roles.user, roles.silo)
        if found.silo is not None and not len(found.silos):
            raise DataError(f"{cells.name}: column {roles.silo}: no silo in any row")
        if not found.keys:
            raise DataError(f"{cells.name}: column {roles.user}: no user in any row")
        return infer(cells, roles, len(found.keys), found.silos)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.declared.width,)

    @property
    def outputs(self) -> int:
        return self.declared.outputs

    @property
    def task(self) -> Task:
        return task_of(self.declared.label, self.metric)

    @property
    def natural_silos(self) -> int | None:
        return None if self.declared.silo is None else len(self.declared.silos)

    @property
    def natural_users(self) -> bool:
        return True

    def public_users(self, streams: Streams) -> int:
        return self.declared.n_users

    @property
    def disjoint_test(self) -> bool:
        return self.split == USER

    @property
    def private_test(self) -> bool:
        return True

    @property
    def numbers_are_public(self) -> bool:
        return False  # places of the names that are in the file

    @property
    def read_without_noise(self) -> tuple[str, ...]:
        return tuple(describe.looks_at_all(self.declared))

    @property
    def user_is(self) -> str:
        return describe.user_is(self.declared, self.user_scope)

    @property
    def public_by_word(self) -> str:
        return describe.public_by_word(self.declared)

    @property
    def reading(self) -> Stage:
        name = "reading the table row by row, split by the coin of each user"
        if reasons := self.read_without_noise:
            bound = unbounded("; ".join(reasons))
            return Stage(name, bound, bound, bound)
        if self.split == USER:
            return Stage(name)
        inside = DistanceBound()
        return Stage("reading the table row by row, split by the coin of each record", rows=inside)

    @property
    def not_covered(self) -> tuple[str, ...]:
        return describe.not_covered(self.declared, self._choices)

    @property
    def description(self) -> tuple[str, ...]:
        return tuple(describe.lines(self.declared, self._choices))

    @property
    def _choices(self) -> describe.Choices:
        return describe.Choices(*(getattr(self, one.name) for one in fields(describe.Choices)))

    # Reading records.

    def load(self, streams: Streams) -> Corpus:
        schema = self.declared
        if self.schema is not None:
            noted(self._path(self.schema))
        cells, encoded, held = self._records(self.path, schema)
        notes = [*cells.notes, *held.notes, *encoded.notes]
        test: tuple[Cells, Encoded, Owners] | None = None
        if self.test is None:
            is_test = self._coins(cells, held, streams) < self.test_share
            training, testing = encoded.kept & ~is_test, encoded.kept & is_test
            parts = [(encoded, held, training), (encoded, held, testing)]
        else:
            test = self._records(self.test, schema)
            self._refuse_shared(test[0], held, test[2])
            notes += [f"{self.test}: {note}" for note in (*test[2].notes, *test[1].notes)]
            parts = [(encoded, held, encoded.kept), (test[1], test[2], test[1].kept)]
        for name, (_, _, rows) in zip(("training", "test"), parts):
            if not rows.any():
                raise DataError(
                    f"{cells.name}: no {name} record; change seed or data.test_share, or add users"
                )
        inputs = _scaled(schema, [part.x[rows] for part, _, rows in parts])
        train, tested = (
            Records(
                x,
                part.y[rows],
                None if own.silo is None else own.silo[rows],
                own.user[rows],
                n_users=schema.n_users,
                user_names=self._names(own),
            )
            for x, (part, own, rows) in zip(inputs, parts)
        )
        if self.split == USER or test is not None:
            # strangers, or numbered by another table
            tested = replace(tested, user=None, user_names=None)
        notes += describe.counts(schema, train, tested, len(cells.frame))
        if repeated := int(cells.frame.duplicated().sum()):
            notes.append(f"{repeated} rows repeat an earlier row in every cell")
        return Corpus(train, tested, notes=tuple(notes))

    def _records(self, path: str | None, schema: Schema) -> tuple[Cells, Encoded, Owners]:
        """Cells, features with labels, and owners of one table. Raises DataError."""
        cells = self._cells(path)
        found = list(map(str, cells.frame.columns))
        lacking = [one for one in schema.columns if one not in found and one not in schema.unused]
        surplus = [one for one in found if one not in schema.columns]
        if lacking or surplus:
            what = f"missing {', '.join(lacking[:5])}" if lacking else ""
            what += "; " if lacking and surplus else ""
            what += f"unexpected {', '.join(surplus[:5])}" if surplus else ""
            raise DataError(f"{cells.name}: line 1: wrong columns: {what}")
        held = self._owners(cells, schema.user, schema.silo, schema.silos)
        if path == self.path and len(held.keys) > schema.n_users:
            raise DataError(
                f"{cells.name}: {len(held.keys)} users, more than the {schema.n_users} on the "
                "public list (user.number of the schema)"
            )
        encoded = encode(cells, schema, Rules(self.missing, self.incomplete, self.outside))
        named = {schema.user: held.user, schema.silo: held.silo}
        for column, numbers in named.items():
            if column is None or numbers is None or (numbers >= 0).all():
                continue
            if self.incomplete == REFUSE:
                raise people.refuse_missing(cells, column, numbers < 0)
            note = f"{int((numbers < 0).sum())} rows without {column} are left out"
            encoded = replace(
                encoded, kept=encoded.kept & (numbers >= 0), notes=(*encoded.notes, note)
            )
        return cells, encoded, held

    def _coins(self, cells: Cells, held: Owners, streams: Streams) -> np.ndarray:
        """The coin of each row, (n,) from 0 to below 1: its user's, or its own."""
        if self.split == RECORD:
            rows = owners.row_keys(cells)
            names = self._names(held)
            whose = (names[user] if user >= 0 else "" for user in held.user)
            return streams.named_coins(PURPOSE, (f"{a}\n{b}" for a, b in zip(whose, rows)))
        coins = streams.named_coins(PURPOSE, self._names(held))
        return np.asarray(np.append(coins, 0.0)[held.user])

    def _names(self, held: Owners) -> tuple[str, ...]:
        """The name of each user from which the user's own draws come. Of a merged user, the
        spelling that stands in the file may change with another row."""
        if self.similar_ids != people.MERGE:
            return held.keys
        return tuple(people.same_form(key) for key in held.keys)

    def _refuse_shared(self, cells: Cells, training: Owners, test: Owners) -> None:
        both = shared_keys(cells, training, test, self.similar_ids)
        if both and self.split == USER:
            what = "a row" if self.declared.user is None else f"user {both[0]!r:.40}"
            raise DataError(
                f"{cells.name}: {what} of the training table is here as well ({len(both)} in all); "
                "data.split=record allows it, and test metrics are then diagnostics"
            )

    def _owners(
        self, cells: Cells, user: str | None, silo: str | None, silos: tuple[str, ...] = ()
    ) -> Owners:
        return owners_of(
            cells, user, silo, scope=self.user_scope, similar=self.similar_ids, silos=silos
        )

    def _cells(self, path: str | None = None) -> Cells:
        """The cells of a table, by default of the training table."""
        chosen = self.path if path is None else path
        form = Format(self.separator, self.decimal, self.encoding, tuple(self.missing_marks))
        texts = self._roles.texts if self.schema is None else _texts_of(self.declared)
        return _cached_cells(None if chosen is None else self._path(chosen), form, texts)

    @property
    def _roles(self) -> Roles:
        assert self.label is not None  # checked, if there is no schema
        return Roles(
            self.label,
            self.time,
            self.user,
            self.silo,
            self.problem,
            tuple(self.drop),
            tuple(self.categories),
        )

    def _path(self, name: str) -> Path:
        path = Path(self.root or "") / Path(name).expanduser()
        if not path.exists():
            key = next(one for one in ("path", "schema", "test") if getattr(self, one) == name)
            raise ConfigError(f"data.{key}", name, f"no such file (looked for {path.resolve()})")
        return path


def _texts_of(schema: Schema) -> tuple[str, ...]:
    """Columns of a schema whose cells are texts even if they are numbers."""
    from fedpriv.data.table.schema import REGRESSION, Category

    named = [schema.user, schema.silo]
    if schema.label.problem != REGRESSION:
        named.append(schema.label.column)
    categories = (one.name for one in schema.features if isinstance(one, Category))
    return (*(one for one in named if one is not None), *categories, *schema.unused)


_last: dict[tuple[object, ...], Cells] = {}


def _cached_cells(path: Path | None, form: Format, texts: tuple[str, ...]) -> Cells:
    """Cells of a table, kept for the next call: a run reads its schema and its records off the same
    cells."""
    if path is None:
        return read_cells(None, form, texts)
    about = os.stat(path)
    key = (path.resolve(), about.st_mtime_ns, about.st_size, form, texts)
    if key not in _last:
        _last.clear()
        _last[key] = read_cells(path, form, texts)
    noted(path)
    return _last[key]


def _scaled(schema: Schema, parts: list[np.ndarray]) -> list[np.ndarray]:
    """Features of training and test records. Columns without a public range lose the training mean
    and are divided by the training deviation; there, missing values become 0."""
    from fedpriv.data.table.schema import Number

    place = 0
    for feature in schema.features:
        if isinstance(feature, Number) and feature.range is None:
            training = parts[0][:, place].astype(np.float64)
            known = training[~np.isnan(training)]
            mean = known.mean() if len(known) else 0.0
            deviation = known.std() if len(known) else 1.0
            if deviation <= 1e-12 * abs(mean) or deviation == 0:
                deviation = 1.0
            for part in parts:
                values = (part[:, place].astype(np.float64) - mean) / deviation
                part[:, place] = np.where(np.isnan(values), 0.0, values)
        place += feature.width
    return parts
