"""All messages of whole runs with correlated noise, sent by silos that are killed, lost, drawn or
asked again: one user moves them together by no more than all rounds that began are charged."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fedpriv.aggregation.weighted import WeightedSilo
from fedpriv.certificates.request import turn_of
from fedpriv.engines.inprocess import InProcess
from fedpriv.errors import AggregationAbortedError
from fedpriv.runtime import prepare
from fedpriv.testing import experiment
from fedpriv.testing.faults import Faulty, drop
from fedpriv.testing.neighbouring_files import File
from fedpriv.testing.noise_checks import noise_multiplier
from fedpriv.testing.sensitivity import RepeatableSystem
from fedpriv.util.stopwatch import Stopwatch

ROUNDS, SILOS, NOISE, CLIP = 6, 3, 5.0, 1e-3
SETTINGS = (
    *("algo=uldp_sgd", "mechanism=correlated", "preset.n_users=6", f"preset.n_silos={SILOS}"),
    *(f"rounds={ROUNDS}", f"algo.clip={CLIP}", f"algo.noise_multiplier={NOISE}"),
    "randomness=system",
)
TURNS = ("aggregation=plain", "algo.cycle=2", "mechanism.bands=4")
EVERY = ("aggregation=plain", "mechanism.bands=3")
SAMPLED = ("aggregation=plain", "algo.cycle=3", "mechanism.bands=3", "algo.user_rate=0.5")
DRAWN = ("aggregation=secagg", "aggregation.cohort=2", "aggregation.threshold=2", *TURNS[1:])
LOST = (drop(exchange=2, sender="silo1"),)
CASES = {
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
@pytest.mark.parametrize("case", CASES)
def test_one_user_moves_all_messages_by_no_more_than_is_charged(case, sums):
    words, faults, killed = CASES[case]
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
            length = np.linalg.norm(np.concatenate(vectors)) / (NOISE * CLIP)
            most = charged(base, whole.numbers, user % exp.algo.cycle, observer)
            if most:  # 0: no certificate
                shares.append(length / most)
    assert 0.5 < max(shares) <= 1 + 1e-9
