"""SPIDER, SVRG and MB-SGD without noise on whole batches are proximal gradient descent; the
alternate is not."""

from dataclasses import replace

import numpy as np
import pytest
from erm_world import silos_of
from lowy_world import ALTERNATE, MINIBATCH, PL, SPIDER, SVRG, proximal_descent, quiet, states_of
from test_dp_erm import gradient

from fedpriv.testing import check_algorithm, experiment
from fedpriv.testing.experiments import SMALL

OPERATORS = [
    ("none", 1.0, 1),
    ("ball", 0.4, 1),
    ("box", 0.1, 1),
    ("l1", 0.05, 1),
    ("group_l1", 0.05, 5),
]
SILOS = silos_of([30, 30, 30])


def mean_gradient(theta, silos=(0, 1, 2)):
    return np.mean([gradient(theta, SILOS[silo], 0.0) for silo in silos], axis=0)


@pytest.mark.parametrize(
    ("algo", "prox"),
    [
        *((algo, OPERATORS[0]) for algo in (MINIBATCH, SVRG, PL)),
        *((SPIDER, prox) for prox in OPERATORS),
    ],
)
def test_whole_batches_without_noise_are_proximal_gradient_descent(algo, prox):
    algo = replace(algo, **dict(zip(("prox", "prox_size", "prox_group"), prox)))
    sim = quiet(algo, SILOS)
    expected = list(proximal_descent(sim.state.params, mean_gradient, algo, 8))
    for found, theta in zip(states_of(sim, 8), expected, strict=True):
        np.testing.assert_allclose(found.params, theta, atol=1e-6)
    assert np.linalg.norm(expected[-1] - expected[0]) > 0.05


def test_a_round_of_the_alternate_is_two_steps_of_gradient_descent():
    sim = quiet(ALTERNATE, SILOS)
    expected = list(proximal_descent(sim.state.params, mean_gradient, ALTERNATE, 16))[1::2]
    for found, theta in zip(states_of(sim, 8), expected, strict=True):
        np.testing.assert_allclose(found.params, theta, atol=1e-6)


def test_two_random_silos_of_three_estimate_with_who_is_there():
    """Algorithm 3 by hand: h is the mean of those who are available, in gradients and in
    differences."""
    algo = replace(SPIDER, cohort=2)
    sim = quiet(algo, SILOS)
    theta, before, estimate, cohorts = sim.state.params, None, None, set()
    for number, found in enumerate(states_of(sim, 7), start=1):
        [query] = sim.queries(number)
        assert query.n_summed == len(query.invited) == 2
        cohorts.add(query.invited)
        fresh = mean_gradient(theta, query.invited)
        if number % 4 == 1:
            estimate = fresh
        else:
            estimate = estimate + fresh - mean_gradient(before, query.invited)
        theta, before = theta - 0.3 * estimate, theta
        np.testing.assert_allclose(found.params, theta, atol=1e-6)
    assert len(cohorts) > 1


def test_a_random_number_of_silos_is_averaged():
    algo = replace(MINIBATCH, cohort=3, least_cohort=1)
    sim = quiet(algo, SILOS)
    theta, numbers = sim.state.params, set()
    for number, found in enumerate(states_of(sim, 8), start=1):
        [query] = sim.queries(number)
        numbers.add(len(query.invited))
        theta = theta - 0.3 * mean_gradient(theta, query.invited)
        np.testing.assert_allclose(found.params, theta, atol=1e-6)
    assert numbers == {1, 2, 3}


@pytest.mark.slow
def test_the_alternate_keeps_every_rule_too():
    checked = check_algorithm(experiment(*SMALL, "algo=spider", "algo.variant=alternate").algo)
    assert checked.declared == ()
    assert {f"{name}: record, replace" for name in ("gradient", "difference")} <= set(
        checked.checked
    )
