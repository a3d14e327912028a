"""Users of at most k records under methods that protect records: CDP-FedAvg, its DP-SGD, Local SGD
and DP-ERM."""

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from fedpriv.accountants.pld import gaussian_epsilon
from fedpriv.runs.epsilon_forecast import EpsilonForecast
from fedpriv.runtime import allocate
from fedpriv.testing import experiment

METHODS = ("cdp_fedavg_5", "dp_sgd", "local_sgd", "dp_erm")
WORDS = ("rounds=4", "aggregation=plain", "algo.epsilon=3", "allocator.n_users=200")


def certified(method, *words):
    """PLD's epsilon against the server and what is claimed, by unit."""
    rows = EpsilonForecast.of(
        experiment(f"algo={method}", "accountant=pld", *WORDS, *words)
    ).rows_at([4])
    return {row.unit: (row.certified, row.claimed) for row in rows if row.observer == "server"}


def gap_of(epsilon, delta=1e-5):
    """mu of Gaussian differential privacy that costs epsilon, by the closed form of its delta."""

    def spent(mu):
        return norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)

    return brentq(lambda mu: spent(mu) - delta, 1e-3, 20.0)


@pytest.mark.parametrize("method", METHODS)
def test_k_records_are_k_times_as_far_apart_as_one(method):
    """mu-GDP for one record is k mu-GDP for k of them (Dong, Roth, Su 2022, Theorem 2.14), wherever
    they lie."""
    found = certified(method, "algo.records_per_user=3")
    record, user = found["record"][0], found["user"][0]
    assert user == pytest.approx(gaussian_epsilon(3 * gap_of(record), 1e-5), rel=1e-3)
    assert user <= 3 * (1 + 1e-3)
    assert found["user"][1] is None  # the papers speak of records


@pytest.mark.parametrize("method", METHODS)
def test_without_a_bound_nothing_is_said_of_users_and_records_cost_the_same(method):
    alone = certified(method)
    assert set(alone) == {"record"}
    one = certified(method, "algo.records_per_user=1")
    assert one["record"][0] == pytest.approx(one["user"][0])
    if method != "dp_erm":  # whose noise is made by a conversion that is not tight
        assert one["user"][0] == pytest.approx(3, rel=1e-3)


@pytest.mark.parametrize("method", [*METHODS, "minibatch_sgd"])
def test_further_records_do_not_train(method):
    free, few = (
        experiment(f"algo={method}", *WORDS, *words) for words in ((), ("algo.records_per_user=3",))
    )
    (_, whole, _), (_, kept, federation) = allocate(free), allocate(few)
    np.testing.assert_array_equal(kept.counts().sum(0), np.minimum(whole.counts().sum(0), 3))
    assert federation.records_per_user == 3
