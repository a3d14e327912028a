import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from fedpriv.data.dealing import zipf_law
from fedpriv.data.fixed_silos import uniform_owners, zipf_owners

HEART = np.repeat(np.arange(4), [199, 172, 30, 85])
TCGA = np.repeat(np.arange(6), [248, 156, 164, 129, 129, 40])


def rng(seed=0):
    return np.random.default_rng(seed)


def counts(owner, silo, n_users):
    table = np.zeros((n_users, silo.max() + 1), dtype=int)
    np.add.at(table, (owner, silo), 1)
    return table


def test_uniform_users_are_drawn_record_by_record():
    owner = np.concatenate(
        [uniform_owners(HEART, 20, group=1, rng=rng(seed)) for seed in range(50)]
    )
    assert chisquare(np.bincount(owner, minlength=20)).pvalue > 1e-3


def test_consecutive_pairs_of_a_silo_share_a_draw_and_an_odd_last_record_joins_the_previous_user():
    silo = np.array([0, 1, 0, 0, 1, 0, 0, 1])  # silo 0: five records, silo 1: three, interleaved
    owner = uniform_owners(silo, 1000, group=2, rng=rng())
    first, second = owner[silo == 0], owner[silo == 1]
    assert first[0] == first[1] != first[2] == first[3] == first[4]
    assert second[0] == second[1] == second[2]


@settings(deadline=None)
@given(
    st.integers(0, 10_000),
    st.sampled_from([1, 2]),
    st.sampled_from(["heart", "tcga"]),
    st.floats(0.01, 1.0),
)
def test_zipf_keeps_silo_sizes_groups_and_a_group_for_every_user(seed, group, which, density):
    silo = HEART if which == "heart" else TCGA
    n_users = max(1, int(density * (np.bincount(silo) // group).sum()))
    n_silos = silo.max() + 1
    owner = zipf_owners(silo, n_silos, zipf_law(n_users, 0.5), group=group, rng=rng(seed))
    table = counts(owner, silo, n_users)
    assert (table.sum(axis=0) == np.bincount(silo)).all()
    assert (table.sum(axis=1) >= group).all()
    assert ((table == 0) | (table >= group)).all()


@settings(deadline=None)
@given(st.lists(st.integers(3, 9), min_size=1, max_size=5), st.integers(2, 3), st.integers(0, 1000))
def test_zipf_works_up_to_the_last_user_that_fits(sizes, group, seed):
    silo = np.repeat(np.arange(len(sizes)), sizes)
    n_users = sum(size // group for size in sizes)
    table = counts(
        zipf_owners(silo, len(sizes), zipf_law(n_users, 0.5), group=group, rng=rng(seed)),
        silo,
        n_users,
    )
    assert ((table == 0) | (table >= group)).all()
    assert (table.sum(axis=1) >= group).all()


def test_a_users_records_go_to_the_main_silo_with_probability_four_fifths():
    """Silos so large that nothing overflows: 3,000 users with 100 records on average."""
    silo = np.repeat(np.arange(5), 100_000)
    table = counts(zipf_owners(silo, 5, zipf_law(100, 0.0), group=1, rng=rng()), silo, 100)
    # Overflow cannot happen before a silo is full, so look at the first users only.
    main = table[:40].max(axis=1) / table[:40].sum(axis=1)
    assert main.mean() == pytest.approx(0.8, abs=0.005)
    rest = np.sort(table[:40], axis=1)[:, :-1] / table[:40].sum(axis=1, keepdims=True)
    assert rest.mean() == pytest.approx(0.05, abs=0.002)


def test_surplus_records_follow_the_zipf_law():
    """Heart with 50 users: one record each, the other 436 by rank^-0.5."""
    law = zipf_law(50, 0.5)
    drawn = sum(
        np.bincount(zipf_owners(HEART, 4, law, group=1, rng=rng(seed)), minlength=50) - 1
        for seed in range(100)
    )
    assert drawn.sum() == 100 * (486 - 50)
    assert chisquare(drawn, drawn.sum() * law).pvalue > 1e-3
