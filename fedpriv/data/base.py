"""What a data set is: records with labels, a test split and a task.

A data set says nothing about users; the allocator does. It may carry silos of its own (hospitals,
centres).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

if TYPE_CHECKING:
    from fedpriv.models.tasks import Task
    from fedpriv.util.streams import Streams


@dataclass(frozen=True)
class Records:
    """n records in a fixed public order.

    x: (n, ...) features, float32 or integers (such as int64 token ids, which an embedding takes).
    y: (n,) int64 class, (n,) float32 0/1 label, or (n, 2) float32 (event, time) for survival.
    silo: (n,) int64 when the data set itself says which silo holds each record.
    user: likewise, its owner.
    """

    x: np.ndarray
    y: np.ndarray
    silo: np.ndarray | None = None
    user: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.x)


@dataclass(frozen=True)
class Corpus:
    """A loaded data set: training records, which the allocator deals out, and central test
    records.
    """

    train: Records
    test: Records


@dataclass(frozen=True)
class DataSet(ABC):
    """A data set by its configuration; nothing is read before `load`.

    root: folder with the official layout, or None to use FEDPRIV_DATA, then the user's cache
    (downloaded on first use).
    """

    root: str | None = None

    # What is known without reading anything, so that queries and epsilons need no data. Subclasses
    # set them.
    shape: ClassVar[tuple[int, ...]] = ()
    """Shape of one record's features, (30,) or (1, 28, 28)."""
    outputs: ClassVar[int] = 0
    """Width of the model's output: classes, or 1 for a logit or a risk score."""
    natural_silos: ClassVar[int | None] = None
    """Number of silos the data set carries, or None when the allocator makes them."""
    natural_users: ClassVar[bool] = False
    """Whether every record's owner is known (for example one record a patient)."""
    text: ClassVar[bool] = False
    """Whether features are characters, whole numbers that stand for nothing but themselves."""
    records_per_draw: ClassVar[int] = 1
    """Records of a user in one silo come in groups of this size (2 for Cox losses, which need
    pairs)."""

    @property
    @abstractmethod
    def task(self) -> Task:
        """Loss and metrics of this data set."""

    @property
    def not_covered(self) -> tuple[str, ...]:
        """What reading this data set does that no epsilon covers, beyond what is said of every
        run.
        """
        return ()

    @property
    def disjoint_test(self) -> bool:
        """Whether no test record belongs to a user who trains. Where users are known, the data set
        has to say so."""
        return not self.natural_users

    @abstractmethod
    def load(self, streams: Streams) -> Corpus:
        """Read, check, split and preprocess. Raises DataError with one line that names the file."""
