"""The base of all data sets: records with labels, a test split and a task.

A data set does not define users; the allocator does. It may carry silos of its own (hospitals,
centres).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fedpriv.models.tasks import Task

if TYPE_CHECKING:
    from fedpriv.util.streams import Streams


@dataclass(frozen=True)
class Records:
    """n records in a fixed public order.

    x: (n, ...) features, float32, or integers such as the int64 token ids of an embedding.
    y: (n,) int64 class, (n,) float32 label 0 or 1, or (n, 2) float32 (event, time) for survival.
    silo: (n,) int64 silo of each record, None if the data set has no silos.
    user: (n,) int64 owner of each record, None if the data set has no users.
    number: (n,) int64 different numbers that name the records' random draws, ascending; None: their
        rows. Where a record is absent, all others keep their numbers.
    """

    x: np.ndarray
    y: np.ndarray
    silo: np.ndarray | None = None
    user: np.ndarray | None = None
    number: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.x)


@dataclass(frozen=True)
class Corpus:
    """A loaded data set.

    train: training records, which the allocator assigns to users and silos.
    test: central test records.
    """

    train: Records
    test: Records


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

    # Known without reading anything, so that queries and epsilons need no data. Subclasses set
    # them.
    shape: ClassVar[tuple[int, ...]] = ()
    """Shape of one record's features, (30,) or (1, 28, 28)."""
    outputs: ClassVar[int] = 0
    """Width of the model's output: number of classes, or 1 for a logit or a risk score."""
    task: ClassVar[Task]
    """Loss and metrics."""
    natural_silos: ClassVar[int | None] = None
    """Number of silos that the data set carries, or None if the allocator makes them."""
    natural_users: ClassVar[bool] = False
    """Whether the owner of every record is known (for example one record per patient)."""
    text: ClassVar[bool] = False
    """Whether features are characters, given by integers without an order."""
    records_per_draw: ClassVar[int] = 1
    """A user's records in a silo come in groups of this size (2 for Cox losses, which need
    pairs)."""

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

    @abstractmethod
    def load(self, streams: Streams) -> Corpus:
        """Read, check, split and preprocess the records. Raises DataError with one line that names
        the file."""


def pool(
    parts: Iterable[tuple[np.ndarray, np.ndarray]],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features and labels of all parts in their order, and the number of each record's part, (n,)
    int64."""
    numbered = [(x, y, np.full(len(y), number)) for number, (x, y) in enumerate(parts)]
    x, y, part = (np.concatenate(arrays) for arrays in zip(*numbered))
    return x, y, part
