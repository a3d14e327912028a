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
from fedpriv.aggregation.weighted import WeightedSilo
from fedpriv.certificates.request import turn_of
from fedpriv.engines.inprocess import InProcess
from fedpriv.errors import AggregationAbortedError, ConfigError
from fedpriv.rounds.query import events_of
from fedpriv.runtime import allocate, prepare
from fedpriv.testing import experiment
from fedpriv.testing.event_parameters import noise_multiplier
from fedpriv.testing.faults import Faulty, drop
from fedpriv.testing.neighbouring_files import File
from fedpriv.testing.sensitivity import RepeatableSystem
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
    plan = exp.planner.plan(allocate(exp)[2])
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


@pytest.mark.parametrize(("cycle", "system"), [(1, False), (2, True), (3, False)])
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


# -- all messages of whole runs with silos that are killed, lost, drawn or asked again -------------


ROUNDS, NOISE_OF_RUNS, CLIP = 6, 5.0, 1e-3
SETTINGS = (
    *("algo=uldp_sgd", "mechanism=correlated", "preset.n_users=6", f"preset.n_silos={SILOS}"),
    *(f"rounds={ROUNDS}", f"algo.clip={CLIP}", f"algo.noise_multiplier={NOISE_OF_RUNS}"),
    "randomness=system",
)
TURNS = ("aggregation=plain", "algo.cycle=2", "mechanism.bands=4")
EVERY = ("aggregation=plain", "mechanism.bands=3")
SAMPLED = ("aggregation=plain", "algo.cycle=3", "mechanism.bands=3", "algo.user_rate=0.5")
DRAWN = ("aggregation=secagg", "aggregation.cohort=2", "aggregation.threshold=2", *TURNS[1:])
LOST = (drop(exchange=2, sender="silo1"),)
RUNS = {
    "turns": (TURNS, (), None),
    "every round": (EVERY, (), None),
    "killed in round 5, continued after round 2": (EVERY, (), (2, 5)),
    "turns, killed in round 4": (TURNS, (), (3, 4)),
    "sampled": (SAMPLED, (), None),
    "sampled, killed in round 5": (SAMPLED, (), (2, 5)),
    "weights by records": ((*TURNS, "algo.weighting=records"), (), None),
    "a lost message": (TURNS, LOST, None),
    "two of three silos a round": (DRAWN, (), None),
}


class Lives:
    """The messages of a run, without noise, by silo. It follows the models of another run, so that
    two worlds differ in their messages alone."""

    def __init__(self, exp, killed, sums, follow=()):
        self.exp, self.sums, self.follow = exp, sums, list(follow)
        self.rows, self.numbers, self.models = [], [], []
        first, last = killed or (ROUNDS, ROUNDS)
        saved = self.live(None, 1, last, keep=first)
        if killed:
            self.live(saved, first + 1, ROUNDS)

    def live(self, checkpoint, first, last, keep=0):
        found = None
        revise = {"revise": lambda plan: replace(plan, streams=RepeatableSystem())}
        with prepare(self.exp, checkpoint, **revise) as run:
            state = run.state
            for number in range(first, last + 1):
                state = self.round(run, state, number)
                found = run.arrays(state) if number == keep else found
        return found

    def round(self, run, state, number):
        self.sums.clear()
        [query] = run.queries(number)
        try:
            total, _ = run.exchange(query, state, watch=Stopwatch(), lines=[])
            state = self.exp.algo.next_state(state, query, total, run.plan)
        except AggregationAbortedError:
            pass
        self.rows.append(dict(self.sums))
        self.numbers.append(number)
        self.models.append(state)
        return self.follow[len(self.rows) - 1] if self.follow else state


@pytest.fixture
def sums(monkeypatch):
    """What each silo's message of the last round contains before the noise."""
    found = {}
    own = WeightedSilo.weighted_sum

    def recorded(self, job):
        found[self.name] = own(self, job)
        return found[self.name].copy()

    monkeypatch.setattr(WeightedSilo, "weighted_sum", recorded)
    return found


def charged(exp, numbers, turn, observer):
    """The distance in standard deviations that all rounds together charge to a user of a turn."""
    with prepare(exp) as run:
        queries = [query for number in numbers for query in exp.algo.queries(number, run.plan)]
    own = [
        1 / noise_multiplier(event) ** 2
        for query in queries
        for event in query.events
        if event.observer == observer and turn_of(event.scope) in (None, turn)
    ]
    return math.sqrt(math.fsum(own))


@pytest.mark.slow
@pytest.mark.parametrize("case", RUNS)
def test_one_user_moves_all_messages_by_no_more_than_is_charged(case, sums):
    words, faults, killed = RUNS[case]
    exp = experiment(*SETTINGS, *words)
    file = File.of(exp)

    def world(rows):
        other = file.without(rows)
        return replace(other, engine=Faulty(InProcess(), faults)) if faults else other

    base = world(np.array([], dtype=np.int64))
    whole = Lives(base, killed, sums)
    shares = []
    for user, rows in enumerate(file.units("user")):
        other = Lives(world(rows), killed, sums, follow=whole.models)
        assert whole.numbers == other.numbers
        moved = [
            {name: one[name] - two[name] for name in one}
            for one, two in zip(whole.rows, other.rows, strict=True)
        ]
        seen = {
            "released model": [sum(row.values()) for row in moved],
            "server": [vector * math.sqrt(SILOS) for row in moved for vector in row.values()],
        }
        if "aggregation=plain" not in words:
            del seen["server"]
        for observer, vectors in seen.items():
            length = np.linalg.norm(np.concatenate(vectors)) / (NOISE_OF_RUNS * CLIP)
            most = charged(base, whole.numbers, user % exp.algo.cycle, observer)
            if most:  # 0: no certificate
                shares.append(length / most)
    assert 0.5 < max(shares) <= 1 + 1e-9
