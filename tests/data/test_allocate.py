from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from fedpriv.data.adult import Adult
from fedpriv.data.allocate import ByUser, Natural
from fedpriv.data.base import DataSet, Records
from fedpriv.data.breast_cancer import BreastCancer
from fedpriv.data.creditcard import CreditCard
from fedpriv.data.dealing import dirichlet_silos
from fedpriv.data.digits import Digits
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
    ("make", "message"),
    [
        (
            lambda: Dirichlet(5, 3, alpha=0.0),
            "allocator.alpha=0.0: a concentration from 0.001 to 1e+06",
        ),
        (lambda: Dirichlet(5, 3, alpha=float("nan")), "allocator.alpha=nan"),
        (lambda: Dirichlet(5, 3, alpha=float("inf")), "allocator.alpha=inf"),
        (lambda: Dirichlet(5, 3, users="natural"), "allocator.users=natural: uniform or zipf"),
        (lambda: Dirichlet(5, 3, alpha_user=-1.0), "allocator.alpha_user=-1.0"),
        (lambda: Dirichlet(5, 3, local_test=1.0), "allocator.local_test=1.0"),
        (lambda: ByUser(5, 3, local_test=1.0), "allocator.local_test=1.0"),
        (lambda: ByUser(5, 6), "allocator.n_silos=6: at most 5, the number of users"),
    ],
)
def test_impossible_values_of_the_others(make, message):
    with pytest.raises(ConfigError) as caught:
        make()
    assert str(caught.value).startswith(message)


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
    with pytest.raises(ConfigError) as caught:
        allocator.check(data)
    assert str(caught.value).startswith(message)
    with pytest.raises(ConfigError, match="allocator"):
        allocator.allocate(None, data, Streams(0))


@pytest.mark.parametrize(
    ("allocator", "data"),
    [
        (Zipf(50, 3), BreastCancer()),
        (Zipf(50, 4, invent_users=True), HeartDisease()),
        (Uniform(5, 3, labels_per_user=2), Mnist()),
        (Natural(486, 4), HeartDisease()),
        (Dirichlet(50, 3), Digits()),
        (ByUser(5, 3), Writers()),
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
        (Dirichlet(601, 3), "allocator.n_users=601: at most 600"),
        (
            Dirichlet(5, 40, alpha=1e-3),
            "allocator.alpha=0.001: larger, or fewer silos, because silo",
        ),
        (
            Zipf(1, 40, alpha_silo=50.0),
            "allocator.n_silos=40: fewer silos or more users, because silo",
        ),
    ],
)
def test_what_these_records_cannot_give(allocator, message):
    with pytest.raises(ConfigError) as caught:
        allocator.allocate(records(), Digits(), Streams(0))
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("allocator", [Uniform, Zipf])
def test_too_many_users_for_fixed_silos(allocator):
    tcga = Records(
        np.zeros((31, 39)), np.ones((31, 2)), np.repeat(np.arange(6), [7, 6, 5, 5, 5, 3])
    )
    assert allocator(13, 6, invent_users=True).allocate(tcga, TcgaBrca(), Streams(0)).n_users == 13
    with pytest.raises(
        ConfigError, match=r"allocator\.n_users=14: at most 13, so that each user can have 2"
    ):
        allocator(14, 6, invent_users=True).allocate(tcga, TcgaBrca(), Streams(0))


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


def test_fixed_silos_can_hold_out_a_local_test():
    heart = Records(np.zeros((120, 13)), np.tile([0.0, 1.0], 60), np.repeat(np.arange(4), 30))
    trains = (
        Uniform(10, 4, local_test=0.2, local_test_from=29, invent_users=True)
        .allocate(heart, HeartDisease(), Streams(0))
        .trains
    )
    assert all(0 < held < 15 for held in np.bincount(heart.silo[~trains], minlength=4))


def test_a_local_test_leaves_something_to_train_on():
    with pytest.raises(ConfigError, match=r"allocator\.local_test=0\.99: smaller, because silo"):
        Uniform(5, 5, local_test=0.99, local_test_from=1).allocate(
            records(20), Digits(), Streams(0)
        )


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


@settings(max_examples=40)
@given(
    st.integers(0, 1000),
    st.integers(1, 60),
    st.integers(1, 6),
    st.sampled_from([0.1, 1.0, 100.0]),
    st.sampled_from(["uniform", "zipf"]),
)
def test_dirichlet_gives_every_silo_records_or_says_in_one_line_why_not(
    seed, users, silos, alpha, rule
):
    allocator, r = Dirichlet(users, silos, alpha=alpha, users=rule), records(120)
    drawn = dirichlet_silos(r.y, silos, alpha, rng=Streams(seed).generator("silos of records"))
    missing = sorted(set(range(silos)) - set(drawn.tolist()))
    if missing:
        refusal = (
            rf"^allocator\.alpha={alpha}: larger, or fewer silos, because silo {missing[0]} [^\n]*$"
        )
        with pytest.raises(ConfigError, match=refusal):
            allocator.allocate(r, Digits(), Streams(seed))
        return
    allocation = allocator.allocate(r, Digits(), Streams(seed))
    np.testing.assert_array_equal(allocation.silo, drawn)
    counts = allocation.counts()
    assert counts.sum() == 120
    assert counts.sum(axis=1).min() > 0
    if rule == "zipf":
        assert counts.sum(axis=0).min() > 0


def test_dirichlet_draws_silos_by_label_and_not_by_user():
    few = Dirichlet(20, 4, alpha=0.05, users="uniform")
    alike = Dirichlet(20, 4, alpha=1000.0, users="uniform")
    r = records(6000)

    def largest_share(allocation):
        return np.mean(
            [np.bincount(allocation.silo[r.y == label]).max() / 600 for label in range(10)]
        )

    skewed, flat = (allocator.allocate(r, Digits(), Streams(0)) for allocator in (few, alike))
    assert largest_share(skewed) > 0.8
    assert largest_share(flat) < 0.3
    # Within a silo every user is as likely as any other.
    users = np.bincount(skewed.user[skewed.silo == np.bincount(skewed.silo).argmax()], minlength=20)
    assert chisquare(users).pvalue > 1e-3


def test_a_zipf_user_of_dirichlet_has_a_main_silo():
    def mean_main_share(users):
        counts = (
            Dirichlet(50, 4, alpha=100.0, users=users, local_test=0.0)
            .allocate(records(6000), Digits(), Streams(0))
            .counts()
        )
        return (counts.max(axis=0) / counts.sum(axis=0)).mean()

    assert mean_main_share("zipf") > 0.7
    assert mean_main_share("uniform") < 0.4


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


def test_a_users_split_by_user_depends_on_no_other_user():
    user = np.repeat(np.arange(10), 20)
    whole = ByUser(10, 3, local_test=0.3).allocate(
        records(200, 2, user=user), Writers(), Streams(0)
    )
    short = np.delete(np.arange(200), np.arange(60, 79))  # user 3 keeps one record
    less = ByUser(10, 3, local_test=0.3).allocate(
        records(181, 2, user=user[short]), Writers(), Streams(0)
    )
    others = user[short] != 3
    np.testing.assert_array_equal(whole.trains[short][others], less.trains[others])
    np.testing.assert_array_equal(whole.silo[short], less.silo)
