"""DECOR: rounds of a plain loop, the noise and its certificate, and what a run resumes to."""

from dataclasses import dataclass, replace
from itertools import combinations

import dp_accounting as dp
import numpy as np
import pytest
from erm_world import prepared, silos_of
from lowy_world import SAMPLED
from plans import charged, make_plan
from test_dp_erm import gradient

from fedpriv.accountants.ledger import headline
from fedpriv.accountants.pld import Pld
from fedpriv.algorithms.decor import MODELS, Decor
from fedpriv.certificates.pair_noise import hidden_by_pairs
from fedpriv.errors import ConfigError
from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.rounds.plan import Federation
from fedpriv.rounds.silo_context import Silo
from fedpriv.runtime import prepare
from fedpriv.settings.compose import one_experiment
from fedpriv.testing import ConformanceError, check_algorithm, experiment
from fedpriv.testing.experiments import SMALL
from fedpriv.testing.noise_tests import Noise, Place, independence_tests, scale_tests
from fedpriv.testing.premise import sharing_level

FIXED = ("prox", "prox_size", "prox_group")
SETTINGS = {name: value for name, value in SAMPLED.items() if name not in FIXED}
RING = Decor(
    **SETTINGS | {"batch_size": None, "noise_multiplier": 0.7, "clip": 0.6, "rounds": 3},
    chords=0.0,
    correlated=2.5,
    colluders=1,
)
ALGOS = {"ring": RING, "random": replace(RING, chords=0.4), "all": replace(RING, chords=1.0)}
SIZES = (20, 35, 20, 26, 50, 20)
N = len(SIZES)
SILOS = silos_of(SIZES)  # of all records: with few rounds a batch has no less


def neighbours(chords, n=N):
    """The adjacency matrix of n silos, without the package's graphs."""
    matrix = np.zeros((n, n))
    coins = np.random.default_rng(0).random((n, n))
    for i, j in combinations(range(n), 2):
        matrix[i, j] = matrix[j, i] = j - i in (1, n - 1) or coins[i, j] < chords
    return matrix


def graph_of(matrix):
    return tuple(map(tuple, matrix.tolist()))


def clipped_mean(theta, silo, clip):
    """Of single records' gradients, each by hand."""
    rows = []
    for record in range(len(silo.y)):
        alone = replace(silo, x=silo.x[record : record + 1], y=silo.y[record : record + 1])
        slope = gradient(theta, alone, 0.0)
        rows.append(slope * min(1.0, clip / np.linalg.norm(slope)))
    return np.mean(rows, axis=0)


def normal(streams, purpose, round, party, size):
    return streams.generator(purpose, round, party).standard_normal(size)


def plain_rounds(sim, algo, rounds):
    """Each silo's model after each round, one silo and one pair after the other."""
    streams, start = sim.plan.streams, sim.state.params
    near, models = neighbours(algo.chords), [start] * N
    own = [algo.noise_multiplier * algo.clip / size for size in SIZES]
    for round in range(1, rounds + 1):
        sent = []
        for i in range(N):
            message = clipped_mean(models[i], SILOS[i], algo.clip)
            message = message + own[i] * normal(streams, "noise", round, f"silo{i}", len(start))
            for j in np.flatnonzero(near[i]):
                pair = f"silo{min(i, j)} silo{max(i, j)}"
                noise = normal(streams, "pair noise", round, pair, len(start))
                sign = 1 if i < j else -1
                message += sign * algo.correlated * np.sqrt(own[i] * own[j]) * noise
            sent.append(models[i] - algo.global_lr * message)
        models = []
        for i in range(N):
            weights = near[i] / (1 + np.maximum(near[i].sum(), near.sum(axis=1)))
            mixed = (1 - weights.sum()) * sent[i]
            for j in np.flatnonzero(near[i]):
                mixed = mixed + weights[j] * sent[j]
            models.append(mixed)
        yield np.stack(models)


@pytest.mark.parametrize("name", ALGOS)
def test_three_rounds_of_a_plain_loop(name):
    algo = ALGOS[name]
    sim = prepared(algo, SILOS)
    expected = list(plain_rounds(sim, algo, 3))
    for number, models in enumerate(expected, start=1):
        sim.state = sim.run_round(sim.queries(number), sim.state).state
        np.testing.assert_allclose(sim.state.slots[MODELS], models, atol=1e-6)
        np.testing.assert_allclose(algo.output(sim.state), models.mean(axis=0), atol=1e-6)
    assert (np.ptp(expected[-1], axis=0).max() > 0.01) == (name != "all")


# -- the noise, and what it costs ------------------------------------------------------------------


def covariance(near, own, ratio):
    """Of the noise of messages, of silos with these deviations of their own."""
    shared = ratio**2 * near * np.outer(own, own)
    return np.diag(np.array(own) ** 2 + shared.sum(axis=1)) - shared


def whitened(algo, declared, rounds):
    """The noise of all messages of each round, times the inverse root of the declared
    covariance."""
    sim = prepared(algo, SILOS)
    own = [declared.noise_multiplier * declared.clip / size for size in SIZES]
    near = neighbours(declared.chords)
    values, vectors = np.linalg.eigh(covariance(near, own, declared.correlated))
    rows, places = [], []
    for round in range(1, rounds + 1):
        [query] = sim.queries(round)
        noise = np.zeros((N, sim.state.params.size))
        for index in range(N):
            silo = Silo(index, sim.silo_data[index], sim.model, sim.evaluation.task, sim.plan)
            down = algo.broadcast(sim.state, query)
            noise += algo.local_update(silo, query, down).noise.reshape(noise.shape)
        rows.append(vectors @ np.diag(values**-0.5) @ vectors.T @ noise)
        places += [Place("gradient", round, f"row {index}") for index in range(N)]
    x = np.concatenate(rows)
    return Noise("noise", x, np.zeros(len(x)), places, [0, x.shape[1]])


@pytest.mark.parametrize(
    ("name", "change", "alarms"),
    [
        *((name, {}, False) for name in ALGOS),
        ("ring", {"correlated": 0.9 * RING.correlated}, True),
        ("ring", {"noise_multiplier": 0.9 * RING.noise_multiplier}, True),
        ("random", {"chords": 0.0}, True),
    ],
)
def test_messages_have_the_noise_that_is_certified(name, change, alarms):
    """Whitened, it is that of independent unit Gaussians, by the tests of all other noise."""
    noise = whitened(replace(ALGOS[name], **change), ALGOS[name], 150)
    premises = sharing_level([*scale_tests(noise), *independence_tests(noise)])
    assert any(premise.alarm for premise in premises) == alarms


@dataclass(frozen=True)
class Quieter(Decor):
    """Pairs draw a tenth less noise than declared."""

    def pair_noise(self, silo, query):
        return 0.9 * super().pair_noise(silo, query)


@pytest.mark.slow
def test_the_check_of_methods_finds_pairs_with_less_noise():
    """Shipped, the method passes: tests/conformance/test_algorithms.py."""
    algo = Quieter(**{name: getattr(RING, name) for name in vars(RING) if name not in FIXED})
    with pytest.raises(ConformanceError, match="noise"):
        check_algorithm(algo)


@pytest.mark.parametrize("colluders", [0, 1, 2])
@pytest.mark.parametrize("chords", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("ratio", [0.0, 0.5, 10.0])
def test_a_record_is_hidden_by_the_distance_that_it_moves_all_messages(ratio, chords, colluders):
    """Mahalanobis, in the messages that the worst colluders have not sent."""
    near, own = neighbours(chords), 1 / np.array(SIZES)
    found = hidden_by_pairs(graph_of(near), tuple(own.tolist()), ratio, colluders)
    for silo in range(N):
        squares = []
        for honest in combinations(range(N), N - colluders):
            if silo in honest:
                step = own[silo] * (np.array(honest) == silo)
                left = covariance(near[np.ix_(honest, honest)], own[list(honest)], ratio)
                squares.append(step @ np.linalg.solve(left, step))
        assert found[silo] == pytest.approx(1 / max(squares), rel=1e-9)


@pytest.mark.parametrize(
    ("chords", "ratio", "of_a_page"),
    [(0.0, 3, (5.28, 3.46, 1.0)), (0.0, 10, (7.61, 6.22, 1.0)), (1.0, 3, (7.3, 6.4, 5.5))],
)
def test_eight_silos_are_hidden_as_the_page_says(chords, ratio, of_a_page):
    """docs/privacy/correlated.md"""
    graph, own = graph_of(neighbours(chords, 8)), (1.0,) * 8
    found = [min(hidden_by_pairs(graph, own, ratio, known)) for known in range(3)]
    assert found == pytest.approx(of_a_page, abs=0.005)


@pytest.mark.parametrize(
    ("observer", "colluders", "left"),
    [
        ("released model", 1, range(10)),
        ("server", 1, range(10)),
        ("silo", 1, range(1, 10)),  # a neighbour on the ring leaves a path
        ("silo", 2, (0,)),  # both neighbours leave nobody
    ],
)
def test_epsilons_on_a_ring_are_those_of_another_accountant(observer, colluders, left):
    """10 silos, 20 rounds with batches of 20, too large a share for amplification. One record of a
    batch is replaced: it moves a mean by 2 C / 20, and all messages by its Mahalanobis distance."""
    algo = replace(RING, batch_size=20, noise_multiplier=8.0, colluders=colluders, rounds=20)
    federation = Federation(10, 10, 7, (20, 30, 40, 50, 60) * 2)
    plan = make_plan(algo, Gaussian(0.6, 8.0), federation=federation)
    near = np.array([[(i - j) % 10 in (1, 9) for j in left] for i in left], dtype=float)
    inverse = np.linalg.inv(covariance(near, np.ones(len(left)), algo.correlated))
    distance = 2 * np.sqrt(20 * inverse.diagonal().max()) / 8.0
    accountant = dp.pld.PLDAccountant()
    accountant.compose(dp.GaussianDpEvent(1 / distance))
    expected = accountant.get_epsilon(1e-5)
    rows = charged(algo, plan, 20, Pld(1e-5))
    assert headline(rows, observer) == pytest.approx(expected, rel=1e-3)


def test_noise_by_the_certificate_costs_what_was_asked_for():
    algo = replace(RING, calibration="certified", epsilon=3.0, observer="silo", colluders=2)
    plan = make_plan(algo, Gaussian(0.6, 0.0), federation=Federation(6, 6, 7, (40,) * 6))
    costs = {name: headline(charged(algo, plan, 3, Pld(1e-5)), name) for name in OBSERVERS}
    assert costs["silo"] == pytest.approx(3.0, abs=1e-3)
    assert costs["server"] == costs["released model"] < 2.0


GIVEN = ("algo.calibration=given", "algo.noise_multiplier=1")
OBSERVERS = ("released model", "server", "silo")


def test_messages_with_the_noise_of_many_pairs_fit_the_grid():
    found = {}
    for aggregation in ("plain", "masked"):
        words = ("algo=decor", "algo.chords=1", "algo.correlated=100", f"aggregation={aggregation}")
        with prepare(experiment(*SMALL, *GIVEN, *words)) as run:
            found[aggregation] = run.run_round(run.queries(1), run.state).state.params
    np.testing.assert_allclose(found["masked"], found["plain"], atol=1e-6)


def test_records_of_a_user_in_several_silos_cost_what_they_do_in_the_worst():
    words = (*SMALL, "algo=decor", *GIVEN, "algo.records_per_user=3")
    with prepare(experiment(*words)) as run:
        [query] = run.queries(1)
    events = [event for event in query.events if event.unit == "user"]
    assert {event.group_size for event in events} == {3}
    for observer in OBSERVERS:
        own = [event for event in events if event.observer == observer]
        worst = min(event.certified.noise_multiplier for event in own)
        assert {event.together.noise_multiplier for event in own} == {worst}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("randomness=system", "randomness=system: seed, for the noise of pairs"),
        ("algo.chords=1.5", r"algo\.chords=1\.5: from 0 to 1"),
        ("algo.colluders=9 preset.n_silos=40", r"algo\.colluders=9: fewer"),
        ("mechanism=discrete_gaussian", "mechanism=discrete_gaussian: gaussian: no proof"),
        ("aggregation=robust", "algo=decor: another: the total"),
        ("aggregation=shuffle mechanism=binomial", "shuffle: needs another algorithm"),
    ],
)
def test_what_cannot_work_is_refused(words, message):
    with pytest.raises(ConfigError, match=message):
        one_experiment(*SMALL, "algo=decor", *words.split())
