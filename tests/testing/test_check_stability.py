"""Allocators and methods that declare more stability than they have are found out."""

from dataclasses import dataclass, fields, replace

import numpy as np
import pytest

from fedpriv.algorithms.uldp import UldpSgd
from fedpriv.data.allocate import Allocation, Allocator
from fedpriv.data.stability import LOADED, OWN_USERS, READING, Stability
from fedpriv.testing import ConformanceError, check_algorithm, experiment
from fedpriv.testing.allocators import check_stability


@dataclass(frozen=True)
class Turns(Allocator):
    """Record i belongs to user i mod n: one absent shifts all behind it."""

    def allocate(self, records, data, streams):
        at = np.arange(len(records))
        user, trains = at % self.n_users, np.ones(len(at), dtype=bool)
        stability = self.stability(data)
        return Allocation(
            user, user % self.n_silos, trains, self.n_users, self.n_silos, stability=stability
        )

    def stability(self, data):
        return Stability(LOADED, before=(READING,)).then(OWN_USERS)


@dataclass(frozen=True)
class Honest(Turns):
    """The owner depends on a record's own features."""

    def allocate(self, records, data, streams):
        whole = super().allocate(records, data, streams)
        user = np.floor(np.abs(records.x[:, 0]) * 1000).astype(np.int64) % self.n_users
        return replace(whole, user=user, silo=user % self.n_silos)

    def stability(self, data):
        return Stability(LOADED, before=(READING,)).then(OWN_USERS)


@dataclass(frozen=True)
class Median(UldpSgd):
    """Trains on users with many records, and calls that a stage that changes nothing."""

    def training_records(self, allocation, data):
        owned = allocation.counts().sum(axis=0)[allocation.user]
        kept = replace(allocation, trains=allocation.trains & (owned >= np.median(owned)))
        return replace(kept, stability=allocation.stability.then(OWN_USERS))


def small(*words):
    return experiment("algo=uldp_sgd", "preset.n_users=8", *words)


def test_what_ships_is_as_stable_as_declared():
    check_stability(small("algo=uldp_group_2"), records=5)
    check_stability(replace(small(), allocator=Honest(8, 3)), records=5)


def test_an_allocator_that_lies():
    with pytest.raises(ConformanceError, match=r"Turns: without one .* differ; declared are"):
        check_stability(replace(small(), allocator=Turns(8, 3)))


def test_a_method_that_lies():
    exp = small()
    values = {field.name: getattr(exp.algo, field.name) for field in fields(exp.algo)}
    with pytest.raises(ConformanceError, match=r"training records of . users differ"):
        check_stability(replace(exp, algo=Median(**values)))
    with pytest.raises(ConformanceError, match=r"training records of . users differ"):
        check_algorithm(Median(**values))
