"""The base of all data sets: records with labels, a test split and a task.

A data set does not define users; the allocator does. It may carry silos of its own (hospitals,
centres).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.data.stability import READING, Stage
from fedpriv.errors import ConfigError
from fedpriv.models.tasks import Task
from fedpriv.util.installed import installed

if TYPE_CHECKING:
    from fedpriv.util.streams import Streams


EXACT_TESTS = (
    "test records belong to persons too: the metrics on them are exact, and no epsilon covers "
    "persons in the test part"
)
"""Holds of a run that publishes metrics on them (`evaluation=exact`)."""


@dataclass(frozen=True)
class Records:
    """n records in a fixed public order.

    x: (n, ...) features, float32, or integers such as the int64 token ids of an embedding.
    y: (n,) int64 class, (n,) float32 label 0 or 1, or (n, 2) float32 (event, time) for survival.
    silo: (n,) int64 silo of each record, None if the data set has no silos.
    user: (n,) int64 owner of each record, None if the data set has no users.
    number: (n,) int64 different numbers that name the records' random draws, ascending; None: their
        rows. Where a record is absent, all others keep their numbers.
    n_users: number of users on the public list, of whom some may own none of these records; None:
        the largest number in `user`, and one.
    user_names: a text for each number in `user`, from which the user's own draws come. Where a user
        is absent, all others keep their names, but not their numbers. None: draws come from the
        numbers.
    """

    x: np.ndarray
    y: np.ndarray
    silo: np.ndarray | None = None
    user: np.ndarray | None = None
    number: np.ndarray | None = None
    n_users: int | None = None
    user_names: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.x)

    def select(self, rows: np.ndarray) -> Records:
        """The records in some rows, in the order of `rows`, with the same public list of users."""

        def selected(values: Any) -> Any:
            return values[rows] if isinstance(values, np.ndarray) else values

        return Records(*(selected(getattr(self, each.name)) for each in fields(self)))


@dataclass(frozen=True)
class Corpus:
    """A loaded data set.

    train: training records, which the allocator assigns to users and silos.
    test: central test records.
    notes: what the person who runs it should know of how the records were read, a line each. It
        may contain private numbers.
    groups: groups of the test records by name, (n,) bool each, whose metrics are of interest.
    owned_test: the test records with their owners, where `test` does not name them because nobody
        of them trains; None: `test` has what is known.
    encoding: of a table, how its rows became features (`fedpriv.data.table.encoding`); else None.
    """

    train: Records
    test: Records
    notes: tuple[str, ...] = field(default=(), kw_only=True)
    groups: Mapping[str, np.ndarray] = field(default_factory=dict, kw_only=True)
    owned_test: Records | None = field(default=None, kw_only=True)
    encoding: Any = field(default=None, kw_only=True)


@dataclass(frozen=True)
class DataSet(ABC):
    """A data set by its configuration; nothing is read before `load`.

    root: folder with the official layout, or None to use FEDPRIV_DATA, then the user's cache
        (downloaded on first use).

    A data set names its shape, its outputs and its task, and implements `load`:

    >>> from fedpriv.models.tasks import Classification
    >>> from fedpriv.util.streams import Streams
    >>> class Coins(DataSet):
    ...     shape, outputs, task = (1,), 2, Classification()
    ...     def load(self, streams):
    ...         y = streams.generator("coins").integers(2, size=100)
    ...         x = y[:, None].astype(np.float32)
    ...         return Corpus(train=Records(x[:80], y[:80]), test=Records(x[80:], y[80:]))
    >>> corpus = Coins().load(Streams(seed=0))
    >>> len(corpus.train), len(corpus.test)
    (80, 20)
    """

    root: str | None = None

    # Known before records are read, so that queries and epsilons need none. Most data sets set them
    # as class attributes; one that a file declares (`fedpriv.data.table`) computes them.

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one record's features, (30,) or (1, 28, 28)."""
        return ()

    @property
    def outputs(self) -> int:
        """Width of the model's output: number of classes, or 1 for a logit or a risk score."""
        return 0

    @property
    @abstractmethod
    def task(self) -> Task:
        """Loss and metrics."""

    @property
    def natural_silos(self) -> int | None:
        """Number of silos that the data set carries, or None if the allocator makes them."""
        return None

    @property
    def silo_names(self) -> tuple[str, ...]:
        """Names of the silos that the data set carries; empty: they have none."""
        return ()

    def of_site(self, path: str | None) -> DataSet:
        """The records of one organisation, in a file of its own; None: of nobody. Raises
        ConfigError unless everything that its reading depends on is public."""
        own = "table, with a schema: each organisation reads its own file"
        raise ConfigError("data", type(self).__name__, own)

    @property
    def natural_users(self) -> bool:
        """Whether the owner of every record is known (for example one record per patient)."""
        return False

    @property
    def users_of_one_silo(self) -> bool:
        """Whether a user is somebody in one silo, so that nobody has records in two."""
        return False

    @property
    def text(self) -> bool:
        """Whether features are characters, given by integers without an order."""
        return False

    @property
    def records_per_draw(self) -> int:
        """A user's records in a silo come in groups of this size (2 for Cox losses, which need
        pairs)."""
        return 1

    @property
    def user_is(self) -> str:
        """What one user stands for, where a reader of an epsilon has to know it; else empty."""
        return ""

    @property
    def public_by_word(self) -> str:
        """What an epsilon takes as public because the owner of the records says so; else empty."""
        return ""

    @property
    def reading(self) -> Stage:
        """How far apart neighbouring files are after they are read, split and scaled."""
        return READING

    def public_users(self, streams: Streams) -> int:
        """Number of users on the public list: what `n_users: null` stands for. Reads the records,
        unless a data set knows it before."""
        corpus = self.load(streams)
        return count_users(corpus.train)

    @property
    def not_covered(self) -> tuple[str, ...]:
        """Steps of `load` that look at private data and that no epsilon covers, in addition to
        those of every run."""
        return ()

    @property
    def disjoint_test(self) -> bool:
        """Whether no test record belongs to a user who trains. Where users are known, the data set
        has to say so."""
        return not self.natural_users

    @property
    def private_test(self) -> bool:
        """Whether the test records are of persons too, so that metrics on them are not public."""
        return False

    @property
    def numbers_are_public(self) -> bool:
        """Whether the number of a user is public knowledge, so that settings may name users by it.
        It is not if it depends on who else is in the file. A class of somebody else whose records
        name their users has to say so."""
        return not self.natural_users or installed(self)

    @property
    def read_without_noise(self) -> tuple[str, ...]:
        """What was read off the records without noise and enters the model, in lines for a person:
        scales or lists of categories, for example. An epsilon takes it as given, so a model with
        such lines is not private. The public data sets of fedpriv have none. A class of somebody
        else has to say so, or to state its `reading`."""
        cls = type(self)
        if installed(self) or cls.reading is not DataSet.reading:
            return ()
        return (
            f"{cls.__name__} does not say what it reads off the records without noise "
            "(read_without_noise)",
        )

    @property
    def description(self) -> tuple[str, ...]:
        """How the records are read, in lines for a person."""
        return ()

    @property
    def summary(self) -> tuple[str, ...]:
        """What a run says of it before it trains."""
        return self.description

    @abstractmethod
    def load(self, streams: Streams) -> Corpus:
        """Read, check, split and preprocess the records. Raises DataError with one line that names
        the file."""


def count_users(records: Records) -> int:
    """Number of users on the public list, or else of those who own records; without known users
    each record has its own."""
    if records.n_users is not None:
        return records.n_users
    return len(records) if records.user is None else int(records.user.max()) + 1


def pool(
    parts: Iterable[tuple[np.ndarray, np.ndarray]],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features and labels of all parts in their order, and the number of each record's part, (n,)
    int64."""
    numbered = [(x, y, np.full(len(y), number)) for number, (x, y) in enumerate(parts)]
    x, y, part = (np.concatenate(arrays) for arrays in zip(*numbered))
    return x, y, part


def with_corpus(
    data: DataSet, change: Callable[[Corpus, Streams], Corpus], **facts: Any
) -> DataSet:
    """The data set with changed records. facts: what it then says of itself."""
    base: Any = type(data)

    class ChangedData(base):  # type: ignore[misc]
        def load(self, streams: Streams) -> Corpus:
            return change(base.load(self, streams), streams)

    for name, value in facts.items():
        setattr(ChangedData, name, value)
    own = {one.name: getattr(data, one.name) for one in fields(data) if one.init}
    return ChangedData(**own)
