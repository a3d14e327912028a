"""Lower bounds of epsilon from the rates of an attack."""

import math

import numpy as np
import pytest
from dp_accounting import (
    GaussianDpEvent,
    LaplaceDpEvent,
    PoissonSampledDpEvent,
    SampledWithoutReplacementDpEvent,
)
from scipy.stats import norm

from fedpriv.accountants.events import ADD_REMOVE, Event
from fedpriv.accountants.pld import gaussian_epsilon, pld_epsilon
from fedpriv.audit.bounds import lower_bound
from fedpriv.audit.families import GaussianFamily, SampledFamily, family_of
from fedpriv.audit.rates import Rates

GAUSSIAN = GaussianDpEvent(2.0)


@pytest.mark.parametrize(
    ("certified", "group_size", "family"),
    [
        (GAUSSIAN, 1, GaussianFamily()),
        (GAUSSIAN, 2, None),
        (PoissonSampledDpEvent(0.1, GAUSSIAN), 1, SampledFamily(0.1, 7, 2.0)),
        (PoissonSampledDpEvent(0.1, LaplaceDpEvent(2.0)), 1, None),
        (SampledWithoutReplacementDpEvent(100, 10, GAUSSIAN), 1, None),
        (LaplaceDpEvent(2.0), 1, None),
    ],
    ids=str,
)
def test_the_family_of_a_certificate_over_seven_rounds(certified, group_size, family):
    event = Event("server", "user", ADD_REMOVE, certified, None, group_size=group_size)
    assert family_of([event], 7, None) == family


def test_limits_of_rates_without_errors_are_the_rule_of_three():
    """No hit in n trials: p <= 1 - (error)^(1/n), which is Clopper and Pearson's closed form."""
    rates = Rates(
        false_positives=0, negatives=200, true_positives=300, positives=300, confidence=0.95
    )
    assert rates.most_false == pytest.approx(1 - 0.025 ** (1 / 200))
    assert rates.least_true == pytest.approx(0.025 ** (1 / 300))
    expected = math.log((rates.least_true - 1e-5) / rates.most_false)
    assert rates.epsilon(1e-5) == pytest.approx(expected)
    mu = norm.ppf(rates.least_true) - norm.ppf(rates.most_false)
    found = GaussianFamily().least_epsilon(rates.refute, 1e-5)
    assert found == pytest.approx(gaussian_epsilon(mu, 1e-5))


@pytest.mark.parametrize("hits", [50, 100])
def test_an_attack_that_learns_nothing_proves_nothing(hits):
    rates = Rates(
        false_positives=hits, negatives=100, true_positives=hits, positives=100, confidence=0.95
    )
    assert rates.epsilon(1e-5) == GaussianFamily().least_epsilon(rates.refute, 1e-5) == 0.0


def bounds(gap, repetitions, n, seed=0):
    rng = np.random.default_rng(seed)
    for _ in range(repetitions):
        scores = rng.normal(size=n), rng.normal(gap, 1, n)
        yield lower_bound(*scores, delta=1e-5, confidence=0.95, family=GaussianFamily())


@pytest.mark.parametrize("gap", [0.0, 0.5, 1.0, 3.0])
def test_bounds_of_a_gaussian_exceed_the_truth_no_more_often_than_allowed(gap):
    """400 attacks on noise whose epsilon is exact; more than 35 exceedances at 5 % have probability
    0.1 %."""
    found = list(bounds(gap, 400, 300))
    truth = gaussian_epsilon(gap, 1e-5)
    assert sum(bound.audited > truth for bound in found) <= 35


@pytest.mark.parametrize("gap", [1.0, 3.0])
def test_bounds_of_a_gaussian_come_near_the_truth(gap):
    found = list(bounds(gap, 20, 2000))
    assert np.mean([bound.within for bound in found]) >= 0.8 * gaussian_epsilon(gap, 1e-5)
    assert all(bound.epsilon < bound.within for bound in found)


def test_a_choice_among_metrics_costs_no_confidence():
    """Eight metrics that know nothing: chosen and counted on the same trials, the luckiest would
    prove something in about a third of 400 attacks; more than 35 at 5 % have probability 0.1 %."""
    rng = np.random.default_rng(3)
    found = [
        lower_bound(
            *rng.normal(size=(2, 300, 8)), delta=1e-5, confidence=0.95, family=GaussianFamily()
        )
        for _ in range(400)
    ]
    assert sum(bound.audited > 0 for bound in found) <= 35
    assert len({bound.metric for bound in found}) == 8


def test_the_metric_that_tells_most_is_chosen():
    """One round of three has a tenth of its noise: its own score tells ten times as much."""
    rng = np.random.default_rng(4)
    rounds = rng.normal(0, (1, 0.1, 1), (2, 400, 3))
    rounds[1] += 0.5
    absent, present = np.concatenate([rounds.sum(axis=2, keepdims=True), rounds], axis=2)
    bound = lower_bound(absent, present, delta=1e-5, confidence=0.95, family=GaussianFamily())
    alone = lower_bound(
        absent[:, :1], present[:, :1], delta=1e-5, confidence=0.95, family=GaussianFamily()
    )
    assert bound.metric == 2
    assert bound.audited > 3 * alone.audited


@pytest.mark.parametrize("sign", [1, -1])
def test_a_leak_in_one_direction_only_is_found_in_either(sign):
    """The canary's presence shows in one run of ten, its absence never; and the other way round."""
    quiet, leaks = np.zeros(4000), (np.random.default_rng(1).random(4000) < 0.1) * 1.0
    scores = (quiet, leaks) if sign > 0 else (-leaks, -quiet)
    bound = lower_bound(*scores, delta=1e-5, confidence=0.95, family=None)
    assert bound.within is None
    assert bound.epsilon > 3


@pytest.mark.slow
def test_a_sampled_release_is_bounded_below_its_epsilon_and_refuted_where_the_sample_is_kept():
    """Ten rounds at rate 0.3: with the sample drawn anew each round, and with that of the first
    round in all."""
    rate, rounds, rng = 0.3, 10, np.random.default_rng(2)
    family = SampledFamily(rate, rounds, 1.0)
    truth = pld_epsilon(
        [(PoissonSampledDpEvent(rate, GaussianDpEvent(1.0)), rounds)], "add/remove", 1e-5
    )

    def bound(taken):
        x = rng.normal(size=(2, 1500, rounds))
        x[1] += taken
        ratios = np.log1p(rate * np.expm1(x - 0.5)).sum(axis=2)
        return lower_bound(*ratios, delta=1e-5, confidence=0.95, family=family).audited

    assert 0.25 * truth < bound(rng.random((1500, rounds)) < rate) < truth
    assert bound(rng.random((1500, 1)) < rate) > truth


def test_a_weak_certificate_leaves_the_threshold_to_the_scores():
    """At 2,000 sampled releases under noise 1 any false positive allows all true ones; the scores
    are far apart."""
    absent, present = (np.random.default_rng(mean).normal(mean, 1.0, 100) for mean in (0, 12))
    bound = lower_bound(
        absent, present, delta=1e-5, confidence=0.95, family=SampledFamily(0.25, 2000, 1.0)
    )
    assert bound.evidence.false_positives < 10
    assert bound.evidence.true_positives > bound.evidence.positives - 10
    assert bound.within is not None
    assert bound.within > 10
