import math
from dataclasses import replace

import numpy as np
import pytest
from erm_world import (
    ALGO,
    CONVEX,
    FEATURES,
    PAPER,
    SECURE,
    flipped,
    kept,
    prepared,
    rounds_of,
    silos_of,
)
from plans import block_of, make_plan, only_query

from fedpriv.accountants.ledger import Ledger
from fedpriv.accountants.pld import Pld
from fedpriv.aggregation.masked import Masked
from fedpriv.aggregation.plain import Plain
from fedpriv.aggregation.secagg.aggregation import SecAgg
from fedpriv.engines.inprocess import InProcess
from fedpriv.errors import ConfigError
from fedpriv.mechanisms.discrete_gaussian import DiscreteGaussian
from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.mechanisms.none import NoMechanism
from fedpriv.models.linear import Linear
from fedpriv.models.tasks import ConvexLoss
from fedpriv.rounds.plan import Federation
from fedpriv.rounds.silo_context import Silo
from fedpriv.rounds.state import State
from fedpriv.testing.faults import Faulty, drop


def gradient(theta, silo, convexity):
    """Of J_j, by hand: softmax regression on records scaled into the unit ball."""
    x, y = silo.x.double().numpy(), silo.y.numpy()
    x = np.hstack(
        [x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1), np.ones((len(x), 1))]
    )
    weights = np.hstack(
        [theta[: 2 * FEATURES].reshape(2, FEATURES), theta[2 * FEATURES :].reshape(2, 1)]
    )
    scores = np.exp(x @ weights.T)
    errors = scores / scores.sum(axis=1, keepdims=True) - np.eye(2)[y]
    slope = errors.T @ x / len(x)
    return np.concatenate([slope[:, :FEATURES].ravel(), slope[:, FEATURES]]) + convexity * theta


def test_one_step_over_all_silos_without_noise_is_gradient_descent():
    silos = silos_of([20, 30, 25])
    sim = prepared(ALGO, silos)
    theta = sim.state.params
    for step, (found, _, _) in enumerate(rounds_of(sim, 8), start=1):
        theta = theta - ALGO.rate(step) * np.mean(
            [gradient(theta, silo, 0.1) for silo in silos], axis=0
        )
        np.testing.assert_allclose(found, theta, atol=1e-6)
    assert not kept(sim)


@pytest.mark.parametrize("broadcast_all", [False, True])
def test_who_is_not_in_the_sum_goes_on_from_its_own_model_or_from_the_average(broadcast_all):
    """Algorithm 1 by hand, with the sets that the server drew."""
    silos, steps = silos_of([20, 30, 25, 15]), 2
    algo = replace(ALGO, local_steps=steps, broadcast_all=broadcast_all)
    sim = prepared(algo, silos, SecAgg(cohort=3, threshold=3))
    models, sizes_of_kept = {f"silo{s}": sim.state.params for s in range(4)}, set()
    for round, (theta, chosen, _) in enumerate(rounds_of(sim, 6), start=1):
        for s, silo in enumerate(silos):
            for step in range((round - 1) * steps + 1, round * steps + 1):
                model = models[f"silo{s}"]
                models[f"silo{s}"] = model - algo.rate(step) * gradient(model, silo, 0.1)
        if broadcast_all:
            options = [
                np.mean([models[f"silo{s}"] for s in range(4) if s != out], axis=0)
                for out in range(4)
            ]
            assert min(np.abs(theta - option).max() for option in options) < 1e-6
            models = dict.fromkeys(models, theta)
        else:
            np.testing.assert_allclose(
                theta, np.mean([models[name] for name in chosen], axis=0), atol=1e-6
            )
            models |= dict.fromkeys(chosen, theta)
        sizes_of_kept.add(len(kept(sim)))
    assert sizes_of_kept == ({0} if broadcast_all else {1})


def test_a_round_without_a_sum_leaves_all_models_where_they_were():
    silos, algo = silos_of([20, 30, 25, 15]), replace(ALGO, noise_multiplier=1.0)
    # The set-up is exchange 0, so exchange 4 is that of round 4.
    lossy = Faulty(
        InProcess(), (drop(sender="silo0", exchange=4), drop(sender="silo1", exchange=4))
    )
    sim = prepared(algo, silos, SecAgg(cohort=3, threshold=3), engine=lossy)
    [*_, (theta, _, result)] = rounds_of(sim, 3)
    assert not result.aborted
    before = {name: memory["model"].tobytes() for name, memory in kept(sim).items()}
    result = sim.run_round(sim.queries(4), State(theta))
    assert result.aborted
    np.testing.assert_array_equal(result.state.params, theta)
    assert {name: memory["model"].tobytes() for name, memory in kept(sim).items()} == before
    assert len(before) == 1


def test_a_silo_that_nobody_asked_takes_its_steps_too():
    """With fewer candidates than silos, the model that a silo keeps is the one after its steps."""
    silos = silos_of([20, 30, 25, 15])
    sim = prepared(ALGO, silos, SecAgg(cohort=3, threshold=2, candidates=3))
    [(_, chosen, result)] = rounds_of(sim, 1)
    assert len(chosen) == 3
    assert result.stats.units == 20 + 30 + 25 + 15
    start, left_out = sim.state.params, kept(sim)
    assert len(left_out) == 1
    for name, memory in left_out.items():
        step = start - ALGO.rate(1) * gradient(start, silos[int(name[-1])], 0.1)
        np.testing.assert_allclose(memory["model"], step, atol=1e-6)


def test_a_kept_model_has_the_noise_of_all_its_steps():
    """Between two runs that differ in the noise alone, against its declared size."""
    silos, steps, z = silos_of([20, 30, 25, 15]), 3, 2.0
    total = []
    for seed in range(20):
        noisy, quiet = (
            prepared(
                replace(ALGO, local_steps=steps, noise_multiplier=noise),
                silos,
                SecAgg(cohort=3, threshold=3),
                seed=seed,
            )
            for noise in (z, 0.0)
        )
        for sim in (noisy, quiet):
            list(rounds_of(sim, 1))
        [(name, memory)] = kept(noisy).items()
        scale = ALGO.clip * z / len(silos[int(name[-1])].x)
        total += list((memory["model"] - kept(quiet)[name]["model"]) / scale)
    rates = [replace(ALGO, local_steps=steps).rate(t) for t in (1, 2, 3)]
    expected = math.hypot(*rates)  # the curvature of the loss shrinks old noise a little
    assert 0.85 * expected < np.std(total) < 1.05 * expected


def test_rates_are_short_and_fall_slowly():
    """Theorem 4 needs eta_t <= 1 / (4 L) and eta_t <= 2 eta_(t + K)."""
    for steps in (1, 5, 500):
        algo = replace(ALGO, local_steps=steps)
        rates = np.array([algo.rate(t) for t in range(1, 3000)])
        assert rates[0] <= 1 / (4 * algo.smoothness) * (1 + 1e-12)
        assert (np.diff(rates) < 0).all()
        assert (rates[:-steps] <= 2 * rates[steps:] * (1 + 1e-12)).all()


@pytest.mark.parametrize("steps", [1, 2, 6])
def test_a_record_moves_a_model_by_at_most_k_last_steps(steps):
    """The premise of the sum bound, for the worst kind of change: a clipped gradient that turns
    round."""
    algo = replace(ALGO, local_steps=steps, clip=0.05, noise_multiplier=3.0)
    [records] = silos_of([30])
    for round in (1, 7):
        for record in (0, 11):
            models = []
            for data in (records, flipped(records, record)):
                sim = prepared(algo, [data])
                silo = Silo(0, data, sim.model, sim.evaluation.task, sim.plan)
                models.append(block_of(algo, silo, sim.queries(round)[0], sim.state.params)[0])
            most = steps * algo.rate(round * steps) * 2 * algo.clip / 30
            moved = np.linalg.norm(models[0] - models[1])
            assert 0.8 * most < moved <= most * (1 + 1e-4)


@pytest.mark.parametrize(
    ("calibration", "mechanism", "drawn", "message"),
    [
        ("certified", NoMechanism(), 1, r"algo\.calibration=certified: given"),
        ("given", DiscreteGaussian(1.0, 1.0), 1, "mechanism=discrete_gaussian"),
        ("given", Gaussian(1.0, 1.0), 2, "algo=dperm: another for this data set"),
    ],
)
def test_what_cannot_work_is_refused(calibration, mechanism, drawn, message):
    federation = Federation(3, 3, 10, (10, 20, 40), records_per_draw=drawn)
    with pytest.raises(ConfigError, match=message):
        make_plan(replace(ALGO, calibration=calibration), mechanism, federation=federation)


# -- what DP-ERM is certified for, and where the paper's claim fails -------------------------------


SUM, LOCAL = "hides the sum", "only the silo's own noise"


def fifty_each(silos, algo, aggregation, loss=CONVEX):
    """Silos of 50 records under a noise multiplier of 7."""
    federation = Federation(silos, silos, 10, (50,) * silos, loss=loss)
    return make_plan(algo, Gaussian(2.0, 7.0), aggregation, federation=federation)


@pytest.mark.parametrize(
    ("aggregation", "silos", "everybody", "steps", "observer", "bound"),
    [
        (SECURE, 20, True, 1, "released model", (SUM, 2, 12)),
        (SECURE, 20, True, 1, "server", (SUM, 2, 12)),
        (SECURE, 20, True, 1, "silo", (SUM, 2, 11)),
        (SECURE, 20, True, 5, "server", (SUM, 10, 12)),
        (
            SECURE,
            20,
            True,
            14,
            "server",
            (LOCAL, 2 * 14**0.5, 1),
        ),  # fourteen steps' own noise beats twelve last steps'
        (SECURE, 20, False, 1, "server", (LOCAL, 2, 1)),
        (SECURE, 20, False, 1, "released model", (LOCAL, 2, 1)),
        (Masked(), 20, False, 5, "server", (SUM, 10, 20)),  # everybody is in every sum
        (Plain(), 20, False, 5, "released model", (SUM, 10, 20)),
        (Plain(), 20, False, 5, "server", (LOCAL, 2 * 5**0.5, 1)),
        (Plain(), 20, True, 1, "server", (LOCAL, 2, 1)),
        (Masked(), 2, False, 1, "silo", (LOCAL, 2, 1)),
    ],
)
def test_what_is_certified_of_a_round(aggregation, silos, everybody, steps, observer, bound):
    """By how much a record moves what is released, in noise units of one step, under how many
    silos' noise."""
    algo = replace(ALGO, local_steps=steps, broadcast_all=everybody)
    events = only_query(algo, fifty_each(silos, algo, aggregation)).events
    [event] = [e for e in events if e.observer == observer and e.scope == "silo0"]
    why, moved, hidden = bound
    assert event.certified.noise_multiplier == pytest.approx(
        7.0 * math.sqrt(hidden) / moved, rel=1e-5
    )
    assert event.certified.noise_multiplier <= 7.0 * math.sqrt(hidden) / moved
    assert any(why in text for text in event.assumptions)
    assert (event.unit, event.adjacency) == ("record", "replace")


@pytest.mark.parametrize(
    ("loss", "smoothness", "why"),
    [
        (None, 1.1, "not known to be convex"),
        (CONVEX, 0.1, "steps are too long"),
        (ConvexLoss(0.5, Linear()), 1.1, "no public bound"),
    ],
)
def test_several_steps_need_a_convex_smooth_loss_for_the_sum_bound(loss, smoothness, why):
    for steps in (1, 3):
        algo = replace(ALGO, local_steps=steps, broadcast_all=True, smoothness=smoothness)
        event = only_query(algo, fifty_each(20, algo, SECURE, loss)).events[0]
        assert any(why in text for text in event.assumptions) == (steps > 1)
        assert event.certified.noise_multiplier == pytest.approx(
            7 / 2 * (12**0.5 if steps == 1 else 3**-0.5), rel=1e-5
        )


def test_later_rounds_cost_the_same_and_rounding_costs_a_little():
    algo = replace(ALGO, local_steps=2, broadcast_all=True)
    plan = fifty_each(20, algo, SECURE)
    queries = [only_query(algo, plan, round) for round in (1, 20, 2000)]
    assert queries[0].events == queries[1].events
    first, beyond = (query.events[0].certified.noise_multiplier for query in queries[1:])
    assert beyond < first < 7 * 12**0.5 / 4  # shorter steps shrink the noise, not the grid


def server_epsilons(algo, federation, aggregation):
    plan = make_plan(
        algo, Gaussian(algo.clip, algo.noise_multiplier), aggregation, federation=federation
    )
    ledger = Ledger(Pld(algo.delta))
    events = only_query(algo, plan).events
    ledger.record((event for event in events if event.observer == "server"), algo.rounds)
    [row] = ledger.rows(1)
    return row.claimed, row.certified, plan.mechanism


@pytest.mark.parametrize(
    ("calibration", "everybody", "sigma", "epsilon"),
    [
        ("paper", True, 9.597052e-4, 49.05),
        ("paper", False, 9.597052e-4, 305.1),
        ("certified", False, 0.0980110, None),
    ],
)
def test_published_noise(calibration, everybody, sigma, epsilon):
    """G = 1, T = 100, m = 100, n = 1000, (1, 1e-5): equation (2), and what 100 Gaussian steps need
    under zCDP."""
    algo = replace(ALGO, clip=1.0, calibration=calibration, broadcast_all=everybody, rounds=100)
    federation = Federation(100, 100, 10, (1000,) * 100)
    claimed, certified, mechanism = server_epsilons(algo, federation, PAPER)
    assert mechanism.share_deviation(1, 1 / 1000) == pytest.approx(sigma, rel=2e-6)
    if epsilon:
        assert claimed == pytest.approx(1.0, rel=1e-9)
        assert certified == pytest.approx(epsilon, rel=1e-4)
    else:
        assert certified < 1.0
        rho = 100 * (2 / mechanism.noise_multiplier) ** 2 / 2
        assert rho + 2 * math.sqrt(rho * math.log(1e5)) == pytest.approx(1.0, rel=1e-9)


def test_silos_of_different_sizes():
    """Certified noise falls with a silo's own size, and all cost the same; the paper's is that of
    the smallest for all."""
    federation = Federation(3, 3, 10, (10, 20, 40), loss=CONVEX)
    for calibration, factors in (("certified", (1, 1, 1)), ("paper", (1, 2, 4))):
        algo = replace(ALGO, calibration=calibration)
        plan = make_plan(algo, Gaussian(2.0, 0.0), federation=federation)
        seen = [
            e.certified.noise_multiplier
            for e in only_query(algo, plan).events
            if e.observer == "server"
        ]
        assert seen == pytest.approx(
            [plan.mechanism.noise_multiplier / 2 * factor for factor in factors]
        )
