"""Bounds that adapt, in whole runs: their path, who refuses what, and what a resumed run does."""

import math
from dataclasses import replace

import numpy as np
import pytest
from refusals import refused
from runs import experiment

from fedpriv.accountants.ledger import Ledger
from fedpriv.accountants.pld import Pld
from fedpriv.algorithms.record_gradients import record_form
from fedpriv.errors import ConfigError
from fedpriv.rounds.query import BOUND, events_of
from fedpriv.runtime import allocate, prepare

ADAPTIVE = ("mechanism=adaptive", "algo.clip=0.3")
USERS = ("algo=uldp_sgd", "algo.global_lr=null", *ADAPTIVE)
GIVEN = ("algo.calibration=given", "algo.noise_multiplier=3")


def path(exp, *, rounds=4, resume_after=0):
    """The bound and the parameters after each round. resume_after: a round after which all parties
    begin anew from a checkpoint."""
    found, arrays = [], None
    for part in (range(1, resume_after + 1), range(resume_after + 1, rounds + 1)):
        with prepare(exp, arrays) as run:
            for number in part:
                result = run.run_round(run.queries(number), run.state)
                assert result.aborted is None
                run.state = result.state
                found.append((*run.state.slots[BOUND], *run.state.params))
            arrays = run.arrays(run.state)
    return np.array(found)


def softmax_gradient(params, x, y):
    """The gradient of the mean cross entropy of a linear network with two classes, in numpy."""
    weights, bias = params[:-2].reshape(2, -1), params[-2:]
    scores = x @ weights.T + bias
    probabilities = np.exp(scores - scores.max(axis=1, keepdims=True))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    off = (probabilities - np.eye(2)[y]) / len(y)
    return np.concatenate([(off.T @ x).ravel(), off.sum(axis=0)])


def plain_loop(exp, rounds, quantile, share, rate):
    """Andrew et al., Algorithm 1, for one gradient a user, with the noise of the run's streams."""
    found = []
    with prepare(exp) as run:
        params, first = run.state.params, exp.algo.clip
        silos, users, z = len(run.silo_data), exp.allocator.n_users, exp.algo.noise_multiplier
        bound, largest = first, max(quantile, 1 - quantile)
        for t in range(1, rounds + 1):
            vectors, marks = np.zeros(len(params)), 0.0
            for number, silo in enumerate(run.silo_data):
                rng = run.plan.streams.secret("noise", t, f"silo{number}")
                noise = rng.standard_normal(len(params) + 1) * z * first / math.sqrt(silos)
                vectors += noise[:-1] * bound / (first * math.sqrt(1 - share))
                marks += noise[-1] * largest / (first * math.sqrt(share))
                for begin, count in zip(silo.starts, silo.counts):
                    own = slice(begin, begin + count)
                    x, y = silo.x[own].double().numpy(), silo.y[own].numpy()
                    change = -softmax_gradient(params, x, y)
                    norm = np.linalg.norm(change)
                    vectors += change * min(1.0, bound / norm) / silos
                    marks += ((norm <= bound) - quantile) / silos
            expected = users / silos  # the weights 1 / S of users of one silo
            off = np.clip(marks / expected, -quantile, 1 - quantile)
            params = params + 1.5 / expected * vectors
            bound *= math.exp(-rate / math.sqrt(t) * off)
            found.append((bound, *params))
    return np.array(found)


@pytest.mark.parametrize(("quantile", "noise"), [(0.5, 0.0), (0.5, 3.0), (0.8, 1.0)])
def test_the_path_is_that_of_a_plain_loop(quantile, noise):
    words = (f"mechanism.quantile={quantile}", f"algo.noise_multiplier={noise}", "seed=3")
    exp = experiment(*USERS, *words)
    expected = plain_loop(exp, 6, quantile, share=0.05, rate=2.0)
    np.testing.assert_allclose(path(exp, rounds=6), expected, rtol=1e-6, atol=1e-6)


METHODS = {
    "users": USERS,
    "weights by records": ("algo=uldp_avg_w", *ADAPTIVE),
    "users in turn": ("algo=uldp_avg", "algo.cycle=2", *ADAPTIVE),
    "sampled users": ("algo=uldp_avg", "algo.user_rate=0.6", *ADAPTIVE),
    "budgets": (
        *("algo=uldp_avg", "algo.rounds=4", *ADAPTIVE),
        "algo.budgets={a:{epsilon:1,share:0.5},b:{epsilon:4,share:0.5}}",
    ),
    "silos": ("algo=uldp_naive", *ADAPTIVE),
    "batches": ("algo=minibatch_sgd", *ADAPTIVE, *GIVEN),
    "steps": ("algo=cdp_fedavg", *ADAPTIVE, *GIVEN),
    "one step": ("algo=dp_sgd", *ADAPTIVE, *GIVEN),
}
OTHER_SUMS = {
    "secagg": (1e-4, "aggregation=secagg"),
    "peers": (2e-3, "aggregation=admm", "aggregation.masking=true"),  # who stop iterating early
}


@pytest.mark.parametrize("method", ["users", "budgets", "steps"])
def test_a_resumed_run_has_the_same_bits(method):
    exp = experiment(*METHODS[method], "rounds=4")
    whole = path(exp)
    assert len(set(whole[:, 0])) > 1
    np.testing.assert_array_equal(path(exp, resume_after=2), whole)


@pytest.mark.parametrize("method", METHODS)
def test_epsilon_is_that_of_a_fixed_bound(method):
    """At equal noise, for every observer: the marks are paid for by the vectors' share."""
    words = METHODS[method]

    def epsilons(*changed):
        exp = experiment(*words, "rounds=4", *changed)
        plan = exp.planner.plan(allocate(exp)[2])
        ledger = Ledger(Pld(1e-5))
        for number in (1, 2):
            ledger.record(events_of(exp.algo.queries(number, plan)))
        rows = ledger.rows(2)
        # No paper with a fixed bound claims anything for one that adapts.
        assert changed or {row.claimed for row in rows} == {None}
        return {(row.observer, row.unit, row.group): row.certified for row in rows}

    assert epsilons() == pytest.approx(epsilons("mechanism=gaussian"), rel=1e-9)


@pytest.mark.parametrize("sums", OTHER_SUMS)
def test_the_path_is_the_same_however_parties_sum(sums):
    quiet, (tolerance, *words) = "algo.noise_multiplier=0", OTHER_SUMS[sums]
    found = path(experiment(*USERS, quiet, *words), rounds=2)
    np.testing.assert_allclose(found, path(experiment(*USERS, quiet), rounds=2), atol=tolerance)


@pytest.mark.parametrize("bound", [0.0, -1.0, math.inf, math.nan, 1e30, 1e-30])
def test_silos_refuse_a_bound_that_is_none(bound):
    """The server signs whatever it sends. It says nothing, and the round has no sum."""
    with prepare(experiment(*USERS)) as run:
        run.state = run.state.with_params(run.state.params, **{BOUND: np.array([bound])})
        result = run.run_round(run.queries(1), run.state)
        assert "server" in result.aborted, result.aborted


REFUSED = [
    ("algo=spider", *GIVEN),
    ("algo=prox_svrg", *GIVEN),
    ("algo=uldp_group",),
    ("algo=dp_erm", *GIVEN),
    ("algo=minibatch_sgd", "aggregation=shuffle", *GIVEN),
]


@pytest.mark.parametrize("words", REFUSED, ids=lambda words: words[0])
def test_methods_without_such_a_certificate_are_refused(words):
    def planned():
        exp = experiment(*words, *ADAPTIVE)
        exp.planner.plan(allocate(exp)[2])

    refused(planned, error=ConfigError, start="mechanism=adaptive: ")


def test_sums_of_a_silos_records_are_refused():
    """How many records contribute is drawn, and no public number says what share a mark is."""
    exp = experiment("algo=minibatch_sgd", *ADAPTIVE, *GIVEN)
    refused(
        lambda: replace(exp, algo=record_form(exp.algo)),
        error=ConfigError,
        start="mechanism=adaptive: ",
    )


def test_later_steps_lose_the_better_bound_of_a_sum():
    """A record's earlier steps may flip the marks of all others, so that no drift bounds a sum."""

    def epsilon(*words):
        exp = experiment("algo=cdp_fedavg", "algo.feature_norm=1", *GIVEN, "rounds=1", *words)
        plan = exp.planner.plan(allocate(exp)[2])
        ledger = Ledger(Pld(1e-5))
        ledger.record(events_of(exp.algo.queries(1, plan)))
        return min(row.certified for row in ledger.rows(1) if row.observer == "released model")

    one, more = ("algo.local_steps=1",), ("algo.local_steps=2",)
    fixed = epsilon(*one, "algo.clip=0.3")
    assert epsilon(*one, *ADAPTIVE) == pytest.approx(fixed, rel=1e-9)
    assert epsilon(*more, *ADAPTIVE) > epsilon(*more, "algo.clip=0.3")
