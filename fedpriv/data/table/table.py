"""A table of your own: CSV, Parquet or a data frame, described by names of columns."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fedpriv.data.base import Corpus, Records
from fedpriv.data.files import noted
from fedpriv.data.stability import DistanceBound, Stage, unbounded
from fedpriv.data.table.describe import DescribedTable, counts
from fedpriv.data.table.encode import Encoded, encode
from fedpriv.data.table.encoding import Encoding
from fedpriv.data.table.infer import decimal_of, doubtful, infer, require_roles
from fedpriv.data.table.owners import (
    AFTER_SILO,
    Owners,
    in_one_silo,
    owners_of,
    row_keys,
    same_form,
    shared_keys,
)
from fedpriv.data.table.read import Cells, read_cells
from fedpriv.data.table.schema import (
    CLASSIFICATION,
    SURVIVAL,
    Schema,
    read_schema,
)
from fedpriv.data.table.settings import ACCEPT, DROP, MERGE, SILO, USER, ReadingRules
from fedpriv.data.tables import require_columns
from fedpriv.errors import ConfigError, DataError, require
from fedpriv.models.regression import ExponentialSurvival, Regression
from fedpriv.models.tasks import Classification, Task
from fedpriv.util.streams import Streams

MOST_GROUPS = 50
"""Texts of a column whose groups have metrics of their own."""
PURPOSE = "train/test split of a table"


@dataclass(frozen=True)
class Table(DescribedTable):
    """Records of a table with a column for the label, for the user and for the silo.

    Its keys are those of `TableSettings`.
    """

    filled: ClassVar[tuple[str, ...]] = ("training", "test")
    """Parts that need a record."""

    natural_users = True
    private_test = True
    numbers_are_public = False  # places of the names that are in the file

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
        cells = self._cells(self.path)
        require_roles(cells, self)
        cells = replace(cells, decimal=self.decimal or decimal_of(cells))
        found = owners_of(cells, self, self.user, self.silo)
        for column, names in ((self.silo, found.silos), (self.user, found.keys)):
            if column is not None and not names:
                raise DataError(f"{cells.name}: column {column}: no name in any row")
        return infer(cells, self, len(found.keys), found.silos)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.declared.width,)

    @property
    def outputs(self) -> int:
        return self.declared.outputs

    @property
    def task(self) -> Task:
        label = self.declared.label
        factors = tuple(self.class_weights)
        allowed = f"one for each class of {label.column}: {', '.join(label.classes) or 'none'}"
        fits = len(factors) in (0, len(label.classes))
        require(fits, "data.class_weights", self.class_weights, allowed)
        if label.problem == CLASSIFICATION:
            return Classification(main=self.metric, factors=factors)
        if label.problem == SURVIVAL:
            return ExponentialSurvival()
        return Regression(unit=label.origin_and_unit[1])

    @property
    def natural_silos(self) -> int | None:
        return None if self.declared.silo is None else len(self.declared.silos)

    @property
    def silo_names(self) -> tuple[str, ...]:
        return self.declared.silos

    def of_site(self, path: str | None) -> Table:
        agreed = "a schema file with public: true, and a range for each column of numbers"
        require(self.schema is not None, "data.schema", "null", agreed)
        require(not self.read_without_noise, "data.schema", self.schema, agreed)
        own = "silo: nobody compares the users of two organisations"
        require(self.user_scope == SILO, "data.user_scope", self.user_scope, own)
        settings: dict[str, Any] = {one.name: getattr(self, one.name) for one in fields(self)}
        settings["path"] = path
        return SiteTable(**settings)

    @property
    def users_of_one_silo(self) -> bool:
        return in_one_silo(self)

    def public_users(self, streams: Streams) -> int:
        return self.declared.n_users

    @property
    def disjoint_test(self) -> bool:
        return self.split == USER

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

    # Reading records.

    def load(self, streams: Streams) -> Corpus:
        schema = self.declared
        if self.schema is not None:
            noted(self._path(self.schema))
        cells, encoded, held = self.records(self.path)
        notes = [*held.notes, *encoded.notes]
        if len(held.keys) > schema.n_users:
            raise DataError(
                f"{cells.name}: {len(held.keys)} users, more than the {schema.n_users} on the "
                "public list (user.number of the schema)"
            )
        if self.test is None:
            is_test = self._coins(cells, held, streams) < self.test_share
            training, testing = encoded.kept & ~is_test, encoded.kept & is_test
            parts = [(encoded, held, training), (encoded, held, testing)]
        else:
            tests, tested, owned = self.records(self.test)
            self._refuse_shared(tests, held, owned)
            notes += [f"{self.test}: {note}" for note in (*owned.notes, *tested.notes)]
            parts = [(encoded, held, encoded.kept), (tested, owned, tested.kept)]
        for name, (_, _, rows) in zip(("training", "test"), parts):
            if name in self.filled and not rows.any():
                raise DataError(
                    f"{cells.name}: no {name} record; change seed or data.test_share, or add users"
                )
        encoding = Encoding.fitted(schema, self._rules, parts[0][0].x[parts[0][2]])
        train, test = (
            Records(
                encoding.scaled(part.x[rows]),
                part.y[rows],
                None if own.silo is None else own.silo[rows],
                own.user[rows],
                n_users=schema.n_users,
                user_names=self._names(own.keys),
            )
            for part, own, rows in parts
        )
        owned_test = test
        if self.split == USER or self.test is not None:
            # strangers, or numbered by another table
            test = replace(test, user=None, user_names=None)
        if self.schema is None:
            notes += doubtful(cells, schema, self)
        notes += counts(schema, train, test, len(cells.frame))
        if repeated := int(cells.frame.duplicated().sum()):
            notes.append(f"{repeated} rows repeat an earlier row in every cell")
        groups = self._groups(
            *((cells, parts[1][2]) if self.test is None else (tests, tested.kept))
        )
        return Corpus(
            train,
            test,
            notes=tuple(notes),
            groups=groups,
            owned_test=owned_test,
            encoding=encoding,
        )

    def _groups(self, cells: Cells, rows: np.ndarray) -> dict[str, np.ndarray]:
        """The test records with each text of the columns `groups`."""
        found: dict[str, np.ndarray] = {}
        for column in self.groups:
            known = cells.texts(column) if column in cells.frame else []
            allowed = f"columns of {cells.name} with at most {MOST_GROUPS} different texts"
            require(0 < len(known) <= MOST_GROUPS, "data.groups", column, allowed)
            texts = cells.frame[column].to_numpy()[rows]
            found |= {f"{column} {text}": texts == text for text in known}
        return found

    def records(self, path: str | None) -> tuple[Cells, Encoded, Owners]:
        """Cells, features with labels, and owners of one table. Raises DataError."""
        schema = self.declared
        cells = replace(self._cells(path), decimal=self._rules.decimal)
        found = list(map(str, cells.frame.columns))
        expected = [one for one in schema.columns if one in found or one not in schema.unused]
        require_columns(cells.name, found, expected)
        held = owners_of(cells, self, schema.user, schema.silo, schema.silos)
        return cells, encode(cells, schema, self, self._rules), held

    def _coins(self, cells: Cells, held: Owners, streams: Streams) -> np.ndarray:
        """The coin of each row, (n,) from 0 to below 1: that of its user's name, or its own. A name
        in two silos has one coin even as two users: if it is one person, that trains or tests."""
        names = self._names(key.rpartition(AFTER_SILO)[2] for key in held.keys)
        if self.split == USER:
            return np.asarray(np.append(streams.named_coins(PURPOSE, names), 0.0)[held.user])
        whose = (names[user] if user >= 0 else "" for user in held.user)
        return streams.named_coins(PURPOSE, (f"{a}\n{b}" for a, b in zip(whose, row_keys(cells))))

    def _names(self, keys: Iterable[str]) -> tuple[str, ...]:
        """The name of each user from which the user's own draws come. Of a merged user, the
        spelling that stands in the file may change with another row."""
        return tuple(map(same_form, keys) if self.similar_ids == MERGE else keys)

    def _refuse_shared(self, cells: Cells, training: Owners, test: Owners) -> None:
        both = shared_keys(cells, training, test, self.similar_ids)
        if both and self.split == USER:
            what = "a row" if self.declared.user is None else f"user {both[0]!r:.40}"
            raise DataError(
                f"{cells.name}: {what} of the training table is here as well ({len(both)} in all); "
                "data.split=record allows it, and test metrics are then diagnostics"
            )

    def _cells(self, name: str | None) -> Cells:
        """The cells of a table, kept for the next call: a run reads its schema and its records off
        the same cells."""
        if name is None:
            return read_cells(None, self)
        path = self._path(name)
        about = os.stat(path)
        form = (self.separator, self.decimal, self.encoding, tuple(self.missing_marks))
        key = (path.resolve(), about.st_mtime_ns, about.st_size, form)
        if key not in _last:
            _last.clear()
            _last[key] = read_cells(path, self)
        noted(path)
        return _last[key]

    @property
    def _rules(self) -> ReadingRules:
        """The rules for features, with what the schema decides. Without a schema file, a category
        that is unknown is one that `data.rare` has dropped."""
        drops = self.rare == DROP and self.schema is None
        outside = ACCEPT if drops else self.outside
        decimal = self.decimal or self.declared.decimal
        return replace(self.rules, outside=outside, decimal=decimal)

    def _path(self, name: str) -> Path:
        path = Path(self.root or "") / Path(name).expanduser()
        if not path.exists():
            key = next(one for one in ("path", "schema", "test") if getattr(self, one) == name)
            raise ConfigError(f"data.{key}", name, f"no such file (looked for {path.resolve()})")
        return path


class SiteTable(Table):
    """The table of one organisation of several: it may have no test record."""

    filled = ("training",)


_last: dict[tuple[object, ...], Cells] = {}
