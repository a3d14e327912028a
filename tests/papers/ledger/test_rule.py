"""The rule that decides, by hand and against scipy."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import t, ttest_rel

from fedpriv.papers.ledger.entries import Comparison
from fedpriv.papers.ledger.rule import answer, corrected, difference, differences, side, together

CLAIM = Comparison("A", "B", "loss", 10, "lower")
OWN, OTHER = pd.Series([1.0, 1.5, 1.25, 1.4]), pd.Series([2.0, 2.7, 2.5, 2.2])


def test_a_difference_is_paired_by_seed():
    one = difference("here", OWN, pd.concat([OTHER, pd.Series({9: 100.0})]))
    p = ttest_rel(OWN, OTHER)
    assert one.seeds == 4
    assert one.mean == pytest.approx(OWN.mean() - OTHER.mean())
    assert one.p == pytest.approx(p.pvalue)
    interval = p.confidence_interval(0.95)
    assert (one.low, one.high) == pytest.approx((interval.low, interval.high))


def test_the_power_is_that_of_the_paired_test():
    """Simulated: a true difference of this size is found in about 80 % of repetitions."""
    rng = np.random.default_rng(0)
    n, spread = 10, 0.3
    needed = (t.ppf(0.975, n - 1) + t.ppf(0.8, n - 1)) * spread / math.sqrt(n)
    draws = needed + spread * rng.standard_normal((20_000, n))
    found = draws.mean(axis=1) / (draws.std(axis=1, ddof=1) / math.sqrt(n)) > t.ppf(0.975, n - 1)
    assert 0.76 < found.mean() < 0.84
    exact = pd.Series(np.resize([spread, -spread], n))
    one = difference("", exact, 0 * exact)
    assert one.detectable == pytest.approx(needed * exact.std() / spread)


def decide(comparison, first, second):
    [found] = corrected([differences(comparison, first, second)])
    return answer(comparison, found)


def far(sign, places=("x", "y", "z")):
    """Both methods' values: the first is clearly lower (-1) or higher (1) at every place."""
    rng = np.random.default_rng(0)
    base = pd.DataFrame(rng.normal(size=(8, len(places))), columns=places)
    return base + sign + 0.05 * rng.normal(size=base.shape), base


@pytest.mark.parametrize(
    ("sign", "says", "expected"),
    [
        (-1, "lower", "reproduced"),
        (1, "lower", "reversed"),
        (1, "higher", "reproduced"),
    ],
)
def test_every_needs_all_places_and_falls_by_one(sign, says, expected):
    claim = Comparison("A", "B", "loss", 10, says)
    assert decide(claim, *far(sign)) == expected
    first, second = far(-1)
    reversed_at_z = first.assign(z=far(1)[0]["z"])
    assert decide(CLAIM, reversed_at_z, second) == "reversed"
    most = Comparison("A", "B", "loss", 10, "lower", "most")
    assert decide(most, reversed_at_z, second) == "reproduced"
    assert decide(most, reversed_at_z.assign(y=far(1)[0]["y"]), second) == "reversed"


def test_noise_alone_is_not_resolved():
    rng = np.random.default_rng(3)
    first, second = (pd.DataFrame(rng.normal(size=(6, 2)), columns=["x", "y"]) for _ in range(2))
    for quantifier in ("every", "most", "mean"):
        assert decide(Comparison("A", "B", "l", 1, "lower", quantifier), first, second) == (
            "not resolved"
        )


def test_the_same_values_are_equal_and_no_advantage():
    _, same = far(0)
    most = Comparison("A", "B", "loss", 10, "lower", "most")
    assert decide(most, same, same) == "tie"
    close = Comparison("A", "B", "loss", 10, "lower", "close", margin=0.01)
    assert decide(close, same, same) == "reproduced"


def test_close_is_about_the_margin_on_the_worse_side():
    first, second = far(1)  # the first is higher by 1 and should be lower
    close = [Comparison("A", "B", "l", 1, "lower", "close", margin) for margin in (0.5, 1.0, 2.0)]
    assert [decide(one, first, second) for one in close] == [
        *("reversed", "not resolved", "reproduced")
    ]
    better = Comparison("A", "B", "l", 1, "higher", "close", 0.01)
    assert decide(better, first, second) == "reproduced"


def test_a_difference_within_the_margin_is_equal():
    first, second = far(0)
    claim = Comparison("A", "B", "l", 1, "lower", "every", margin=0.5)
    [found] = corrected([differences(claim, first, second)])
    assert {side(claim, one) for one in found} == {"equal"}
    assert answer(claim, found) == "tie"


def test_on_average_is_one_test():
    first, second = far(-1)
    mean = Comparison("A", "B", "l", 1, "lower", "mean")
    [one] = differences(mean, first, second)
    assert one.seeds == 8
    assert one.mean == pytest.approx((first - second).to_numpy().mean())


def test_a_claim_about_some_places_is_judged_there():
    first, second = far(-1, ("zipf", "uniform"))
    claim = Comparison("A", "B", "l", 1, "lower", places=("zipf",))
    assert [one.place for one in differences(claim, first, second)] == ["zipf"]


def test_a_setting_is_not_another_one_that_begins_alike():
    first, second = far(-1, ("allocator.n_users=10, allocator=zipf", "allocator.n_users=100"))
    for words, expected in [(["n_users=10"], 0), (["n_users=100"], 1), (["n_users=10", "zipf"], 0)]:
        claim = Comparison("A", "B", "l", 1, "lower", places=tuple(words))
        [found] = differences(claim, first, second)
        assert found.place == first.columns[expected]


@settings(max_examples=30)
@given(number=st.integers(1, 6), seed=st.integers(0, 1000))
def test_more_claims_never_make_a_p_value_smaller(number, seed):
    rng = np.random.default_rng(seed)
    values = [pd.Series(rng.normal(size=5)) for _ in range(2 * number)]
    pairs = zip(values[::2], values[1::2])
    found = [[difference(str(n), *pair)] for n, pair in enumerate(pairs)]
    for [one] in corrected(found):
        assert one.p <= one.holm <= min(1.0, number * one.p) + 1e-12


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (["reproduced", "tie", "reversed"], "reversed"),
        (["reproduced", "not run", "tie"], "tie"),
        (["reproduced", "not resolved", "not run"], "not run"),
        (["reproduced", "not resolved"], "not resolved"),
        (["reproduced", "beyond our certificate"], "beyond our certificate"),
        (["reproduced", "reproduced"], "reproduced"),
    ],
)
def test_one_claim_that_fails_is_enough(answers, expected):
    assert together(answers) == expected
