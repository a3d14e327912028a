"""Whose classes and functions look like the framework's own."""

from dataclasses import dataclass
from functools import wraps

import pytest

from fedpriv.algorithms.budgets import Budget
from fedpriv.algorithms.record_method import RecordMethod
from fedpriv.algorithms.uldp import UldpSgd
from fedpriv.rounds.contributors import Users
from fedpriv.rounds.user_groups import UserGroup
from fedpriv.util.authorship import all_built_in, components, is_built_in


@wraps(RecordMethod.training_records)
def logged(self, allocation, data):
    return allocation


@wraps(UldpSgd, updated=())
class Registered(UldpSgd):
    """A decorator has given it the names of the class that it extends."""


@pytest.mark.parametrize(
    ("kind", "other"), [(RecordMethod.training_records, logged), (UldpSgd, Registered)]
)
def test_copied_names_make_nothing_the_frameworks_own(kind, other):
    assert is_built_in(kind)
    assert other.__module__ == kind.__module__
    assert not is_built_in(other)


@dataclass(frozen=True)
class OwnGroup(UserGroup):
    def takes_part(self, round):
        return False


@dataclass(frozen=True)
class Budgeted:
    budgets: dict[str, Budget]


def test_components_are_found_in_collections():
    group = UserGroup("all", 1.0, share=1.0, users=(1, 2))
    assert list(components(Users(grouped=(group,)))) == [Users().by, group]
    assert all_built_in(Users(grouped=(group,)))
    assert not all_built_in(Users(grouped=(OwnGroup("all", 1.0, share=1.0),)))
    budget = Budget(1.0, share=1.0)
    assert list(components(Budgeted({"all": budget}))) == [budget]
