"""What the methods of Lowy et al. charge and calibrate: T10, T11 and golden row 31 of ALGORITHMS 8
and 9."""

import math
from dataclasses import replace

import dp_accounting as dp
import numpy as np
import pytest
from erm_world import flipped, prepared, silos_of
from lowy_world import (
    ALTERNATE,
    CERTIFIED,
    FEDERATION,
    METHODS,
    MINIBATCH,
    ONE_PASS,
    SPIDER,
    SVRG,
    named,
    states_of,
)
from plans import charged, make_plan, only_query
from test_dp_erm import gradient

from fedpriv.accountants.events import CHEATING_SERVER
from fedpriv.accountants.ledger import headline
from fedpriv.accountants.pld import Pld, gaussian_epsilon
from fedpriv.accountants.rdp import Rdp
from fedpriv.aggregation.masked import Masked
from fedpriv.aggregation.plain import Plain
from fedpriv.aggregation.secagg.aggregation import SecAgg
from fedpriv.algorithms.local_sgd import LocalSgd
from fedpriv.data.embedded import BreastCancer
from fedpriv.errors import ConfigError
from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.mechanisms.none import NoMechanism
from fedpriv.rounds.plan import Federation
from fedpriv.rounds.silo_context import Silo
from fedpriv.runs.epsilon_forecast import EpsilonForecast
from fedpriv.testing import experiment

LOCAL = LocalSgd(
    local_steps=5,
    batch_size=1,
    local_lr=0.1,
    clip=1.0,
    noise_multiplier=0.0,
    cohort=None,
    participation="uniform",
    feature_norm=None,
    calibration="certified",
    epsilon=3.0,
    observer="server",
    rounds=12,
    delta=1e-5,
)


def plan_of(algo, aggregation=Plain()):
    return make_plan(algo, Gaussian(1.0, 0.0), aggregation, federation=FEDERATION)


def spent(algo, plan, accountant=None, observer="server", rounds=None):
    rows = charged(algo, plan, rounds or algo.rounds, accountant or Pld(algo.delta))
    return headline(rows, observer), rows


@pytest.mark.parametrize(
    ("algo", "cohort"),
    [*((algo, None) for algo in (*METHODS, LOCAL)), (MINIBATCH, 2), (SPIDER, 2), (LOCAL, 2)],
)
def test_all_releases_together_cost_exactly_the_epsilon_that_is_asked_for(algo, cohort):
    algo = replace(algo, **{k: v for k, v in CERTIFIED.items() if algo is not LOCAL}, cohort=cohort)
    epsilon, rows = spent(algo, plan_of(algo))
    assert epsilon == pytest.approx(3.0, abs=1e-6)
    assert {row.unit for row in rows} == {"record"}
    assert {row.adjacency for row in rows} == {"replace"}
    assert all(row.certified <= 3.0 + 1e-6 for row in rows)
    assert algo.headline_observer == "server"


def test_one_pass_costs_one_release_whatever_the_rounds():
    algo = replace(ONE_PASS, **CERTIFIED)
    plan = plan_of(algo)
    assert [spent(algo, plan, rounds=rounds)[0] for rounds in (1, 5, 12)] == pytest.approx(
        [3.0] * 3, abs=1e-6
    )
    scopes = {
        event.scope
        for number in (1, 2)
        for query in algo.queries(number, plan)
        for event in query.events
    }
    assert scopes == {f"silo{silo}/batch{number}" for silo in range(4) for number in (1, 2)}
    with pytest.raises(ConfigError, match="rounds=12: at most 11"):
        replace(algo, batch_size=5).training_records(_allocation(59), None)


def _allocation(records):
    class Allocated:
        def counts(self):
            return np.array([[100], [records]])

        def silo_sizes(self):
            return self.counts().sum(axis=1)

    return Allocated()


@pytest.mark.parametrize("algo", [MINIBATCH, SPIDER], ids=named)
def test_a_silo_without_training_records_is_told(algo):
    """Its batch would have no mean; once a division by zero."""
    with pytest.raises(ConfigError, match=r"allocator\.n_silos=2: .* a silo has none to train on"):
        algo.training_records(_allocation(0), BreastCancer())


def claims(rows):
    """No paper claims anything for a server that cheats."""
    return [row.claimed for row in rows if row.observer != CHEATING_SERVER]


@pytest.mark.parametrize("algo", [MINIBATCH, ONE_PASS, SPIDER, ALTERNATE], ids=named)
def test_the_papers_noise_has_the_papers_claim(algo):
    algo = replace(algo, **CERTIFIED | {"calibration": "paper"})
    _, rows = spent(algo, plan_of(algo), rounds=12)
    assert claims(rows) == pytest.approx([3.0] * 3, rel=1e-6)
    # The one pass is certified below its claim: the paper's constant is 16 where the exact one is
    # smaller.
    assert (headline(rows, "server") < 3.0) == (
        algo is not MINIBATCH and type(algo).__name__ == "ProxSgd"
    )


def test_gradients_may_have_more_of_the_budget():
    noises = []
    for share in (0.1, 0.9):
        algo = replace(SVRG, **CERTIFIED, gradient_share=share)
        assert spent(algo, plan_of(algo))[0] == pytest.approx(3.0, abs=1e-6)
        noises.append(plan_of(algo).noise_multipliers.values())
    (anchor, difference), (less, more) = noises
    assert (anchor / less, more / difference) == pytest.approx((3, 3))


def test_golden_row_31():
    """q = .1, std 5 L / K, 100 rounds: a batch of fixed size against coins."""
    algo = replace(MINIBATCH, batch_size=10, noise_multiplier=5.0, rounds=100)
    federation = Federation(1, 1, 10, (100,))
    found = {}
    for sampling, accountant in (("without_replacement", Rdp(1e-5)), ("poisson", Pld(1e-5))):
        method = replace(algo, sampling=sampling)
        plan = make_plan(method, Gaussian(1.0, 5.0), federation=federation)
        found[sampling], rows = spent(method, plan, accountant)
        assert {row.adjacency for row in rows} == {
            "replace" if sampling == "without_replacement" else "add/remove"
        }
    assert found == pytest.approx({"without_replacement": 4.0249, "poisson": 0.7583}, abs=2e-3)


def test_batches_with_replacement_are_certified_for_a_record_that_fills_them():
    algo = replace(
        MINIBATCH, batch_size=10, noise_multiplier=50.0, sampling="with_replacement", rounds=4
    )
    plan = make_plan(algo, Gaussian(1.0, 50.0), federation=FEDERATION)
    epsilon, rows = spent(algo, plan)
    assert epsilon == pytest.approx(gaussian_epsilon(2 * 2 * 10 / 50, 1e-5))
    assert all(any(text.startswith("COMPATIBILITY") for text in row.assumptions) for row in rows)


def test_noise_for_amplified_batches_is_smaller():
    noise = {}
    for sampling, size in (("poisson", 5), ("without_replacement", 60)):
        words = {"sampling": sampling, "batch_size": size, "rounds": 3}
        algo = replace(MINIBATCH, **CERTIFIED | words)
        plan = make_plan(algo, Gaussian(1.0, 0.0), federation=Federation(2, 2, 10, (100, 60)))
        assert 2.97 < spent(algo, plan)[0] <= 3.0 + 1e-6
        noise[sampling] = plan.mechanism.noise_multiplier
    assert noise["poisson"] < 0.9 * noise["without_replacement"]


def test_against_a_sum_the_other_silos_noise_counts():
    """Silos of 100, 100, 80 and 60 records on whole batches: the least noise of those in the sum is
    what hides it."""
    algo = replace(MINIBATCH, **CERTIFIED | {"batch_size": None, "rounds": 1})
    plan = plan_of(algo, Masked())
    [query] = algo.queries(1, plan)
    [mine] = [e for e in query.events if e.scope == "silo3" and e.observer == "silo"]
    alone = plan.query_parameters["gradient"].mechanism.noise_multiplier / 2
    # Of the other three, one is the observer: the least noisy two are left, those of 100 records.
    expected = alone * math.sqrt(1 + 2 * 0.6**2)
    assert mine.certified.noise_multiplier == pytest.approx(expected, rel=1e-3)
    with pytest.raises(ConfigError, match=r"algo\.least_cohort"):
        plan_of(replace(algo, cohort=4, least_cohort=2), SecAgg(cohort=3, threshold=3))


@pytest.mark.parametrize("algo", [MINIBATCH, SVRG, SPIDER], ids=named)
def test_t10_a_record_moves_a_message_by_its_clip_over_the_batch(algo):
    """However long its gradient: clipping comes before the division, over the whole vector."""
    algo = replace(algo, clip=0.01, rounds=4)
    [records] = silos_of([30])
    near = replace(flipped(records, 7), x=records.x.clone())
    records.x[7] *= 1e4
    moved = []
    sims = [prepared(algo, [data]) for data in (records, near)]
    list(states_of(sims[0], 2))  # away from an anchor
    query = sims[0].queries(3)[-1]
    down = algo.broadcast(sims[0].state, query)
    for sim, data in zip(sims, (records, near)):
        silo = Silo(0, data, sim.model, sim.evaluation.task, sim.plan)
        [block] = algo.local_update(silo, query, down).contributions
        moved.append(block.vectors[0].numpy())
    held = 2 if "previous" in down else 1
    assert 0 < np.linalg.norm(moved[0] - moved[1]) <= held * 2 * 0.01 / 30 * (1 + 1e-5)


def test_a_run_without_noise_certifies_nothing():
    algo = replace(SPIDER, calibration="given")
    plan = make_plan(algo, NoMechanism(), federation=FEDERATION)
    assert spent(algo, plan)[0] == math.inf
    with pytest.raises(ConfigError, match=r"algo\.calibration=certified: given"):
        make_plan(replace(algo, calibration="certified"), NoMechanism(), federation=FEDERATION)
    assert algo.queries(1, plan)[0].events[0].certified == dp.NonPrivateDpEvent()


@pytest.mark.parametrize("algo", ["minibatch_sgd", "spider"])
def test_noise_and_rounds_for_a_budget_are_those_of_the_server(algo):
    """Which sees single messages: at the calibrated noise it is at its epsilon, and the released
    model far below."""
    planned = EpsilonForecast.of(experiment(f"algo={algo}", "rounds=6", "algo.epsilon=4"))
    exact = planned.exp.accountant
    assert planned.spent(exact, planned.noise, 6) == pytest.approx(4.0, abs=1e-6)
    assert {row.observer: row.certified for row in planned.rows_at([6])}["released model"] < 3
    # Noise twice as large for all kinds: rho is a quarter, and epsilon about half or less.
    assert 1 < planned.spent(exact, 2 * planned.noise, 6) < 2


# -- Local SGD -------------------------------------------------------------------------------------


ALGO = replace(LOCAL, calibration="given")


def test_a_round_averages_models_after_a_step_a_record():
    """Silos of 5 equal records: in whatever order they come, every step is along the same
    gradient.
    """
    [one] = silos_of([1])
    silo = replace(
        one, x=one.x.repeat(5, 1), y=one.y.repeat(5), starts=np.array([0, 5]), records=np.arange(5)
    )
    sim = prepared(ALGO, [silo, silo], mechanism=NoMechanism())
    theta = sim.state.params
    for _ in range(5):
        theta = theta - 0.1 * gradient(theta, silo, 0.0)
    np.testing.assert_allclose(
        sim.run_round(sim.queries(1), sim.state).state.params, theta, atol=1e-6
    )


def test_the_papers_noise_and_what_it_costs():
    """8 K R ln(2 / delta) / (n epsilon)^2; a record in one step a round has rho = 2 / z^2 in
    each.
    """
    algo = replace(ALGO, calibration="paper", delta=1238**-2, rounds=25, local_steps=606)
    plan = make_plan(algo, Gaussian(1.0, 0.0), federation=Federation(1, 1, 10, (1238,)))
    z = plan.mechanism.noise_multiplier
    assert z**2 == pytest.approx(8 * 606 * 25 * math.log(2 * 1238**2) / (1238 * 3.0) ** 2)
    rows = charged(algo, plan, 25, Pld(1238**-2))
    assert [row.claimed for row in rows] == pytest.approx([3.0] * len(rows))
    event = only_query(algo, plan).events[0].certified
    exact = Pld(1238**-2).epsilons([(event, 25)], "replace")["pld"]
    assert headline(rows, "server") == pytest.approx(exact)
    assert exact > (2 * 5 / z) ** 2 / 2 > 3


def test_what_cannot_work_is_refused():
    with pytest.raises(ConfigError, match=r"algo\.batch_size=2"):
        replace(ALGO, batch_size=2)
    with pytest.raises(ConfigError, match=r"algo\.local_steps=5: at most 4"):
        make_plan(ALGO, Gaussian(1.0, 1.0), federation=Federation(2, 2, 10, (4, 9)))
