"""Example-level and user-level sampling (Charles et al., arXiv 2407.07737): what a user costs by
other computations, training beside a plain loop, and careless versions."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

import dp_accounting as dp
import numpy as np
import pytest
from dp_accounting.dp_event import MixtureOfGaussiansDpEvent
from dp_accounting.pld import PLDAccountant
from scipy import optimize, special, stats

from fedpriv.accountants.events import ADD_REMOVE, RELEASED_MODEL
from fedpriv.accountants.group import group_dp, group_rdp_epsilon
from fedpriv.accountants.ledger import headline
from fedpriv.accountants.pld import pld_epsilon
from fedpriv.algorithms.prox_sgd import MinibatchSgd
from fedpriv.certificates.sampling import Poisson
from fedpriv.data.flags import select
from fedpriv.rounds.query import events_of
from fedpriv.rounds.silo_context import Silo
from fedpriv.runs.epsilon_forecast import EpsilonForecast
from fedpriv.runtime import prepare
from fedpriv.testing import ConformanceError, check_algorithm, experiment
from fedpriv.testing.draws import sample_premises
from fedpriv.testing.experiments import SMALL
from fedpriv.testing.premise import sharing_level
from tests.accountants.accounting_oracles import sampled_epsilon

DELTA = 1e-5
ALONE = ("preset.n_users=60", "preset.n_silos=1", "accountant=pld", "allocator.local_test=0")


def els(*words):
    return experiment("algo=els", "aggregation=plain", *words)


def released(exp):
    """The epsilon of the released model for a user, and the sampling rate of a record."""
    forecast = EpsilonForecast.of(exp)
    rows = forecast.rows_at([exp.options.rounds])
    [records] = forecast.plan.federation.silo_records
    return headline(rows, RELEASED_MODEL), exp.algo.size("gradient", records) / records


def mixture(rate, most, sigma):
    """Places and weights of the Gaussians of one release."""
    places = np.arange(most + 1)
    return places, stats.binom.pmf(places, most, rate)


def log_ratio(x, rate, most, sigma):
    """ln of the density with the user over that without."""
    places, weights = mixture(rate, most, sigma)
    exponent = (np.multiply.outer(x, places) - places**2 / 2) / sigma**2
    return special.logsumexp(exponent, b=weights, axis=-1)


def one_round(epsilon, rate, most, sigma):
    """delta of one release, both directions: the loss rises with the output, so each is exact
    where it crosses epsilon."""
    places, weights = mixture(rate, most, sigma)

    def crossing(loss):
        return optimize.brentq(lambda x: log_ratio(x, rate, most, sigma) - loss, -1e3, 1e3)

    x = crossing(epsilon)
    with_user = weights @ stats.norm.sf((x - places) / sigma)
    removed = with_user - math.exp(epsilon) * stats.norm.sf(x / sigma)
    if -epsilon <= math.log(weights[0]):  # the loss of the other direction is never as large
        return removed
    x = crossing(-epsilon)
    with_user = weights @ stats.norm.cdf((x - places) / sigma)
    return max(removed, stats.norm.cdf(x / sigma) - math.exp(epsilon) * with_user)


SETTINGS = [  # expected batch, G, sigma, rounds
    (6, 4, 2.0, 20),
    (20, 6, 5.0, 1),
    (5, 1, 1.0, 30),
]


@pytest.mark.parametrize(("size", "most", "sigma", "rounds"), SETTINGS)
def test_a_user_costs_what_other_computations_say(size, most, sigma, rounds):
    noise = f"algo.noise_multiplier={sigma}"
    words = (f"algo.records_per_user={most}", f"algo.batch_size={size}", f"rounds={rounds}", noise)
    found, rate = released(els(*ALONE, *words, "algo.calibration=given"))
    places, weights = mixture(rate, most, sigma)
    relation = dp.NeighboringRelation.ADD_OR_REMOVE_ONE
    theirs = PLDAccountant(relation, value_discretization_interval=4e-3)
    theirs.compose(MixtureOfGaussiansDpEvent(sigma, places.tolist(), weights.tolist()), rounds)
    assert found == pytest.approx(theirs.get_epsilon(DELTA), rel=3e-4)
    assert found == pytest.approx(sampled_epsilon(rate, sigma, rounds, 4e-3, group=most), rel=3e-4)
    runs = [(dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(sigma)), rounds)]
    if most == 1:
        assert found == pld_epsilon(runs, ADD_REMOVE, DELTA)
        return
    assert found < min(group_dp(runs, most, DELTA), group_rdp_epsilon(runs, most, DELTA))
    if rounds == 1:
        delta = one_round(found, rate, most, sigma)
        assert 0.97 * DELTA < delta <= DELTA


@pytest.mark.parametrize(
    ("words", "least"),
    [
        ("", 0.99),
        ("aggregation=masked algo.records_per_user=2", 0.99),
        ("algo.observer=server algo.cohort=2", 0.99),
        ("aggregation=shuffle", 0.99),
    ],
)
def test_noise_is_made_for_users_whose_records_have_coins_of_their_own(words, least):
    """Over all silos, whose records differ in number."""
    exp = els("preset.n_users=100", "rounds=6", "algo.epsilon=3", *words.split())
    forecast = EpsilonForecast.of(exp)
    users = [row for row in forecast.rows_at([6]) if row.unit == "user"]
    assert least * 3 < headline(users, exp.algo.headline_observer) <= 3
    assert {row.adjacency for row in users} == {ADD_REMOVE}


def test_users_are_sampled_by_one_coin_each():
    exp = experiment("algo=uls", "preset.n_users=20", "algo.noise_multiplier=2")
    [query] = exp.algo.queries(1, EpsilonForecast.of(exp).plan)
    certified = {event.observer: event.certified for event in query.events}
    assert certified[RELEASED_MODEL] == dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(2.0))
    assert certified["server"] == dp.NonPrivateDpEvent()  # weights by records tell it counts


def test_rounds_of_a_plain_loop():
    """Logistic regression in numpy, from the records of at most G of each user."""
    words = ("algo.calibration=given", "algo.noise_multiplier=0", "algo.clip=0.5", "rounds=5")
    exp = els(*words, "model=linear", "preset.n_users=9", "preset.n_silos=2", "algo.global_lr=0.7")
    with prepare(exp) as run:
        silos = [run.silo_data[silo] for silo in range(2)]
        owners = np.concatenate([np.repeat(one.users, one.counts) for one in silos])
        assert np.bincount(owners).max() == 4
        params = run.state.params.astype(float)
        clipped = 0
        for number in range(1, 6):
            [query] = run.queries(number)
            total = np.zeros(len(params))
            for index, data in enumerate(silos):
                size = exp.algo.size("gradient", len(data.x))
                silo = Silo(index, data, run.model, run.evaluation.task, run.plan)
                rows = Poisson().rows(silo, query, size)
                gradients = per_record(params, data.x.numpy()[rows], data.y.numpy()[rows])
                norms = np.linalg.norm(gradients, axis=1)
                clipped += int((norms > 0.5).sum())
                total += (gradients * np.minimum(1, 0.5 / norms)[:, None]).sum(axis=0) / size
            params -= 0.7 * total / 2
            run.state = run.run_round((query,), run.state).state
            np.testing.assert_allclose(run.state.params, params, atol=1e-6)
        assert clipped > 10


def per_record(params, x, y):
    """Gradients of the cross-entropy of two classes, weights before biases."""
    weights, bias = params[: 2 * x.shape[1]].reshape(2, -1), params[-2:]
    chances = special.softmax(x @ weights.T + bias, axis=1)
    errors = chances - np.eye(2)[y]
    return np.hstack([(errors[:, :, None] * x[:, None, :]).reshape(len(x), -1), errors])


GIVEN = ("algo.calibration=given", "algo.noise_multiplier=1", "algo.batch_size=4")


def careless(cls, exp):
    values = {field.name: getattr(exp.algo, field.name) for field in fields(exp.algo)}
    return replace(exp, algo=cls(**values))


@dataclass(frozen=True)
class NoCap(MinibatchSgd):
    """Lets all records of a user train."""

    def training_records(self, allocation, data):
        return allocation


@dataclass(frozen=True)
class WiderCap(MinibatchSgd):
    """Keeps twice as many records of a user as it counts."""

    def training_records(self, allocation, data):
        return select(allocation, 2 * self.records_per_user)


@pytest.mark.parametrize("cls", [NoCap, WiderCap])
def test_nothing_is_certified_for_more_records_than_are_counted(cls):
    exp = careless(cls, els(*SMALL, *GIVEN))
    with prepare(exp) as run:
        users = [one for one in events_of(run.queries(1)) if one.unit == "user"]
    assert {one.certified for one in users} == {dp.NonPrivateDpEvent()}


class OneCoin(Poisson):
    """All records of a user by one coin."""

    def rows(self, silo, query, size):
        owners = np.repeat(silo.data.users, silo.data.counts)
        purpose = query.stream("record sample")
        coins = silo.streams.unit_coins(purpose, query.round, silo.name, owners)(0)
        return np.flatnonzero(coins * silo.public_records < size)


@dataclass(frozen=True)
class UserCoins(MinibatchSgd):
    @property
    def batches(self):
        return OneCoin()


@pytest.mark.parametrize(("cls", "alarm"), [(MinibatchSgd, False), (UserCoins, True)])
def test_one_coin_for_all_records_of_a_user_is_found(cls, alarm):
    exp = careless(cls, els(*SMALL, *GIVEN, "rounds=2"))
    found = [*sample_premises(exp, rounds=2, seconds=0)]
    assert any("several records at once" in str(premise) for premise in found)
    assert any(premise.alarm for premise in sharing_level(found)) == alarm


@dataclass(frozen=True)
class LittleNoise(MinibatchSgd):
    """Adds a tenth less noise."""

    def local_update(self, silo, query, down):
        job = super().local_update(silo, query, down)
        return replace(job, noise=0.9 * job.noise)


@dataclass(frozen=True)
class NoClip(MinibatchSgd):
    """Clips at three times the bound."""

    def local_update(self, silo, query, down):
        loose = replace(query.mechanism, clip=3 * query.mechanism.clip)
        job = super().local_update(silo, replace(query, mechanism=loose), down)
        return replace(job, noise=job.noise / 3)


FAULTS = [
    (UserCoins, "several records at once"),
    (LittleNoise, r"noise of silos: measured 0\.90"),
    (NoClip, r"from the file to the noise: user, add/remove: 1\.\d+ times the distance"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("cls", "why"), FAULTS)
def test_careless_versions_fail(cls, why):
    algo = careless(cls, els(*SMALL, *GIVEN)).algo
    with pytest.raises(ConformanceError, match=why):
        check_algorithm(algo)


@pytest.mark.slow
def test_the_shipped_method_passes():
    assert check_algorithm(els(*SMALL, *GIVEN).algo).missing == ("other data",)
