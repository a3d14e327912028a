"""Robust means: plain loops beside them, certificates of single messages, and silos that lie."""

import math

import numpy as np
import pytest
from parties_of_generators import Protocols, run
from queries import query_for
from runs import experiment

from fedpriv.aggregation.base import SERVER
from fedpriv.aggregation.plain import Plain
from fedpriv.aggregation.robust import RULES, Robust
from fedpriv.errors import ConfigError
from fedpriv.mechanisms.discrete_gaussian import DiscreteGaussian
from fedpriv.rounds.local_job import LocalJob
from fedpriv.runs.epsilon_forecast import EpsilonForecast
from fedpriv.runtime import prepare

SILOS = tuple(f"silo{place}" for place in range(5))
VECTORS = np.random.default_rng(0).normal(size=(5, 4))
FAR = np.full(4, 1e6)


def trimmed(messages, byzantine):
    """The trimmed mean, number by number."""
    found = []
    for column in messages.T.tolist():
        kept = sorted(column)[byzantine : len(column) - byzantine]
        found.append(sum(kept) / len(kept))
    return found


def clipped(messages, byzantine):
    """Centred clipping, message by message."""
    centre = [sorted(column)[len(column) // 2] for column in messages.T.tolist()]
    for _ in range(3):
        apart = [[x - c for x, c in zip(message, centre)] for message in messages.tolist()]
        distances = [math.hypot(*one) for one in apart]
        bound = sorted(distances)[len(distances) - byzantine - 1]
        shares = [min(1.0, bound / distance) if distance else 1.0 for distance in distances]
        for place in range(len(centre)):
            moves = [share * one[place] for share, one in zip(shares, apart)]
            centre[place] += sum(moves) / len(moves)
    return centre


def total(rule, vectors=VECTORS, mechanism=None):
    """The total that the server announces."""
    protocols = Protocols(rule, range(len(SILOS))).ready(np.ones((5, 1), dtype=np.int64))
    more = {} if mechanism is None else {"mechanism": mechanism}
    query = query_for(rule, len(SILOS), size=vectors.shape[1], **more)
    jobs = {name: LocalJob(iter(()), vector) for name, vector in zip(SILOS, vectors)}
    return run(protocols.query(query, jobs))[SERVER].vector


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Robust(byzantine=0), trimmed(VECTORS, 0)),
        (Robust(byzantine=1), trimmed(VECTORS, 1)),
        (Robust(byzantine=2), trimmed(VECTORS, 2)),
        (Robust("centred_clipping", 0), trimmed(VECTORS, 0)),
        (Robust("centred_clipping", 1), clipped(VECTORS, 1)),
        (Robust("centred_clipping", 2), clipped(VECTORS, 2)),
    ],
    ids=str,
)
def test_the_total_is_the_number_of_silos_times_the_mean_of_a_plain_loop(rule, expected):
    np.testing.assert_allclose(total(rule), 5 * np.array(expected), rtol=1e-12)


@pytest.mark.parametrize("rule", RULES)
def test_silos_that_lie_keep_the_total_near_honest_messages(rule):
    """Two of five send the same far vector. The mean stays within the honest messages' ball."""
    messages = np.concatenate([VECTORS[:3], [FAR, FAR]])
    centre = VECTORS[:3].mean(axis=0)
    reach = np.linalg.norm(VECTORS[:3] - centre, axis=1).max()
    moved = np.linalg.norm(total(Robust(rule, 2), messages) / 5 - centre)
    assert moved < 3 * reach < np.linalg.norm(total(Plain(), messages) / 5 - centre)


def test_messages_of_integers_are_decoded_one_by_one():
    integers = np.array([[8.0], [-8.0], [16.0], [0.0], [2.0**20]])
    noise = DiscreteGaussian(20.0, 1.0)
    found = total(Robust(), integers, noise)
    np.testing.assert_allclose(found, 5 * np.array(trimmed(integers, 1)), rtol=1e-12)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("trimmed_mean", "algo=uldp_avg allocator=uniform"),
        ("centred_clipping", "algo=dp_sgd"),
        ("trimmed_mean", "algo=uldp_naive"),
    ],
)
def test_a_released_model_is_certified_as_single_messages_are(words, rule):
    """A robust mean is made of single messages, so its epsilon is that of who sees them."""

    def certified(aggregation, observer):
        exp = experiment(*words.split(), *aggregation, "rounds=3", "allocator.n_silos=5")
        rows = EpsilonForecast.of(exp).rows_at([3])
        found = [row.certified for row in rows if row.observer == observer]
        assert found
        assert all(map(math.isfinite, found))
        return found

    single = certified(["aggregation=plain"], "server")
    robust = ["aggregation=robust", f"aggregation.rule={rule}"]
    assert certified(robust, "released model") == certified(robust, "server") == single


def test_correlated_noise_is_refused_since_a_robust_mean_cannot_take_it_back():
    with pytest.raises(ConfigError, match="mechanism=correlated"):
        experiment("algo=uldp_avg", "mechanism=correlated", "aggregation=robust", "rounds=8")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("aggregation.byzantine=-1", "aggregation.byzantine=-1"),
        (
            "aggregation.byzantine=2 allocator.n_silos=4",
            "aggregation.byzantine=2: less than half of the 4 silos",
        ),
        ("aggregation.rule=krum", "aggregation.rule=krum"),
    ],
)
def test_settings_without_a_meaning_are_refused(words, message):
    with pytest.raises(ConfigError, match=message):
        experiment("algo=uldp_avg", "aggregation=robust", *words.split())


def lie(query, job):
    """A message that a Byzantine silo sends in place of its own."""
    yield from ()
    return np.full(query.size, -1e3)


def trained(aggregation, lies):
    """The model after five rounds, in which silo3 may lie."""
    words = "algo=uldp_avg mechanism=none rounds=5 allocator=uniform allocator.n_silos=5"
    with prepare(experiment(*words.split(), *aggregation)) as prepared:
        if lies:
            prepared.session.participants["silo3"].protocol.summed = lie
        state = prepared.state
        for round in range(1, 6):
            state = prepared.run_round(prepared.queries(round), state).state
    return state.params


@pytest.mark.parametrize(
    ("aggregation", "moves"),
    [
        (["aggregation=plain"], True),
        (["aggregation=robust"], False),
        (["aggregation=robust", "aggregation.rule=centred_clipping"], False),
    ],
    ids=str,
)
def test_a_silo_that_sends_anything_moves_the_model_a_little(aggregation, moves):
    moved = np.abs(trained(aggregation, True) - trained(aggregation, False)).max()
    assert (moved > 100) == moves
    assert (moved < 0.1) != moves
