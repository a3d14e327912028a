import numpy as np
import pytest
from plain_loop import close, fedpriv_rounds, local_change

from fedpriv.accountants.ledger import Ledger
from fedpriv.accountants.pld import gaussian_epsilon
from fedpriv.rounds.query import events_of
from fedpriv.rounds.state import State
from fedpriv.runs.epsilon_forecast import EpsilonForecast
from fedpriv.runtime import prepare
from fedpriv.settings.compose import one_experiment
from fedpriv.testing import experiment
from fedpriv.testing.experiments import SMALL

BETA1, BETA2, TAU, ETA = 0.8, 0.95, 0.05, 0.3
WORDS = ["algo=fedopt", f"algo.momentum={BETA1}"]


def mean_change(prepared, params):
    return np.mean([local_change(prepared, silo, params) for silo in range(3)], axis=0)


@pytest.mark.parametrize("rule", ["adagrad", "adam", "yogi"])
def test_three_rounds_of_algorithm_2(rule):
    """Reddi et al., line by line."""
    own = [f"algo.adaptivity={TAU}", f"algo.rule={rule}", f"algo.global_lr={ETA}"]
    own += [f"algo.second_moment={BETA2}"] if rule != "adagrad" else []
    start, after, prepared = fedpriv_rounds(3, *WORDS, *own)
    x, m, v = start, np.zeros_like(start), np.full_like(start, TAU**2)
    for found in after:
        change = mean_change(prepared, x)
        m = BETA1 * m + (1 - BETA1) * change
        v = {
            "adagrad": v + change**2,
            "adam": BETA2 * v + (1 - BETA2) * change**2,
            "yogi": v - (1 - BETA2) * change**2 * np.sign(v - change**2),
        }[rule]
        x = x + ETA * m / (np.sqrt(v) + TAU)
        close(found, x)


ULDP = (*SMALL, "algo.noise_multiplier=2", "rounds=4")


@pytest.mark.parametrize("rule", ["momentum", "adam", "yogi"])
def test_an_optimiser_on_noised_sums_of_users_has_the_certificate_of_the_sums(rule):
    """The same draws: the optimiser follows what ULDP-AVG steps along."""
    rules = ("algo=uldp_opt", f"algo.rule={rule}", f"algo.global_lr={ETA}")
    with (
        prepare(experiment(*ULDP, *rules)) as run,
        prepare(experiment(*ULDP, "algo=uldp_avg", "algo.global_lr=1")) as plain,
    ):
        x, m, v = run.state.params, 0.0, 1e-6
        for number in range(1, 5):
            queries = run.queries(number)
            assert events_of(queries) == events_of(plain.queries(number))
            after = plain.run_round(plain.queries(number), State(x)).state.params
            run.state = run.run_round(queries, run.state).state
            change = 3**2 * (after - x)  # a user is in one of 3 silos, with weight a third
            m = 0.9 * m + change * (1.0 if rule == "momentum" else 0.1)
            v = {
                "momentum": v,
                "adam": 0.99 * v + 0.01 * change**2,
                "yogi": v - 0.01 * change**2 * np.sign(v - change**2),
            }[rule]
            x = x + ETA * (m if rule == "momentum" else m / (np.sqrt(v) + 1e-3))
            np.testing.assert_allclose(run.state.params, x, rtol=1e-6, atol=1e-9)


def test_correlated_noise_and_a_server_optimiser_are_dp_ftrl_with_one_release_a_turn():
    """Of Gaussians with clip over noise once a turn, whatever the optimiser does with the sums."""
    turns = (*ULDP, "algo.cycle=2", "mechanism=correlated", "accountant=pld")
    found = []
    for algo in ("uldp_avg", "uldp_opt"):
        exp = experiment(*turns, f"algo={algo}")
        ledger = Ledger(exp.accountant)
        with prepare(exp) as run:
            for number in range(1, 5):
                ledger.record(events_of(run.queries(number)))
                run.state = run.run_round(run.queries(number), run.state).state
        found.append({row.observer: row.certified for row in ledger.rows(4)})
    assert found[0] == found[1]
    assert found[0]["released model"] < gaussian_epsilon(4**0.5 / 2, 1e-5)


@pytest.mark.parametrize(
    ("mechanism", "rounds", "turns"),
    [("correlated", 40, 4), ("gaussian", 40, 4), ("gaussian", 41, 5)],
)
@pytest.mark.parametrize("rule", ["momentum", "adam"])
def test_an_experiments_baselines_have_the_certificate_of_a_users_turns(
    mechanism, rounds, turns, rule
):
    """Of a Gaussian with clip over noise in every tenth round."""
    words = ("experiment=baselines/dp_ftrl", "seed=0", "accountant=pld", f"rounds={rounds}")
    exp = one_experiment(*words, f"mechanism={mechanism}", f"algo.rule={rule}")
    found = {row.observer: row.certified for row in EpsilonForecast.of(exp).last}
    assert found["server"] == found["released model"]
    assert found["server"] == pytest.approx(gaussian_epsilon(turns**0.5 / 2, 1e-5), rel=1e-3)
