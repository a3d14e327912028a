import math

import numpy as np
import pytest
import torch
from dp_accounting import (
    GaussianDpEvent,
    get_epsilon_gaussian,
)
from parties_of_generators import Protocols, run
from plans import make_plan, only_query
from queries import query_for

from fedpriv.accountants.events import CHEATING_SERVER
from fedpriv.accountants.ledger import Ledger
from fedpriv.accountants.pld import RdpAndPld
from fedpriv.aggregation.base import SERVER
from fedpriv.aggregation.plain import Plain
from fedpriv.algorithms.uldp import UldpAvg, UldpSgd
from fedpriv.algorithms.uldp_naive import UldpNaive
from fedpriv.errors import ConfigError
from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.rounds.local_job import LocalJob
from fedpriv.rounds.plan import Federation
from fedpriv.rounds.query import Total
from fedpriv.rounds.state import State
from fedpriv.training.contributions import Contributions

COMMON = {
    "clip": 1.0,
    "noise_multiplier": 5.0,
    "user_rate": 1.0,
    "weighting": "uniform",
    "global_lr": 10.0,
}


def avg(**changes):
    return UldpAvg(**(COMMON | {"local_epochs": 1, "batch_size": 4, "local_lr": 0.1} | changes))


def sgd(**changes):
    return UldpSgd(**(COMMON | changes))


@pytest.mark.parametrize(
    ("weighting", "total", "step"),
    [("uniform", (-0.2, 0.65), (-0.5, 1.625)), ("records", (-0.64, 0.68), (-1.6, 1.7))],
)
def test_worked_example(weighting, total, step):
    # ALGORITHMS 2.5, golden row 41: S = 2, U = 2, d = 2, C = 1, sigma = 0, eta_g = 10
    algo, mechanism = avg(weighting=weighting), Gaussian(1.0, 0.0)
    deltas = {"silo0": ([0, 1], [[3.0, 4.0], [-1.0, 0.0]]), "silo1": ([0], [[0.0, 0.5]])}
    protocols = Protocols(Plain(), (0, 1), algo.contributors.weighting)
    run(protocols.setup(np.array([[3, 1], [2, 0]])))
    updates = {
        name: LocalJob(
            iter([Contributions(np.array(units), mechanism.bound(torch.tensor(vectors))[0])]),
            mechanism.noise_share(2, 2, np.random.default_rng(0)),
        )
        for name, (units, vectors) in deltas.items()
    }
    learned = run(protocols.query(query_for(Plain(), 2, users=2, size=2), updates))[SERVER]
    np.testing.assert_allclose(learned.vector, total, atol=1e-6)
    plan = make_plan(algo, mechanism, federation=Federation(2, 2, 2))
    after = algo.global_update(State(np.zeros(2)), only_query(algo, plan), learned, plan)
    np.testing.assert_allclose(after.params, step, atol=1e-6)


def events(algo, silos=5, mechanism=None):
    plan = make_plan(algo, mechanism or Gaussian(0.1, 5.0), federation=Federation(100, silos, 10))
    return {event.observer: event for event in only_query(algo, plan).events}


def test_everybody_sees_the_declared_noise_less_what_they_know():
    seen = events(avg())
    assert seen["released model"].certified == GaussianDpEvent(5.0)
    assert seen["server"].certified == GaussianDpEvent(5.0)
    assert seen["silo"].certified.noise_multiplier == pytest.approx(5 * np.sqrt(4 / 5))
    cheating = seen.pop(CHEATING_SERVER)
    assert (cheating.certified, cheating.claimed) == (GaussianDpEvent(5.0), None)
    assert all(event.claimed == GaussianDpEvent(5.0) for event in seen.values())
    assert {(event.unit, event.adjacency) for event in seen.values()} == {("user", "add/remove")}


def test_the_sample_is_poisson_and_named_by_round():
    algo = avg(user_rate=0.3)
    plan = make_plan(algo, Gaussian(1.0, 1.0), federation=Federation(20_000, 2, 10))
    one, two, again = (only_query(algo, plan, r).sampled for r in (1, 2, 1))
    assert abs(one.mean() - 0.3) < 6 * np.sqrt(0.21 / 20_000)
    assert np.array_equal(one, again)
    assert abs((one & two).mean() - 0.09) < 6 * np.sqrt(0.09 / 20_000)
    assert only_query(avg(), plan).sampled is None


def test_the_denominator_is_the_expected_size():
    algo, total = avg(user_rate=0.5), Total(np.array([8.0]), ("silo0", "silo1"))
    plan = make_plan(algo, Gaussian(1.0, 5.0), federation=Federation(4, 2, 1))
    after = algo.global_update(State(np.zeros(1)), only_query(algo, plan), total, plan)
    assert after.params == 10.0 / (0.5 * 4 * 2) * 8.0


@pytest.mark.parametrize(
    ("weighting", "weight"), [("uniform", 1 / 3), ("records", 1.0), ("home", 1.0)]
)
def test_the_mean_of_changes_is_over_the_users_of_the_silos_that_are_there(weighting, weight):
    """Two users in each of three silos, of which one is missing: four changes of mean 3, and a step
    of 1.5 times that."""
    algo = avg(weighting=weighting, global_lr=None)
    total = Total(weight * np.array([1.0 + 2.0 + 3.0 + 6.0]), ("silo0", "silo2"))
    federation = Federation(6, 3, 1, one_silo_each=True)
    plan = make_plan(algo, Gaussian(1.0, 5.0), federation=federation)
    after = algo.global_update(State(np.zeros(1)), only_query(algo, plan), total, plan)
    assert after.params == pytest.approx(4.5)


def test_only_users_of_one_silo_are_at_home():
    with pytest.raises(ConfigError, match="so that each user has one silo"):
        make_plan(avg(weighting="home"), Gaussian(1.0, 5.0), federation=Federation(6, 3, 1))


def test_labels_are_the_papers():
    labels = [avg().label, avg(weighting="records").label, avg(user_rate=0.5).label]
    assert labels == ["ULDP-AVG", "ULDP-AVG-w", "ULDP-AVG-s q=0.5"]
    assert sgd(weighting="records", user_rate=0.5).label == "ULDP-SGD-ws q=0.5"
    assert avg(weighting="home").label == "ULDP-AVG-h"


# -- ULDP-NAIVE ------------------------------------------------------------------------------------


def naive_events(calibration):
    return events(UldpNaive(50, 64, 0.01, 1.0, 0.1, 5.0, calibration))


def test_the_certificate_always_rests_on_twice_the_papers_sensitivity():
    assert naive_events("paper")["released model"].certified == GaussianDpEvent(2.5)
    assert naive_events("certified")["released model"].certified == GaussianDpEvent(5.0)
    assert (
        naive_events("paper")["released model"].claimed
        == naive_events("certified")["released model"].claimed
        == GaussianDpEvent(5.0)
    )
    assert naive_events("paper")["silo"].certified.noise_multiplier == pytest.approx(
        2.5 * math.sqrt(0.8)
    )


# ALGORITHMS 9, golden row 14
@pytest.mark.parametrize(
    ("rounds", "rdp", "exact"), [(50, 16.513, 15.456), (100, 25.931, 24.382), (200, 41.646, 39.383)]
)
def test_golden_row_14(rounds, rdp, exact):
    ledger = Ledger(RdpAndPld())
    ledger.record(naive_events("paper").values(), rounds)
    rows = {row.method: row for row in ledger.rows(rounds) if row.observer == "released model"}
    assert rows["rdp"].certified == pytest.approx(rdp, abs=1e-3)
    assert rows["pld"].certified == pytest.approx(exact, abs=1e-3)
    assert rows["pld"].certified == pytest.approx(
        get_epsilon_gaussian(2.5 / math.sqrt(rounds), 1e-5), abs=1e-3
    )
    if rounds == 100:
        assert rows["rdp"].claimed == pytest.approx(10.7255, abs=1e-4)
