import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from fedpriv.data.base import Records
from fedpriv.data.dealing import (
    deal_equally,
    dirichlet_silos,
    limit_labels,
    strided_silos,
    zipf_law,
    zipf_silos,
)
from fedpriv.data.embedded import Digits
from fedpriv.data.random_allocators import Zipf
from fedpriv.util.streams import Streams


def rng(seed=0):
    return np.random.default_rng(seed)


@given(st.integers(1, 300), st.integers(1, 60))
def test_uniform_users_own_equally_many_records(n, n_users):
    counts = np.bincount(deal_equally(n, n_users, rng()), minlength=n_users)
    assert counts.sum() == n
    assert counts.max() - counts.min() <= 1


def test_who_gets_a_surplus_record_is_random():
    surplus = sum(
        np.bincount(deal_equally(15, 10, rng(seed)), minlength=10) - 1 for seed in range(1000)
    )
    assert chisquare(surplus).pvalue > 1e-4


@given(st.integers(1, 300), st.integers(1, 20))
def test_uniform_silos_are_strides_of_a_permutation(n, n_silos):
    silo = strided_silos(n, n_silos, rng())
    assert np.bincount(silo, minlength=n_silos).tolist() == [
        len(range(s, n, n_silos)) for s in range(n_silos)
    ]
    order = rng().permutation(n)
    assert all((silo[order[s::n_silos]] == s).all() for s in range(n_silos))


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.2])
def test_zipf_users_follow_rank_to_the_minus_alpha(alpha):
    records = Records(np.zeros((60_000, 1), np.float32), np.zeros(60_000, np.int64))
    allocation = Zipf(50, 5, alpha_user=alpha).allocate(records, Digits(), Streams(0))
    counts = np.bincount(allocation.user, minlength=50)
    law = np.arange(1, 51) ** -alpha
    assert chisquare(counts, 60_000 * law / law.sum()).pvalue > 1e-3
    wrong = np.arange(1, 51) ** -(alpha + 0.1)
    assert chisquare(counts, 60_000 * wrong / wrong.sum()).pvalue < 1e-6


def test_zipf_silos_follow_rank_to_the_minus_alpha_within_each_user():
    """One user's silo counts, sorted, against the law: the ranking itself is random."""
    silo = zipf_silos(np.repeat(np.arange(20), 5000), 20, 5, alpha=2.0, rng=rng())
    law = np.arange(1, 6) ** -2.0
    law /= law.sum()
    pooled = sum(
        np.sort(np.bincount(silo[u * 5000 : (u + 1) * 5000], minlength=5))[::-1] for u in range(20)
    )
    np.testing.assert_allclose(pooled / pooled.sum(), law, atol=0.005)


def test_favourite_silos_are_uniform_over_users():
    silo = zipf_silos(np.arange(10_000), 10_000, 5, alpha=2.0, rng=rng())
    assert chisquare(np.bincount(silo)).pvalue > 1e-3


def test_zipf_law_sums_to_one():
    np.testing.assert_allclose(zipf_law(3, 1.0), np.array([6, 3, 2]) / 11)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10_000), st.integers(1, 10), st.integers(1, 30), st.integers(1, 4), st.booleans()
)
def test_the_label_bound_holds_for_every_user(seed, n_labels, n_users, k, skewed):
    if k * n_users < n_labels or k > n_labels:
        return
    r = rng(seed)
    y = np.concatenate(
        [np.arange(n_labels), r.choice(n_labels, 200, p=zipf_law(n_labels, 2.0 if skewed else 0.0))]
    )
    user = r.choice(n_users, len(y), p=zipf_law(n_users, 1.5 if skewed else 0.0))
    owner = limit_labels(user, y, n_users, k=k, rng=r)
    assert ((owner >= 0) & (owner < n_users)).all()
    assert max(len(np.unique(y[owner == u])) for u in range(n_users)) <= k


@pytest.mark.parametrize("seed", range(4))
def test_a_label_that_nobody_chose_goes_to_a_user_with_room(seed):
    """User 0 takes one of two labels; user 1, without a record before, gets the other."""
    y = np.array([0, 0, 1])
    owner = limit_labels(np.zeros(3, dtype=np.int64), y, 2, k=1, rng=rng(seed))
    assert sorted({*zip(owner.tolist(), y.tolist())}) in ([(0, 0), (1, 1)], [(0, 1), (1, 0)])


def test_users_keep_their_number_of_records_when_labels_suffice():
    y = np.repeat(np.arange(10), 6000)
    user = rng().choice(10_000, len(y), p=zipf_law(10_000, 0.5))
    owner = limit_labels(user, y, 10_000, k=2, rng=rng(1))
    moved = (
        np.abs(np.bincount(owner, minlength=10_000) - np.bincount(user, minlength=10_000)).sum() / 2
    )
    assert moved < 0.01 * len(y)
    labels = np.array([len(np.unique(y[owner == u])) for u in range(200)])
    assert (labels == 2).mean() > 0.95


@given(
    st.integers(1, 300),
    st.integers(1, 20),
    st.sampled_from([1e-3, 0.1, 1.0, 50.0, 1e6]),
    st.integers(0, 10_000),
)
def test_every_label_is_cut_by_its_own_shares_of_the_silos(n, n_silos, alpha, seed):
    y = rng(seed).integers(0, 4, n)
    silo = dirichlet_silos(y, n_silos, alpha, rng=rng(seed))
    assert ((silo >= 0) & (silo < n_silos)).all()
    replay = rng(seed)  # draws an order and shares for each label
    for label in np.unique(y):
        rows = replay.permutation(np.flatnonzero(y == label))
        shares = replay.dirichlet(np.full(n_silos, alpha))
        counts = np.bincount(silo[rows], minlength=n_silos)
        assert np.abs(counts - shares * len(rows)).max() <= 1 + 1e-9
        assert (np.diff(silo[rows]) >= 0).all()


@pytest.mark.parametrize("alpha", [0.1, 0.5, 5.0])
def test_shares_have_the_dirichlet_distributions_variance(alpha):
    """One share of S silos has mean 1/S and variance (1/S)(1 - 1/S) / (S alpha + 1)."""
    n_silos, y = 4, np.repeat(np.arange(2000), 500)
    silo = dirichlet_silos(y, n_silos, alpha, rng=rng())
    shares = (
        np.array([np.bincount(part, minlength=n_silos) for part in silo.reshape(2000, 500)]) / 500
    )
    np.testing.assert_allclose(shares.mean(axis=0), 0.25, atol=0.03)
    np.testing.assert_allclose(shares.var(), 0.25 * 0.75 / (n_silos * alpha + 1), rtol=0.06)
