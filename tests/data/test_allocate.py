from dataclasses import dataclass

import numpy as np
import pytest

from fedpriv.data.adult import Adult
from fedpriv.data.allocate import Equal, Natural, Uniform, Zipf
from fedpriv.data.base import DataSet, Records
from fedpriv.data.breast_cancer import BreastCancer
from fedpriv.data.creditcard import CreditCard
from fedpriv.data.digits import Digits
from fedpriv.data.heart_disease import HeartDisease
from fedpriv.data.mnist import Mnist
from fedpriv.data.tcga_brca import TcgaBrca
from fedpriv.errors import ConfigError
from fedpriv.streams import Streams


@dataclass(frozen=True)
class Owned(DataSet):
    """Three hospitals that know their five patients."""

    shape = (1,)
    outputs = 2
    natural_silos = 3
    natural_users = True

    @property
    def task(self):
        raise NotImplementedError

    def load(self, streams):
        raise NotImplementedError


def records(n=600, classes=10, silo=None, user=None):
    return Records(np.zeros((n, 1), np.float32), np.arange(n) % classes, silo, user)


@pytest.mark.parametrize("allocator", [Uniform, Zipf, Equal, Natural])
@pytest.mark.parametrize(("users", "silos", "key"), [(0, 3, "n_users=0"), (-1, 3, "n_users=-1"), (5, 0, "n_silos=0")])
def test_sizes_are_positive(allocator, users, silos, key):
    with pytest.raises(ConfigError, match=f"allocator.{key}: a positive"):
        allocator(users, silos)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"local_test": 1.0}, "allocator.local_test=1.0"),
        ({"local_test": -0.1}, "allocator.local_test=-0.1"),
        ({"local_test": float("nan")}, "allocator.local_test=nan"),
        ({"local_test_from": 0}, "allocator.local_test_from=0"),
        ({"alpha_user": -1.0}, "allocator.alpha_user=-1.0"),
        ({"alpha_silo": float("inf")}, "allocator.alpha_silo=inf"),
        ({"alpha_silo": float("nan")}, "allocator.alpha_silo=nan"),
    ],
)
def test_impossible_values(arguments, message):
    with pytest.raises(ConfigError, match=message):
        Zipf(5, 3, **arguments)


@pytest.mark.parametrize(
    ("allocator", "data", "message"),
    [
        (Zipf(50, 3), HeartDisease(), "allocator.n_silos=3: 4, the number of silos that HeartDisease carries"),
        (Uniform(50, 5), TcgaBrca(), "allocator.n_silos=5: 6"),
        (Natural(486, 5), HeartDisease(), "allocator.n_silos=5: 4"),
        (Uniform(50, 3, labels_per_user=11), Digits(), "allocator.labels_per_user=11: 1 to 10"),
        (Uniform(50, 3, labels_per_user=0), Digits(), "allocator.labels_per_user=0: 1 to 10"),
        (Zipf(4, 3, labels_per_user=2), Mnist(), "allocator.labels_per_user=2: 3 or more, so that 4 users"),
        (Uniform(50, 4, labels_per_user=1), HeartDisease(), "allocator.labels_per_user=1: null, because the records"),
        (Uniform(50, 6, labels_per_user=1), TcgaBrca(), "allocator.labels_per_user=1: null"),
        (Natural(50, 3), BreastCancer(), "allocator=natural: uniform or zipf, because BreastCancer does not say"),
        (Natural(50, 5), CreditCard(), "allocator=natural"),
        (Equal(4, 4), HeartDisease(), "allocator=equal: natural, uniform or zipf, because the records of HeartDisease"),
        (Equal(50, 16), Adult(), "allocator.n_users=50: 16, as many as silos"),
        (Natural(866, 6), TcgaBrca(), "allocator=natural: uniform or zipf, because training on TcgaBrca needs 2"),
    ],
)
def test_what_can_never_work_is_refused_without_data(allocator, data, message):
    with pytest.raises(ConfigError) as caught:
        allocator.check(data)
    assert str(caught.value).startswith(message)
    with pytest.raises(ConfigError, match="allocator"):
        allocator.allocate(None, data, Streams(0))


@pytest.mark.parametrize(
    ("allocator", "data"),
    [
        (Zipf(50, 3), BreastCancer()),
        (Zipf(50, 4), HeartDisease()),
        (Uniform(5, 3, labels_per_user=2), Mnist()),
        (Natural(486, 4), HeartDisease()),
    ],
)
def test_check_accepts_what_works(allocator, data):
    allocator.check(data)


@pytest.mark.parametrize(
    ("allocator", "message"),
    [
        (Uniform(601, 3), "allocator.n_users=601: at most 600"),
        (Zipf(601, 3), "allocator.n_users=601: at most 600"),
        (Uniform(5, 601), "allocator.n_silos=601: at most 600"),
        (Zipf(1, 40, alpha_silo=50.0), "allocator.n_silos=40: fewer silos or more users, because silo"),
    ],
)
def test_what_these_records_cannot_give(allocator, message):
    with pytest.raises(ConfigError) as caught:
        allocator.allocate(records(), Digits(), Streams(0))
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("allocator", [Uniform, Zipf])
def test_too_many_users_for_fixed_silos(allocator):
    tcga = Records(np.zeros((31, 39)), np.ones((31, 2)), np.repeat(np.arange(6), [7, 6, 5, 5, 5, 3]))
    assert allocator(13, 6).allocate(tcga, TcgaBrca(), Streams(0)).n_users == 13
    with pytest.raises(ConfigError, match=r"allocator\.n_users=14: at most 13, so that each user can have 2"):
        allocator(14, 6).allocate(tcga, TcgaBrca(), Streams(0))


def test_a_natural_silo_without_training_records():
    heart = Records(np.zeros((30, 13)), np.ones(30), np.repeat([0, 1, 3], 10))
    for allocator in (Uniform(10, 4), Zipf(10, 4), Natural(30, 4)):
        with pytest.raises(ConfigError, match=r"allocator\.n_silos=4: .* silo 2 would hold no training record"):
            allocator.allocate(heart, HeartDisease(), Streams(0))


def test_a_local_test_split_never_breaks_pairs():
    tcga = Records(np.zeros((60, 39)), np.ones((60, 2)), np.repeat(np.arange(6), 10))
    with pytest.raises(ConfigError, match=r"allocator\.local_test_from=5: 10 or more"):
        Zipf(10, 6, local_test_from=5).allocate(tcga, TcgaBrca(), Streams(0))
    assert Zipf(10, 6, local_test=0.0, local_test_from=5).allocate(tcga, TcgaBrca(), Streams(0)).trains.all()


def test_fixed_silos_can_hold_out_a_local_test():
    heart = Records(np.zeros((120, 13)), np.tile([0.0, 1.0], 60), np.repeat(np.arange(4), 30))
    trains = Uniform(10, 4, local_test=0.2, local_test_from=29).allocate(heart, HeartDisease(), Streams(0)).trains
    assert np.bincount(heart.silo[~trains]).tolist() == [6, 6, 6, 6]


def test_natural_users_are_the_data_sets_own():
    silo, user = np.array([0, 1, 2, 2, 1, 0]), np.array([0, 1, 2, 3, 4, 0])
    allocation = Natural(5, 3).allocate(records(6, 2, silo, user), Owned(), Streams(0))
    np.testing.assert_array_equal(allocation.user, user)
    np.testing.assert_array_equal(allocation.silo, silo)
    assert allocation.trains.all()
    with pytest.raises(ConfigError, match=r"allocator\.n_users=6: 5, the number of users"):
        Natural(6, 3).allocate(records(6, 2, silo, user), Owned(), Streams(0))


def test_one_record_is_one_user_where_the_data_say_no_more():
    heart = Records(np.zeros((8, 13)), np.ones(8), np.arange(8) % 4)
    allocation = Natural(8, 4).allocate(heart, HeartDisease(), Streams(0))
    np.testing.assert_array_equal(allocation.user, np.arange(8))


def test_changing_the_silos_leaves_the_users_alone():
    first, second = (Zipf(20, n).allocate(records(), Digits(), Streams(0)) for n in (3, 4))
    np.testing.assert_array_equal(first.user, second.user)
    assert not np.array_equal(first.silo, second.silo)


def test_labels_per_user_reaches_the_allocation():
    r = records()
    user = Zipf(30, 3, labels_per_user=2).allocate(r, Digits(), Streams(0)).user
    assert max(len(np.unique(r.y[user == u])) for u in range(30)) == 2
    user = Zipf(30, 3).allocate(r, Digits(), Streams(0)).user
    assert max(len(np.unique(r.y[user == u])) for u in range(30)) > 2
