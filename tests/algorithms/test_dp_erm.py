import math
from dataclasses import replace

import numpy as np
import pytest
from erm_world import ALGO, FEATURES, flipped, kept, prepared, rounds_of, silos_of
from plans import block_of, make_plan

from fedpriv.aggregation.secagg.aggregation import SecAgg
from fedpriv.engines.inprocess import InProcess
from fedpriv.errors import ConfigError
from fedpriv.mechanisms.discrete_gaussian import DiscreteGaussian
from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.mechanisms.none import NoMechanism
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
