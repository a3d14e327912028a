"""The test records of a data set, as the records of a population of their own."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from fedpriv.data.base import EXACT_TESTS, Corpus, DataSet, Records
from fedpriv.data.stability import Stage
from fedpriv.errors import DataError
from fedpriv.models.tasks import Task
from fedpriv.util.installed import installed
from fedpriv.util.streams import Streams

MOST_USERS = 10**6
"""Public: no data set has more test persons."""
TRAINS_TOO = (
    "test persons may have trained the model as well: add the epsilon of its training to that of "
    "its evaluation"
)


@dataclass(frozen=True)
class TestRecords(DataSet):
    """The test records of another data set, with their owners where it knows them; else each record
    is taken as another person.

    whole: the data set.
    """

    __test__ = False  # no test class of pytest

    whole: DataSet = field(kw_only=True)

    natural_users = True
    users_of_one_silo = True
    numbers_are_public = False  # places of the names that are in the file
    disjoint_test = True  # there are no other records

    @property
    def shape(self) -> tuple[int, ...]:
        return self.whole.shape

    @property
    def outputs(self) -> int:
        return self.whole.outputs

    @property
    def task(self) -> Task:
        return self.whole.task

    @property
    def text(self) -> bool:
        return self.whole.text

    @property
    def user_is(self) -> str:
        known = self.whole.user_is if self.whole.natural_users else "every record is another person"
        return "; ".join(text for text in ("a user is a test person", known) if text)

    @property
    def public_by_word(self) -> str:
        return self.whole.public_by_word

    @property
    def reading(self) -> Stage:
        return self.whole.reading

    @property
    def not_covered(self) -> tuple[str, ...]:
        both = () if self.whole.disjoint_test else (TRAINS_TOO,)
        return (*(text for text in self.whole.not_covered if text != EXACT_TESTS), *both)

    @property
    def read_without_noise(self) -> tuple[str, ...]:
        return self.whole.read_without_noise

    @property
    def description(self) -> tuple[str, ...]:
        return (f"test records of {type(self.whole).__name__}: {self.user_is}",)

    def public_users(self, streams: Streams) -> int:
        return MOST_USERS

    def load(self, streams: Streams) -> Corpus:
        corpus = self.whole.load(streams)
        test = corpus.test if corpus.owned_test is None else corpus.owned_test
        name = type(self.whole).__name__
        if not len(test):
            raise DataError(f"{name}: no test records")
        owners = np.arange(len(test)) if test.user is None else test.user
        if test.user is None and self.whole.natural_users and not installed(self.whole):
            raise DataError(f"{name}: test records without owners; name them in Records.user")
        if (count := int(owners.max()) + 1) > MOST_USERS:
            raise DataError(f"{name}: {count} test persons; at most {MOST_USERS}")
        test = replace(test, silo=None, user=owners, n_users=MOST_USERS)
        none = Records(test.x[:0], test.y[:0])
        return Corpus(test, none, encoding=corpus.encoding)
