"""What every algorithm must do. Files in conf/algo are found by themselves; the twins below are
named."""

import copy
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats as scipy_stats
from totals import total

from fedpriv.algorithms.uldp import UldpBase
from fedpriv.errors import ConfigError
from fedpriv.runtime import allocate, prepare
from fedpriv.testing import check_algorithm, experiment
from fedpriv.testing.event_parameters import noise_multiplier
from fedpriv.testing.experiments import SMALL, with_training_records
from fedpriv.testing.neighbouring_files import File
from fedpriv.util.stopwatch import Stopwatch

CONF = Path(__file__).parents[2] / "conf"
FILES = sorted((CONF / "algo").glob("*.yaml"))
NO_TRAINING = ("statistics", "evaluation")
TEXTS = {path.stem: path.read_text() for path in FILES if path.stem not in NO_TRAINING}
"""Without those that need a table's columns, or the model of a run."""
ALGORITHMS = [*TEXTS]
METHODS = [name for name in ALGORITHMS if re.search("^_target_:", TEXTS[name], re.MULTILINE)]
METHODS.append("uldp_avg_w")
"""Without the files that only set another file's keys."""
EPOCHS, RATE, SILOS, USERS = 3, 0.2, 3, 8

AGGREGATIONS = {
    "plain": ["aggregation=plain"],
    "masked": ["aggregation=masked"],
    "masked32": ["aggregation=masked", "aggregation.bits=32"],
    "secagg": ["aggregation=secagg"],
    "secagg2": ["aggregation=secagg", "aggregation.threshold=2", "aggregation.cohort=2"],
    "exact": ["aggregation=secagg_exact_noise", "aggregation.threshold=2"],
    "admm": [
        "aggregation=admm",
        "aggregation.preset=null",
        "aggregation.iterations=32",
        "aggregation.beyond_safe=true",
    ],
    "private": [
        "aggregation=private_weighting",
        "aggregation.key_bits=256",
        "aggregation.n_max=40",
        "aggregation.count_cap=12",
        "aggregation.precision=16",
    ],
}
ENFORCED = ["uldp_naive", "uldp_sgd", "uldp_avg", "uldp_avg_w"]
"""Methods that the framework bounds and noises: their whole noise is a share of each silo's
message."""


@cache
def small(*words):
    return experiment(*SMALL, *words)


def summed_by(aggregation, *words):
    """The experiment of the words with this aggregation, None where they refuse each other."""
    try:
        return replace(
            small(*words),
            aggregation=small("algo=uldp_avg_w", *AGGREGATIONS[aggregation]).aggregation,
        )
    except ConfigError:
        return None


def serves(exp):
    """Whether the aggregation has the observer that the method calibrates its noise for, if it
    does."""
    observers = {observer.name for observer in exp.aggregation.threat_model().observers}
    return getattr(exp.algo, "observer", "released model") in observers


def accepted(methods, aggregations=AGGREGATIONS):
    """Methods, each with every aggregation that can sum for it."""
    return [
        (words, name)
        for words in methods
        for name in aggregations
        if (exp := summed_by(name, *words.split())) and serves(exp)
    ]


GIVEN_NOISE = ("algo.calibration=given", "algo.noise_multiplier=1")


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_keeps_every_rule(algo):
    given = GIVEN_NOISE if algo == "els" else ()  # each of its plans would solve its noise
    exp = small(f"algo={algo}", *given)
    checked = check_algorithm(exp.algo)
    assert {"weights", "rounds", "stability", "events", "file"} <= set(checked.checked)
    assert len(checked.checked) == 5 + (algo in ENFORCED) or algo not in ENFORCED
    assert checked.declared == ()


GIVEN = " algo.calibration=given algo.noise_multiplier=0.05"
"""Noise that is chosen for an epsilon depends on who sees what."""
CALIBRATING = {path.stem for path in FILES if "calibration: certified" in path.read_text()} - {
    "uldp_naive"
} | {"dp_sgd"}
SUMMED = [f"algo={name}{GIVEN if name in CALIBRATING else ''}" for name in METHODS]


@pytest.mark.parametrize(
    ("words", "aggregation"), accepted(SUMMED, ["masked", "masked32", "secagg"])
)
def test_a_secure_sum_is_the_plain_one_to_its_rounding(words, aggregation):
    secure, plain = (summed_by(name, *words.split()) for name in (aggregation, "plain"))
    with prepare(secure) as prepared:
        state, queries = prepared.state, prepared.queries(1)
    for query in queries:
        one, other = (total(exp, query.name, noisy=True, state=state) for exp in (secure, plain))
        assert np.abs(one - other).max(initial=0) <= query.encoding.rounding * (1 + 1e-6) + 1e-15


NOISED = [*(f"algo={name}" for name in ENFORCED), "algo=uldp_naive algo.calibration=paper"]
NOISED += ["algo=uldp_sgd algo.weighting=records"]


@pytest.mark.parametrize(
    ("mechanism", "words", "aggregation"),
    [
        *(("gaussian", *pair) for pair in accepted(NOISED)),
        *(
            (mechanism, *pair)
            for mechanism in ("discrete_gaussian", "adaptive")
            for pair in accepted(NOISED, ["plain", "secagg2"])
        ),
    ],
)
def test_the_noise_of_a_sum_is_what_its_event_declares(mechanism, words, aggregation):
    """Sums with noise in 20 rounds from one state, less the one without, against the released
    model's event. Without noise, all rounds from one state have one sum."""
    exp = summed_by(aggregation, *words.split(), f"mechanism={mechanism}", "algo.clip=0.7")
    noisy, quiet = sums(exp, 20), sums(exp, 1, noisy=False)
    with prepare(exp) as prepared:
        [query] = prepared.queries(1)
    [declared] = {noise_multiplier(e) for e in query.events if e.observer == "released model"}
    sensitivity = 1 if isinstance(exp.algo, UldpBase) else 2 * query.n_summed
    squares = ((noisy - quiet) / (declared * 0.7 * sensitivity)) ** 2
    chance = scipy_stats.chi2(squares.size)
    assert min(chance.cdf(squares.sum()), chance.sf(squares.sum())) > 1e-6


def sums(exp, rounds, noisy=True):
    """(rounds, d): what is summed in each round, all from the first state."""

    def silent(plan):
        query_parameters = {
            name: replace(c, mechanism=c.mechanism.with_noise(0.0))
            for name, c in plan.query_parameters.items()
        }
        return plan if noisy else replace(plan, query_parameters=query_parameters)

    with prepare(exp, revise=silent) as prepared:
        return np.array(
            [
                prepared.exchange(query, prepared.state, watch=Stopwatch(), lines=[])[0].vector
                for number in range(1, rounds + 1)
                for query in prepared.queries(number)
            ]
        )


@pytest.mark.parametrize(
    "algo", ["uldp_avg", "uldp_avg_w", "uldp_sgd", "uldp_sgd mechanism=adaptive"]
)
def test_a_diverging_user_is_recorded_and_harms_nobody(algo):
    exp = small(*f"algo={algo}".split(), "algo.clip=0.3")
    with prepare(exp) as prepared:
        owned = [silo.users for silo in prepared.silo_data]
        allocation = exp.allocator.allocate(exp.data.load(exp.streams).train, exp.data, exp.streams)

    def sicken(records):
        x = np.array(records.x)
        x[allocation.user == 3] = np.inf
        return replace(records, x=x)

    with prepare(with_training_records(exp, sicken)) as sick:
        result = sick.run_round(sick.queries(1), sick.state)
    assert np.isfinite(result.state.params).all()
    assert result.stats.nonfinite == sum(3 in users for users in owned) > 0
    if not exp.algo.contributors.weighting.needs_counts:
        file = File.of(exp)
        with prepare(file.without(file.units("user")[3])) as healthy:
            other = healthy.run_round(healthy.queries(1), healthy.state)
        np.testing.assert_allclose(result.state.params, other.state.params, atol=1e-9)


@pytest.mark.parametrize(("words", "aggregation"), accepted([f"algo={name}" for name in METHODS]))
def test_every_observer_has_its_events_with_all_that_the_aggregation_assumes(words, aggregation):
    exp = summed_by(aggregation, *words.split())
    _, _, federation = allocate(exp)
    plan = exp.planner.plan(federation)
    events = [event for query in exp.algo.queries(1, plan) for event in query.events]
    observers = {observer.name for observer in plan.threat_model.observers}
    assert (
        {event.observer for event in events}
        == observers
        >= {"released model", "silo", *exp.aggregation.helpers}
    )
    assert all(set(plan.threat_model.assumptions) <= set(event.assumptions) for event in events)


# -- without noise and clipping each of these is a few lines of plain PyTorch ----------------------


def uniform(counts):
    return np.full(counts.shape, 1 / SILOS)


def records(counts):
    return counts / np.maximum(counts.sum(0), 1)


def twin_uldp(weigh, epochs, rate):
    def step(train, counts):
        weights = weigh(counts)
        changes = [
            weights[silo, user] * train(silo, user, epochs, rate)
            for silo in range(SILOS)
            for user in range(USERS)
            if counts[silo, user]
        ]
        return 10.0 / (USERS * SILOS) * sum(changes)

    return step


def twin_average(epochs):
    return lambda train, counts: (
        sum(train(silo, None, epochs, RATE) for silo in range(SILOS)) / SILOS
    )


LOCAL = [f"algo.local_epochs={EPOCHS}", f"algo.local_lr={RATE}"]
ERM = ["algo.calibration=given", "algo.strong_convexity=1e-9", f"algo.smoothness={1 / (4 * RATE)}"]
GIVEN = ["algo.calibration=given", f"algo.local_lr={RATE}"]
TWINS = {
    "fedavg": (["algo=fedavg", *LOCAL], twin_average(EPOCHS)),
    "uldp_naive": (["algo=uldp_naive", "algo.global_lr=1", *LOCAL], twin_average(EPOCHS)),
    "uldp_avg": (["algo=uldp_avg", *LOCAL], twin_uldp(uniform, EPOCHS, RATE)),
    "uldp_avg_w": (["algo=uldp_avg_w", *LOCAL], twin_uldp(records, EPOCHS, RATE)),
    "uldp_sgd": (["algo=uldp_sgd"], twin_uldp(uniform, 1, 1.0)),
    "uldp_sgd_w": (["algo=uldp_sgd", "algo.weighting=records"], twin_uldp(records, 1, 1.0)),
    "cdp_fedavg": (["algo=cdp_fedavg", "algo.local_steps=1", *GIVEN], twin_average(1)),
    "dp_sgd": (["algo=dp_sgd", *GIVEN], twin_average(1)),
    "dp_erm": (["algo=dp_erm", f"algo.local_steps={EPOCHS}", *ERM], twin_average(EPOCHS)),
    "dp_erm_one_step": (["algo=dp_erm", "algo.local_steps=1", *ERM], twin_average(1)),
}


@pytest.mark.parametrize("name", TWINS)
def test_without_noise_and_clipping_it_is_its_plain_twin(name):
    words, twin = TWINS[name]
    with prepare(small(*words, "mechanism=none", "aggregation=plain")) as prepared:
        start = prepared.state.params
        step = prepared.run_round(prepared.queries(1), prepared.state).state.params - start

    def train(silo, user, epochs, rate):
        """Full-batch SGD with torch's own optimiser on one user's (None: all) records in one
        silo.
        """
        data, network = prepared.silo_data[silo], copy.deepcopy(prepared.model)
        torch.nn.utils.vector_to_parameters(torch.from_numpy(start).float(), network.parameters())
        optimizer = torch.optim.SGD(network.parameters(), lr=rate)
        place = slice(None)
        if user is not None:
            index = list(data.users).index(user)
            place = slice(int(data.starts[index]), int(data.starts[index + 1]))
        for _ in range(epochs):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(network(data.x[place]), data.y[place]).backward()
            optimizer.step()
        end = torch.nn.utils.parameters_to_vector(network.parameters()).detach().double().numpy()
        return end - start

    counts = np.zeros((SILOS, USERS), dtype=int)
    for silo, data in enumerate(prepared.silo_data):
        counts[silo, data.users] = data.counts
    np.testing.assert_allclose(step, twin(train, counts), rtol=1e-5, atol=1e-6)
