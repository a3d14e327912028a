"""Strategies of correlated noise, against matrices that are written out."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpriv.errors import ConfigError
from fedpriv.mechanisms.correlated import Correlated
from fedpriv.mechanisms.strategy import Strategy, optimised, prefix_error, square_root


def matrix(strategy, rounds):
    """C, written out."""
    ages = np.subtract.outer(np.arange(rounds), np.arange(rounds))
    return np.vectorize(strategy.weight)(ages)


def written_out(c, rounds):
    """The root mean square error of prefix sums, by inverting the matrix."""
    prefix = np.tril(np.ones((rounds, rounds)))
    return np.linalg.norm(prefix @ np.linalg.inv(c)) / math.sqrt(rounds)


def test_the_whole_square_root_is_the_root_of_the_prefix_sums():
    root = matrix(square_root(8), 8)
    np.testing.assert_allclose(root @ root / root[0, 0] ** 2, np.tril(np.ones((8, 8))), atol=1e-4)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 9), st.integers(0, 20))
def test_columns_move_no_further_than_one_message(bands, more):
    for strategy in (square_root(bands), optimised(bands, bands + more)):
        c = matrix(strategy, bands + more)
        assert (np.linalg.norm(c, axis=0) <= 1).all()
        assert strategy.column_norm() == pytest.approx(1, abs=1e-5)
        assert (c >= 0).all()
        assert strategy.row_sum >= c.sum(axis=1).max() * (1 - 1e-15)


@pytest.mark.parametrize("strategy", [Strategy((1.0,)), square_root(5), optimised(5, 30)])
def test_errors_are_those_of_the_inverted_matrix(strategy):
    assert prefix_error(strategy, 30) == pytest.approx(written_out(matrix(strategy, 30), 30))


def test_the_optimum_is_one():
    """No coefficient can be changed for the better, and other optimisers find nothing better."""
    from scipy.optimize import minimize

    best = optimised(4, 25)

    def error(tail):
        c = np.concatenate([[1.0], np.abs(tail)])
        c /= np.linalg.norm(c)
        ages = np.subtract.outer(np.arange(25), np.arange(25))
        return written_out(np.where((ages >= 0) & (ages < 4), c[np.clip(ages, 0, 3)], 0.0), 25)

    start = np.array([0.3, 0.3, 0.3])
    found = minimize(error, start, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12})
    assert prefix_error(best, 25) == pytest.approx(found.fun, rel=1e-5)


@pytest.mark.parametrize("c", [(), (0.0, 1.0), (0.5, -0.1), (0.9, 0.9), (math.nan,)])
def test_no_other_coefficients(c):
    with pytest.raises(ValueError, match="no coefficients"):
        Strategy(c)


@pytest.mark.parametrize(
    ("key", "value"), [("strategy", "tree"), ("bands", 1), ("bands", 10**6), ("rounds", 3)]
)
def test_settings_out_of_range_are_refused(key, value):
    given = {"strategy": "optimised", "bands": 4, "rounds": 20, key: value}
    with pytest.raises(ConfigError, match=rf"mechanism\.{key}={value}"):
        Correlated(1.0, 1.0, **given)
