"""What every allocator must do, on every data set it accepts. Add a new one to ALLOCATORS."""

import pickle
from dataclasses import dataclass, replace

import numpy as np
import pytest

from fedpriv.data.adult import Adult
from fedpriv.data.allocate import ByUser, Natural
from fedpriv.data.base import Corpus, DataSet, Records
from fedpriv.data.creditcard import CreditCard
from fedpriv.data.embedded import BreastCancer, Digits
from fedpriv.data.heart_disease import HeartDisease
from fedpriv.data.mnist import Mnist
from fedpriv.data.random_allocators import Dirichlet, Equal, Uniform, Zipf
from fedpriv.data.stability import ADD_REMOVE
from fedpriv.data.tcga_brca import TcgaBrca
from fedpriv.errors import ConfigError
from fedpriv.models.tasks import Classification
from fedpriv.util.streams import Streams


@dataclass(frozen=True)
class Writers(DataSet):
    """Tokens of 40 writers, who have 1 to 40 records each and sit in no silo."""

    shape = (3,)
    outputs = 2
    natural_users = True

    task = Classification()

    def load(self, streams):
        user = streams.generator("writers").permutation(np.repeat(np.arange(40), np.arange(1, 41)))
        x = streams.generator("texts").integers(0, 80, (len(user), 3))
        return Corpus(
            Records(x, x.sum(axis=1) % 2, user=user), Records(x[:50], x[:50].sum(axis=1) % 2)
        )


ALLOCATORS = {
    "uniform": Uniform,
    "zipf": Zipf,
    "two labels": lambda users, silos: Zipf(users, silos, labels_per_user=2),
    "one label": lambda users, silos: Uniform(users, silos, labels_per_user=1),
    "local test": lambda users, silos: Zipf(users, silos, local_test=0.25, local_test_from=50),
    "equal": lambda users, silos: Equal(users, users, local_test_from=50),
    "dirichlet": lambda users, silos: Dirichlet(users, silos, alpha=0.5, local_test_from=50),
    "natural": Natural,
    "by user": lambda users, silos: ByUser(users, min(users, silos), local_test=0.2),
}
OWN_USERS = ["natural", "by user"]


def make(name, users, silos):
    """An allocator of ALLOCATORS; users are drawn over those that a data set names."""
    allocator = ALLOCATORS[name](users, silos)
    return allocator if name in OWN_USERS else replace(allocator, invent_users=True)


DATA = [BreastCancer, Digits, CreditCard, Mnist, HeartDisease, TcgaBrca, Adult, Writers]


def accepted():
    """Data set, name of an allocator and number of users, for all that pass the check before data
    are loaded."""
    for cls in DATA:
        for name in ALLOCATORS:
            for n_users in (10, 40) if name not in OWN_USERS else (None,):
                try:
                    make(name, n_users or 40, cls().natural_silos or 3).check(cls())
                except ConfigError:
                    continue
                yield pytest.param(
                    (cls, name, n_users), id=f"{cls.__name__}, {name}, {n_users} users"
                )


CASES = list(accepted())


@pytest.fixture(scope="module")
def loaded(small_root):
    return {cls: cls(small_root).load(Streams(0)).train for cls in DATA}


@pytest.fixture(params=CASES, scope="module")
def case(request, loaded):
    """Name, data, records, allocator and its allocation with seed 0."""
    cls, name, n_users = request.param
    records = loaded[cls]
    known = len(records) if records.user is None else int(records.user.max()) + 1
    allocator = make(name, n_users or known, cls().natural_silos or 3)
    return name, cls(), records, allocator, allocator.allocate(records, cls(), Streams(0))


def test_every_data_set_has_its_allocators():
    names = [(cls.__name__, name) for cls, name, _ in (case.values[0] for case in CASES)]
    assert {("Mnist", "two labels"), ("HeartDisease", "natural"), ("TcgaBrca", "zipf")} <= set(
        names
    )
    assert {("Mnist", "dirichlet"), ("Writers", "by user")} <= set(names)
    assert ("TcgaBrca", "natural") not in names
    assert len(set(names)) == 6 * 7 + 1 + 4 + 3


def test_every_record_has_exactly_one_owner_and_one_silo(case):
    _, _, records, allocator, allocation = case
    n = len(records)
    assert allocation.user.shape == allocation.silo.shape == allocation.trains.shape == (n,)
    assert allocation.user.dtype == allocation.silo.dtype == np.int64
    assert allocation.trains.dtype == bool
    assert (
        0
        <= allocation.user.min()
        <= allocation.user.max()
        < allocator.n_users
        == allocation.n_users
    )
    assert (
        0
        <= allocation.silo.min()
        <= allocation.silo.max()
        < allocator.n_silos
        == allocation.n_silos
    )
    if records.silo is not None:
        np.testing.assert_array_equal(allocation.silo, records.silo)


def test_counts_sum_to_the_training_records(case):
    *_, allocation = case
    counts = allocation.counts()
    assert counts.shape == (allocation.n_silos, allocation.n_users)
    assert counts.sum() == allocation.trains.sum()
    np.testing.assert_array_equal(
        counts.sum(axis=1), np.bincount(allocation.silo[allocation.trains])
    )
    assert counts.sum(axis=1).min() > 0


def test_the_same_seed_gives_the_same_allocation_and_another_seed_another_one(case):
    name, data, records, allocator, allocation = case
    again, other = (allocator.allocate(records, data, Streams(seed)) for seed in (0, 1))
    for field in ("user", "silo", "trains"):
        np.testing.assert_array_equal(getattr(allocation, field), getattr(again, field))
    assert np.array_equal(allocation.user, other.user) == (name in OWN_USERS)
    assert np.array_equal(allocation.silo, other.silo) == (records.silo is not None)


def test_a_users_records_in_a_silo_come_in_groups(case):
    _, data, _, _, allocation = case
    counts = allocation.counts()
    assert ((counts == 0) | (counts >= data.records_per_draw)).all()


def test_the_label_bound_holds_for_every_user(case):
    _, _, records, allocator, allocation = case
    bound = getattr(allocator, "labels_per_user", None) or len(records)
    assert (
        max(
            len(np.unique(records.y[allocation.user == u], axis=0))
            for u in np.unique(allocation.user)
        )
        <= bound
    )


def test_local_test_splits_are_of_large_silos_by_the_coins_of_records(case):
    name, _, _, allocator, allocation = case
    if name == "by user":
        pytest.skip("holds out records of each user")
    share, above = getattr(allocator, "local_test", 0.0), getattr(allocator, "local_test_from", 0)
    coins = Streams(0).generator("local test").random(len(allocation.silo))
    large = np.bincount(allocation.silo, minlength=allocation.n_silos) > above
    np.testing.assert_array_equal(~allocation.trains, large[allocation.silo] & (coins < share))


def test_it_is_configuration_that_pickles_and_states_its_stability(case):
    _, data, _, allocator, allocation = case
    assert pickle.loads(pickle.dumps(allocator)) == allocator
    assert allocation.stability == allocator.stability(data)
    assert allocation.stability.of("user", ADD_REMOVE).users == 1
