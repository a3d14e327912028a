"""Neighbouring files: a run on the same raw records, less some of them or with other content.

A certificate speaks of two files that differ in one unit. Here the records that a data set has read
differ, before they are allocated, truncated, split among silos and trained on. All stages run
again on them.

>>> from fedpriv.testing.experiments import experiment
>>> exp = experiment("algo=uldp_group_2", "preset.n_users=8")
>>> file = File.of(exp)
>>> file.numbers.shape, file.units("user")[3].shape
((455,), (52,))
>>> neighbour = file.without(file.units("user")[3])
>>> from fedpriv.runtime import allocate
>>> corpus, allocation, _ = allocate(neighbour)
>>> len(corpus.train), int((allocation.user == 3).sum())
(403, 0)

Where users are drawn, neighbours are defined behind the draw (`fedpriv.data.stability`): the owners
and silos of the others stay. What is public by assumption stays too: a data set's split and
scaling, the number of users, and which silos have a local test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np

from fedpriv.data.allocate import Allocation, Allocator
from fedpriv.data.base import DataSet, Records
from fedpriv.data.stability import ADD_REMOVE
from fedpriv.errors import FedprivError
from fedpriv.runtime import allocate
from fedpriv.settings.experiment import Experiment
from fedpriv.testing.experiments import with_training_records
from fedpriv.util.streams import Streams


@dataclass(frozen=True)
class File:
    """The raw training records of an experiment, as neighbours differ in them.

    exp: the experiment on the whole file.
    records: all training records that the data set has read.
    owners: owner and silo of each record, and whether it is in a local test, before the method
        chooses what it trains on.
    """

    exp: Experiment
    records: Records
    owners: Allocation

    @classmethod
    def of(cls, exp: Experiment) -> File:
        """The file that an experiment reads."""
        records = exp.data.load(exp.streams).train
        return cls(exp, records, exp.allocator.allocate(records, exp.data, exp.streams))

    @property
    def numbers(self) -> np.ndarray:
        """The numbers (n,) of all records."""
        own = self.records.number
        return np.arange(len(self.records)) if own is None else own

    @property
    def drawn(self) -> bool:
        """Whether owners are drawn, so that neighbours are defined behind the draw."""
        reading = self.exp.data.reading
        return any(stage != reading for stage in self.owners.stability.before)

    def units(self, unit: str) -> list[np.ndarray]:
        """The rows of each unit: of every user with records, or of every single record."""
        if unit == "record":
            return list(np.arange(len(self.records))[:, None])
        order = np.argsort(self.owners.user, kind="stable")
        _, first = np.unique(self.owners.user[order], return_index=True)
        return np.split(order, first[1:])

    def extremes(self, unit: str) -> list[np.ndarray]:
        """Numbers (units,) by which a unit can be extreme, for each unit of `units`: how many
        records its user has, in how many silos a user is, the largest features, the rarest label.

        A bound that fails, fails there first: at the user who is cut, the record that is not
        scaled, the label that nobody else has.
        """
        units = self.units(unit)
        owners = self.owners
        sizes = np.bincount(owners.user, minlength=owners.n_users)
        homes = np.unique([owners.user, owners.silo], axis=1)[0]
        wide = np.bincount(homes, minlength=owners.n_users)
        features = np.zeros(len(self.records))
        if not self.exp.data.text:
            flat = np.asarray(self.records.x, dtype=np.float64).reshape(len(self.records), -1)
            features = np.linalg.norm(np.nan_to_num(flat), axis=1)
        _, label, times = np.unique(self.records.y, axis=0, return_inverse=True, return_counts=True)
        rare = -times[label.reshape(-1)]
        by_record = sizes[owners.user], wide[owners.user], features, rare
        return [np.array([values[rows].max() for rows in units]) for values in by_record]

    def neighbour(self, rows: np.ndarray, adjacency: str) -> Experiment:
        """The experiment whose file differs in `rows`: absent, or with other content."""
        return self.without(rows) if adjacency == ADD_REMOVE else self.replaced(rows)

    def without(self, rows: np.ndarray) -> Experiment:
        """The experiment whose file lacks `rows`. The other records keep their numbers."""
        kept = np.delete(np.arange(len(self.records)), rows)
        numbers = self.numbers

        def shorter(records: Records) -> Records:
            return replace(records, number=numbers).select(kept)

        return self._changed(shorter, kept, _with_public_users(self.exp.allocator))

    def replaced(self, rows: np.ndarray) -> Experiment:
        """The experiment in which `rows` say something else, by the unit's number: features turned
        around and far away, the next label, or both. With two classes the gradient of one with both
        grows, and that of one with either turns around."""

        def other(records: Records) -> Records:
            x, y = np.array(records.x), np.array(records.y)
            if self.exp.data.text:
                x[rows] = x[rows][..., ::-1]
            elif rows[0] % 3:
                x[rows] *= -30
            if rows[0] % 3 < 2:
                y[rows] = (y[rows] + 1) % max(2, self.exp.data.outputs)
            return replace(records, x=x, y=y)

        return self._changed(other, np.arange(len(self.records)), self.exp.allocator)

    def _changed(
        self, change: Callable[[Records], Records], kept: np.ndarray, allocator: Allocator
    ) -> Experiment:
        """The experiment on other records. Where owners are drawn, they stay those of `kept`."""
        if self.drawn:
            own = self.exp.allocator
            allocator = _DrawnBefore(own.n_users, own.n_silos, self.owners, kept)
        return replace(with_training_records(self.exp, change), allocator=allocator)


@dataclass(frozen=True, eq=False)
class _DrawnBefore(Allocator):
    """Owners, silos and local tests as they were drawn for the whole file.

    owners: of the whole file.
    kept: rows of it that are left.
    """

    owners: Allocation
    kept: np.ndarray

    invents_users = True  # asked before, for the whole file

    def allocate(self, records: Records, data: DataSet, streams: Streams) -> Allocation:
        user, silo, trains = (
            getattr(self.owners, name)[self.kept] for name in ("user", "silo", "trains")
        )
        return replace(self.owners, user=user, silo=silo, trains=trains)


def _with_public_users(own: Allocator) -> Allocator:
    """The same allocator. It takes its number of users for granted, since that is public: the last
    user may be absent."""
    base = type(own)

    class Public(base):  # type: ignore[misc, valid-type]
        def _known_users(self, records: Records, data: DataSet) -> np.ndarray:
            numbers = records.number if records.user is None else records.user
            assert numbers is not None  # `File.without` names every record
            return numbers

    values = {field.name: getattr(own, field.name) for field in fields(own) if field.init}
    return Public(**values)


FAR = 100.0
"""How much longer than a record of the file those of an extreme file are."""


def extreme(exp: Experiment) -> Experiment:
    """The experiment on a file in which all units push as hard as they can, to reach their bounds:
    copies of one record far away, with no value missing and all labels in turn. The user with the
    most records has those of another record, twice as far: means over who is there, and not over a
    public number, then move by more than that user's own part.
    """
    file = File.of(exp)
    aside = file.owners.user == np.bincount(file.owners.user).argmax()

    def stretched(records: Records) -> Records:
        x, y = np.nan_to_num(records.x), np.array(records.y)
        flat = x.reshape(len(x), -1)
        other = int(
            np.abs(flat @ flat[0] / np.maximum(np.linalg.norm(flat, axis=1), 1e-9)).argmin()
        )
        scale = 1.0 if exp.data.text else FAR
        x[~aside], x[aside] = scale * x[0], (1 + (scale > 1)) * scale * x[other]
        if y.ndim == 1:
            y[:] = np.arange(len(y)) % max(2, exp.data.outputs)
        return replace(records, x=x, y=y)

    return with_training_records(exp, stretched)


FEW = 60
"""Records of a small file, of which batches are a large part."""


def few(exp: Experiment) -> Experiment:
    """The experiment on a small file, spread over its own; its own where the settings need more."""
    small = with_training_records(
        exp, lambda own: own.select(np.linspace(0, len(own) - 1, min(FEW, len(own))).astype(int))
    )
    try:
        small.algo.queries(1, small.planner.plan(allocate(small)[2]))
    except FedprivError:
        return exp
    return small
