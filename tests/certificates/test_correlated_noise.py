"""Noise that is correlated over rounds: certificates against every participation pattern, written
out, and against the messages of a run."""

import itertools
import math
from dataclasses import replace

import dp_accounting as dp
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpriv.accountants.ledger import Ledger
from fedpriv.accountants.pld import Pld
from fedpriv.errors import ConfigError
from fedpriv.rounds.query import events_of
from fedpriv.runtime import prepare
from fedpriv.testing import check_algorithm, experiment
from fedpriv.testing.neighbouring_files import File
from fedpriv.testing.noise_checks import public_plan
from fedpriv.util.stopwatch import Stopwatch

NOISE, DELTA, SILOS = 3.0, 1e-5, 3
WORDS = ("algo=uldp_avg", f"algo.noise_multiplier={NOISE}", "mechanism=correlated")


def correlated(rounds, cycle, bands=None, *words):
    bands = f"mechanism.bands={bands or cycle}"
    return experiment(*WORDS, f"rounds={rounds}", f"algo.cycle={cycle}", bands, *words)


def coefficients(exp):
    """The strategy of an experiment. Tests write its matrix out."""
    return exp.mechanism.mixing.coefficients


def matrix(c, rows):
    """One row for each message that was sent, by its round; a column for each round."""
    last = max(rows) + 1
    return np.array([[c[t - j] if 0 <= t - j < len(c) else 0.0 for j in range(last)] for t in rows])


def largest_gap(c, rows, patterns):
    """The largest distance of neighbours in unit-noise messages: over all patterns, and all signs
    of the unit's vectors in its rounds."""
    c = matrix(c, rows)
    found = 0.0
    for pattern in patterns:
        own = c[:, [j for j in pattern if j < c.shape[1]]]
        for signs in itertools.product([1.0, -1.0], repeat=own.shape[1]):
            found = max(found, float(np.linalg.norm(own @ np.array(signs))))
    return found


def turns(rounds, cycle):
    return [range(turn, rounds, cycle) for turn in range(cycle)]


def certified(exp, rows):
    """The epsilon of each observer after these rounds, by their position from 0."""
    plan = public_plan(exp)
    ledger = Ledger(Pld(DELTA))
    for number in rows:
        ledger.record(events_of(exp.algo.queries(number + 1, plan)))
    return {row.observer: row.certified for row in ledger.rows(len(rows))}


CASES = [(1, 1, 2), (6, 1, 4), (7, 2, 2), (7, 2, 7), (8, 3, 3), (8, 3, 5), (5, 8, 4), (12, 4, 4)]


@pytest.mark.parametrize("strategy", ["optimised", "square_root"])
@pytest.mark.parametrize(("rounds", "cycle", "bands"), CASES)
def test_epsilon_is_that_of_the_worst_pattern(rounds, cycle, bands, strategy):
    words = f"mechanism.strategy={strategy}", f"mechanism.rounds={max(rounds, bands)}"
    exp = correlated(rounds, cycle, bands, *words)
    gap = largest_gap(coefficients(exp), range(rounds), turns(rounds, cycle))
    found = certified(exp, range(rounds))
    for observer, hidden in {"released model": 1, "server": 1, "silo": 1 - 1 / SILOS}.items():
        z = NOISE * math.sqrt(hidden) / gap
        expected = dp.get_epsilon_gaussian(z, DELTA)
        assert found[observer] == pytest.approx(expected, rel=1e-9), observer


@pytest.mark.parametrize("again", [[2], [0, 1, 2, 3], [4, 4]])
def test_a_round_that_is_begun_again_is_a_row_twice(again):
    rows = [*range(5), *again]
    exp = correlated(5, 2, 4)
    gap = largest_gap(coefficients(exp), rows, turns(5, 2))
    once = certified(exp, range(5))["released model"]
    found = certified(exp, rows)["released model"]
    assert found == pytest.approx(dp.get_epsilon_gaussian(NOISE / gap, DELTA), rel=1e-9)
    assert found > once


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_no_vectors_and_no_missing_rows_move_messages_further(data):
    """Whatever vectors within the bound a user sends, and whatever silos forget."""
    rounds, cycle = data.draw(st.integers(2, 7)), data.draw(st.integers(1, 3))
    bands = data.draw(st.integers(2, 5))
    c = coefficients(correlated(max(rounds, bands), cycle, bands))
    gap = largest_gap(c, range(rounds), turns(rounds, cycle))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    for pattern in turns(rounds, cycle):
        vectors = rng.standard_normal((rounds, 3))
        vectors /= np.maximum(1, np.linalg.norm(vectors, axis=1))[:, None]
        vectors[[j for j in range(rounds) if j not in pattern]] = 0
        rows = matrix(c, range(rounds)) * rng.integers(0, 2, (rounds, rounds))
        assert np.linalg.norm(rows @ vectors) <= gap * (1 + 1e-12)


def test_a_sampled_user_is_charged_once_for_each_round_of_its_turn():
    exp = correlated(8, 3, 3, "algo.user_rate=0.2")
    found = certified(exp, range(8))
    norm = math.sqrt(sum(c * c for c in coefficients(exp)))
    accountant = PLDAccountant(value_discretization_interval=1e-4)
    once = dp.PoissonSampledDpEvent(0.2, dp.GaussianDpEvent(NOISE / norm))
    accountant.compose(once, 3)  # the first turn has rounds 1, 4 and 7
    assert found["released model"] == pytest.approx(accountant.get_epsilon(DELTA), rel=1e-3)
    whole = dp.get_epsilon_gaussian(NOISE / norm / math.sqrt(3), DELTA)
    assert found["server"] == pytest.approx(whole, rel=1e-9)  # it sees the sample


def mixture_delta(c, q, noise, epsilon):
    """delta at epsilon of messages that repeat one sampled sum, by integrating over the messages
    themselves, in both directions."""
    grid = np.linspace(-8 * noise, 8 * noise + 1, 401)
    points = np.stack(np.meshgrid(*[grid] * len(c), indexing="ij"), axis=-1)
    absent = np.exp(-(points**2).sum(-1) / (2 * noise**2))
    there = np.exp(-((points - np.array(c)) ** 2).sum(-1) / (2 * noise**2))
    there = (1 - q) * absent + q * there
    volume = ((grid[1] - grid[0]) / (noise * math.sqrt(2 * math.pi))) ** len(c)
    pairs = (there, absent), (absent, there)
    return max(float(np.maximum(p - math.exp(epsilon) * o, 0).sum()) * volume for p, o in pairs)


def test_a_coin_that_decides_over_several_messages():
    """The joint density of two messages, integrated: one release over the sample."""
    c, q, noise = (0.8, 0.6), 0.3, 1.3
    epsilon = 0.5
    accountant = PLDAccountant(value_discretization_interval=1e-4)
    accountant.compose(dp.PoissonSampledDpEvent(q, dp.GaussianDpEvent(noise)))
    assert mixture_delta(c, q, noise, epsilon) == pytest.approx(
        accountant.get_delta(epsilon), rel=2e-3
    )


# -- the run itself --------------------------------------------------------------------------------

SMALL = ("preset.n_users=7", "preset.local_epochs=1", "aggregation=plain")


@pytest.mark.parametrize("system", [False, True])
@pytest.mark.parametrize("cycle", [1, 2, 3])
def test_from_the_file_to_all_messages_together(cycle, system):
    """One user less in the file moves all sums of a run together by at most the certificate's gap,
    and by a good part of it where contributions are clipped."""
    randomness = ("randomness=system",) if system else ()
    exp = correlated(5, cycle, 4, *SMALL, "algo.clip=1e-3", *randomness)
    file = File.of(exp)
    for user, rows in enumerate(file.units("user")):
        moved = math.hypot(*moved_messages(exp, file.without(rows)))
        pattern = range(user % cycle, 5, cycle)
        gap = largest_gap(coefficients(exp), range(5), [pattern]) * 1e-3
        assert 0.3 * gap < moved <= gap * (1 + 1e-9)


def moved_messages(exp, neighbour):
    """The distance of each round's sum from that of a neighbour, with the same releases before."""
    from fedpriv.testing.sensitivity import RepeatableSystem

    def revised(plan):
        return replace(plan, streams=RepeatableSystem())

    with prepare(exp, revise=revised) as run, prepare(neighbour, revise=revised) as other:
        state = run.state
        for number in range(1, 6):
            [query] = run.queries(number)
            total, _ = run.exchange(query, state, watch=Stopwatch(), lines=[])
            found, _ = other.exchange(query, state, watch=Stopwatch(), lines=[])
            yield float(np.linalg.norm(total.vector - found.vector))
            state = exp.algo.next_state(state, query, total, run.plan)


def test_the_conformance_checks_measure_it():
    check_algorithm(correlated(4, 2, 3).algo, "mechanism=correlated", "mechanism.bands=3")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("algo=minibatch_sgd", "algo.calibration=given", "mechanism.bands=2"), "mechanism"),
        (("algo=uldp_group_2", "mechanism.bands=2"), "mechanism=correlated"),
        (("algo=fedavg", "mechanism.bands=2"), "mechanism"),
        (
            ("aggregation=private_weighting", "algo.weighting=records", "algo.cycle=2"),
            "has to know the weights",
        ),
        (("algo.cycle=2", "mechanism.bands=3", "algo.user_rate=0.5"), r"mechanism\.bands=3"),
        (("algo.cycle=99", "mechanism.bands=2"), r"algo\.cycle=99: at most 50, the users"),
        ((), r"mechanism\.bands=1: from 2"),
    ],
)
def test_what_no_certificate_covers_is_refused_in_one_line(words, message):
    algo = () if any(word.startswith("algo=") for word in words) else ("algo=uldp_avg",)
    with pytest.raises(ConfigError, match=message):
        experiment("preset.n_users=50", *algo, "mechanism=correlated", *words)


def test_budgets_of_groups_do_not_take_turns():
    budgets = "algo.budgets={a:{epsilon:1,share:1}}"
    with pytest.raises(ConfigError, match=r"algo\.cycle=2: 1, since groups"):
        experiment("algo=uldp_avg", budgets, "algo.rounds=20", "algo.cycle=2")
    with pytest.raises(ConfigError, match="groups of users with budgets"):
        experiment(
            *("algo=uldp_avg", budgets, "algo.rounds=20"),
            *("mechanism=correlated", "mechanism.bands=2"),
        )
