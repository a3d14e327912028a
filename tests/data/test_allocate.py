from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

from fedpriv.data.adult import Adult
from fedpriv.data.allocate import ByUser, Natural
from fedpriv.data.base import DataSet, Records
from fedpriv.data.creditcard import CreditCard
from fedpriv.data.dealing import dirichlet_silos
from fedpriv.data.embedded import BreastCancer, Digits
from fedpriv.data.heart_disease import HeartDisease
from fedpriv.data.mnist import Mnist
from fedpriv.data.random_allocators import Dirichlet, Equal, Uniform, Zipf
from fedpriv.data.split import share
from fedpriv.data.tcga_brca import TcgaBrca
from fedpriv.errors import ConfigError
from fedpriv.util.streams import Streams


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


@dataclass(frozen=True)
class Writers(Owned):
    """Records of known writers, in no silo."""

    natural_silos = None


def records(n=600, classes=10, silo=None, user=None):
    return Records(np.zeros((n, 1), np.float32), np.arange(n) % classes, silo, user)


@pytest.mark.parametrize("allocator", [Uniform, Zipf, Equal, Dirichlet, Natural, ByUser])
@pytest.mark.parametrize(
    ("users", "silos", "key"), [(0, 3, "n_users=0"), (-1, 3, "n_users=-1"), (5, 0, "n_silos=0")]
)
def test_sizes_are_positive(allocator, users, silos, key):
    with pytest.raises(ConfigError, match=f"allocator.{key}: a positive"):
        allocator(users, silos)


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("allocator", "arguments", "message"),
    [
        (Zipf, {"local_test": 1.0}, "allocator.local_test=1.0"),
        (Zipf, {"local_test": -0.1}, "allocator.local_test=-0.1"),
        (Zipf, {"local_test": NAN}, "allocator.local_test=nan"),
        (Zipf, {"local_test_from": 0}, "allocator.local_test_from=0"),
        (Zipf, {"alpha_user": -1.0}, "allocator.alpha_user=-1.0"),
        (Zipf, {"alpha_silo": INF}, "allocator.alpha_silo=inf"),
        (Zipf, {"alpha_silo": NAN}, "allocator.alpha_silo=nan"),
        (Dirichlet, {"alpha": 0.0}, "allocator.alpha=0.0: a concentration from 0.001 to 1e+06"),
        (Dirichlet, {"alpha": NAN}, "allocator.alpha=nan"),
        (Dirichlet, {"alpha": INF}, "allocator.alpha=inf"),
        (Dirichlet, {"alpha_user": -1.0}, "allocator.alpha_user=-1.0"),
        (Dirichlet, {"local_test": 1.0}, "allocator.local_test=1.0"),
        (ByUser, {"local_test": 1.0}, "allocator.local_test=1.0"),
        (ByUser, {"n_silos": 6}, "allocator.n_silos=6: at most 5, the number of users"),
    ],
)
def test_impossible_values(allocator, arguments, message):
    settings = {"n_users": 5, "n_silos": 3, **arguments}
    refused(lambda: allocator(**settings), error=ConfigError, start=message)


@pytest.mark.parametrize(
    ("allocator", "data", "message"),
    [
        (
            Zipf(50, 3),
            HeartDisease(),
            "allocator.n_silos=3: 4, the number of silos that HeartDisease carries",
        ),
        (Uniform(50, 5, invent_users=True), TcgaBrca(), "allocator.n_silos=5: 6"),
        (Natural(486, 5), HeartDisease(), "allocator.n_silos=5: 4"),
        (Uniform(50, 3, labels_per_user=11), Digits(), "allocator.labels_per_user=11: 1 to 10"),
        (Uniform(50, 3, labels_per_user=0), Digits(), "allocator.labels_per_user=0: 1 to 10"),
        (
            Zipf(4, 3, labels_per_user=2),
            Mnist(),
            "allocator.labels_per_user=2: 3 or more, so that 4 users",
        ),
        (
            Uniform(50, 4, labels_per_user=1, invent_users=True),
            HeartDisease(),
            "allocator.labels_per_user=1: null, because the records",
        ),
        (
            Uniform(50, 6, labels_per_user=1, invent_users=True),
            TcgaBrca(),
            "allocator.labels_per_user=1: null",
        ),
        (
            Natural(50, 3),
            BreastCancer(),
            "allocator=natural: uniform or zipf, because BreastCancer does not say",
        ),
        (Natural(50, 5), CreditCard(), "allocator=natural"),
        (
            Equal(4, 4, invent_users=True),
            HeartDisease(),
            "allocator=equal: natural, uniform or zipf, because the records of HeartDisease",
        ),
        (Equal(50, 16), Adult(), "allocator.n_users=50: 16, as many as silos"),
        (
            Natural(866, 6),
            TcgaBrca(),
            "allocator=natural: uniform or zipf, because training on TcgaBrca needs 2",
        ),
        (
            Dirichlet(50, 4, invent_users=True),
            HeartDisease(),
            "allocator=dirichlet: natural, uniform or zipf, because the records of",
        ),
        (
            ByUser(486, 4),
            HeartDisease(),
            "allocator=by_user: natural, uniform or zipf, because the records of",
        ),
        (
            ByUser(50, 3),
            BreastCancer(),
            "allocator=by_user: uniform or zipf, because BreastCancer does not say",
        ),
    ],
)
def test_what_can_never_work_is_refused_without_data(allocator, data, message):
    refused(lambda: allocator.check(data), start=message)


@pytest.mark.parametrize(
    ("allocator", "message"),
    [
        (Uniform(601, 3), "allocator.n_users=601: at most 600"),
        (Zipf(601, 3), "allocator.n_users=601: at most 600"),
        (Uniform(5, 601), "allocator.n_silos=601: at most 600"),
        (Dirichlet(601, 3), "allocator.n_users=601: at most 600"),
        (
            Dirichlet(5, 40, alpha=1e-3),
            "allocator.n_silos=40: fewer, because silo",
        ),
        (
            Zipf(1, 40, alpha_silo=50.0),
            "allocator.n_silos=40: fewer, because silo",
        ),
    ],
)
def test_what_these_records_cannot_give(allocator, message):
    refused(lambda: allocator.allocate(records(), Digits(), Streams(0)), start=message)


@pytest.mark.parametrize("allocator", [Uniform, Zipf])
def test_too_many_users_for_fixed_silos(allocator):
    tcga = Records(
        np.zeros((31, 39)), np.ones((31, 2)), np.repeat(np.arange(6), [7, 6, 5, 5, 5, 3])
    )
    assert allocator(13, 6, invent_users=True).allocate(tcga, TcgaBrca(), Streams(0)).n_users == 13
    more = allocator(14, 6, invent_users=True)
    start = "allocator.n_users=14: at most 13, so that each user can have 2"
    refused(lambda: more.allocate(tcga, TcgaBrca(), Streams(0)), error=ConfigError, start=start)


def test_a_natural_silo_without_training_records():
    heart = Records(np.zeros((30, 13)), np.ones(30), np.repeat([0, 1, 3], 10))
    for allocator in (
        Uniform(10, 4, invent_users=True),
        Zipf(10, 4, invent_users=True),
        Natural(30, 4),
    ):
        with pytest.raises(
            ConfigError, match=r"allocator\.n_silos=4: .* silo 2 would hold no training record"
        ):
            allocator.allocate(heart, HeartDisease(), Streams(0))


def test_a_local_test_split_never_breaks_pairs():
    tcga = Records(np.zeros((60, 39)), np.ones((60, 2)), np.repeat(np.arange(6), 10))
    with pytest.raises(ConfigError, match=r"allocator\.local_test_from=5: 10 or more"):
        Zipf(10, 6, local_test_from=5, invent_users=True).allocate(tcga, TcgaBrca(), Streams(0))
    assert (
        Zipf(10, 6, local_test=0.0, local_test_from=5, invent_users=True)
        .allocate(tcga, TcgaBrca(), Streams(0))
        .trains.all()
    )


def test_changing_the_silos_leaves_the_users_alone():
    first, second = (Zipf(20, n).allocate(records(), Digits(), Streams(0)) for n in (3, 4))
    np.testing.assert_array_equal(first.user, second.user)
    assert not np.array_equal(first.silo, second.silo)


@settings(max_examples=40)
@given(
    st.integers(0, 1000),
    st.integers(1, 60),
    st.integers(1, 6),
    st.sampled_from([0.1, 1.0, 100.0]),
)
def test_dirichlet_gives_every_silo_records_or_says_in_one_line_why_not(seed, users, silos, alpha):
    allocator, r = Dirichlet(users, silos, alpha=alpha), records(120)
    drawn = dirichlet_silos(r.y, silos, alpha, rng=Streams(seed).generator("silos of records"))
    missing = sorted(set(range(silos)) - set(drawn.tolist()))
    if missing:
        start = f"allocator.n_silos={silos}: fewer, because silo {missing[0]} "
        refused(lambda: allocator.allocate(r, Digits(), Streams(seed)), start=start)
        return
    allocation = allocator.allocate(r, Digits(), Streams(seed))
    np.testing.assert_array_equal(allocation.silo, drawn)
    counts = allocation.counts()
    assert counts.sum() == 120
    assert counts.sum(axis=1).min() > 0
    assert counts.sum(axis=0).min() > 0


WRITERS = st.integers(1, 30).flatmap(
    lambda n: st.tuples(
        st.permutations([*range(n), *(i % n for i in range(2 * n))]), st.integers(1, n)
    )
)


@settings(max_examples=40)
@given(WRITERS, st.sampled_from([0.0, 0.1, 0.5, 0.99]), st.integers(0, 1000))
def test_by_user_deals_users_out_whole_and_equally(case, test, seed):
    order, silos = case
    user = np.array(order)
    n_users = int(user.max()) + 1
    allocation = ByUser(n_users, silos, local_test=test).allocate(
        records(len(user), 2, user=user), Writers(), Streams(seed)
    )
    np.testing.assert_array_equal(allocation.user, user)
    homes = [np.unique(allocation.silo[user == u]) for u in range(n_users)]
    assert all(len(home) == 1 for home in homes)
    sizes = np.bincount(np.concatenate(homes), minlength=silos)
    assert sizes.max() - sizes.min() <= 1
    trained = np.bincount(user[allocation.trains], minlength=n_users)
    assert trained.min() >= 1
    for u in range(n_users):
        n = int((user == u).sum())
        assert n - trained[u] == min(share(n, test), n - 1)


def test_by_user_needs_the_data_sets_number_of_users():
    user = np.array([0, 1, 2, 1])
    with pytest.raises(ConfigError, match=r"allocator\.n_users=4: 3, the number of users"):
        ByUser(4, 2).allocate(records(4, 2, user=user), Writers(), Streams(0))
    unnamed = ByUser(4, 2).allocate(records(4, 2), Writers(), Streams(0))
    np.testing.assert_array_equal(unnamed.user, np.arange(4))
    assert unnamed.trains.all()
