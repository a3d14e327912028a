"""A coalition of the server and some silos learns the sum of the honest silos' inputs and nothing
else.

Letters and secrets are those of real rounds. Fewer than `threshold` shares of a secret tell nothing
about it (Shamir), and what is neither a share nor a masked vector (public keys, commitments,
signatures, names) does not depend on the inputs.
"""

from dataclasses import replace
from itertools import combinations
from random import Random

import numpy as np
import pytest
from cheating_server import Attack, unguarded
from coalition_view import eliminated
from hypothesis import given, settings
from secure_sums import OnRing, names, ready, schedules
from server_evaluator import Setting, Witnesses
from strategies_of_servers import random_view
from watched_rounds import KEY, SEED, SecAggRound

from fedpriv.aggregation.secagg.aggregation import SecAgg
from fedpriv.aggregation.secagg.graph import Sparse
from fedpriv.aggregation.secagg.silo import Member
from fedpriv.crypto.prg import add_masks


def check(round):
    for colluding in round.coalitions(round.threshold - 1):
        learned, honest = round.learned(colluding), round.chosen - colluding
        assert not round.leaks(colluding), colluding
        if len(honest) > 1:
            assert all(
                sum(factor != 0 for factor in functional.values()) > 1 for functional in learned
            )
        # An odd multiple is the sum itself; others would tell some of its bits.
        assert any(factor % 2 for f in learned for factor in f.values()) == round.revealed_to(
            colluding
        )
        assert bool(learned) == round.revealed_to(colluding)
        if round.summed is not None:
            assert round.summed == round.chosen
            assert round.revealed_to(colluding) == bool(honest)
    if round.summed is None:
        assert not round.learned(set())


ROUNDS = {
    "nobody drops out": (SecAgg(), [5, 5, 5, 5]),
    "a silo drops out before it shares": (SecAgg(threshold=3, cohort=4), [5, 1, 5, 5, 5]),
    "a silo drops out after sharing": (SecAgg(threshold=3, cohort=4), [5, 5, 2, 5, 5]),
    "a silo drops out after delivering": (SecAgg(threshold=3, cohort=4), [5, 5, 3, 5]),
    "a silo drops out after signing": (SecAgg(threshold=3, cohort=4), [4, 5, 5, 5]),
    "not everybody who delivered is chosen": (SecAgg(threshold=3, cohort=3), [5, 5, 5, 5, 5]),
    "not everybody is a candidate": (
        SecAgg(threshold=3, cohort=4, candidates=5),
        [5, 5, 5, 5, 5, 5, 5],
    ),
    "one in each phase": (SecAgg(threshold=4, cohort=4), [0, 1, 5, 2, 5, 5, 5]),
    "two share and go": (SecAgg(threshold=4, cohort=4), [2, 2, 5, 5, 5, 5, 3]),
    "as many as possible": (SecAgg(threshold=4, cohort=5), [5, 4, 5, 3, 5, 5, 2]),
    "too few share": (SecAgg(threshold=3, cohort=3), [5, 5, 1, 1]),
    "too few deliver": (SecAgg(threshold=3, cohort=4), [5, 5, 5, 2, 2]),
    "too few sign": (SecAgg(threshold=3, cohort=3), [5, 5, 3, 3]),
    "too few reveal": (SecAgg(threshold=3, cohort=3), [5, 5, 4, 4, 4]),
}


@pytest.mark.parametrize("situation", ROUNDS)
def test_a_coalition_below_the_threshold_learns_the_honest_sum_alone(situation):
    round = SecAggRound(*ROUNDS[situation])
    assert (round.summed is None) == situation.startswith("too few")
    check(round)


@settings(max_examples=30)
@given(schedules(least=4))
def test_so_it_is_for_any_dropouts(schedule):
    check(SecAggRound(*schedule))


def test_as_many_silos_as_the_threshold_learn_every_input():
    round = SecAggRound(SecAgg(threshold=3), [5] * 5)
    for colluding in map(set, combinations(names(5), 3)):
        assert len(round.leaks(colluding)) == len(round.learned(colluding)) == 2


class RevealsBoth(Member):
    """Answers with its shares of both of silo1's secrets."""

    def reveal(self, signatures):
        shares = self.own if self.name == "silo1" else self.opened("silo1", self.sealed["silo1"])
        return super().reveal(signatures) | dict(zip(("silo1's key", "silo1"), shares))


def test_both_secrets_of_a_silo_are_a_leak():
    round = SecAggRound(SecAgg(), [5, 5, 5, 5], member=RevealsBoth)
    assert {("silo1", KEY), ("silo1", SEED)} <= round.known(set())
    assert {"silo0": 0, "silo1": 1, "silo2": 0, "silo3": 0} in round.leaks(set())


class WithoutItsOwnMask(Member):
    def masked_input(self, letters):
        masked, receipt = super().masked_input(letters)
        return add_masks(masked, [], [self.seed], purpose=self.purpose), receipt


def test_own_masks_left_out_are_a_leak():
    """Four silos deliver, three of them are chosen; whose mask keys are revealed is the fourth and
    the one gone."""
    aggregation = SecAgg(threshold=3, cohort=3)
    round = SecAggRound(aggregation, [5, 5, 5, 5, 2], member=WithoutItsOwnMask)
    (spared,) = set(names(4)) - round.chosen
    assert {name: int(name == spared) for name in names(4)} in round.leaks(set())


def test_elimination_finds_all_that_a_search_finds():
    rng = np.random.default_rng(0)
    for _ in range(20):
        rows = rng.integers(0, 8, (3, 4)) * rng.choice([1, 1, 2, 4], (3, 4))
        every = np.array(np.meshgrid(*[range(8)] * 3)).reshape(3, -1).T
        combined = every @ rows % 8
        found = {tuple(row) for row in combined[(combined[:, :2] == 0).all(axis=1), 2:].tolist()}
        free = np.array(eliminated(rows.tolist(), 2, 8), dtype=int).reshape(-1, 2)
        factors = np.array(np.meshgrid(*[range(8)] * len(free))).reshape(len(free), -1).T
        assert {tuple(row) for row in (factors @ free % 8).tolist()} == found


# -- servers that draw what they say to each silo: lists, keys, graphs, replays, orders ------------


def random_setting(chance, exact):
    """Safe in three of four draws."""
    for _ in range(1000):
        silos = chance.choice([3, 3, 4, 4, 5])
        candidates = chance.choice([silos, silos, silos, chance.randint(2, silos)])
        cohort = chance.randint(1, candidates)
        setting = Setting(
            silos=silos,
            candidates=candidates,
            cohort=cohort,
            threshold=chance.randint(1, cohort),
            colluding=chance.choice([0, 0, 1, 1, 2]),
            most=candidates if exact else None,
        )
        possible = setting.colluding < setting.threshold
        if possible and (setting.safe or chance.random() < 0.25):
            return setting
    raise AssertionError


def attack(seed, name):
    """One attack, after another one of which it replays; whether the setting is safe."""
    chance = Random(seed)
    setting = random_setting(chance, name == "secagg_exact_noise")
    witnesses = Witnesses.RECEIPTS
    aggregation = unguarded(setting)
    if name == "ring":
        setting = Setting(silos=7, candidates=7, cohort=chance.randint(5, 7), threshold=5)
        graph = Sparse(4, chance.randint(3, 5), chance.randint(0, 1), 9)
        aggregation = OnRing(threshold=5, cohort=setting.cohort, sparse=graph)
        witnesses = Witnesses.CHOSEN
    protocols = ready(aggregation, setting.silos)
    first = Attack(random_view(chance, setting, witnesses), aggregation, protocols)
    again = protocols if chance.random() < 0.5 else ready(aggregation, setting.silos)
    clean = chance.random() < 0.3
    more = {} if clean else {"earlier": first, "chance": chance}
    second = Attack(random_view(chance, setting, witnesses), aggregation, again, 2, **more)
    for found, exact in ((first, True), (second, clean)):
        if name == "ring":
            on_ring(found)
        assert not found.beyond()
        assert not exact or name == "ring" or found.agrees()
        assert name == "ring" or not (setting.safe and found.view.leaks)
        if name == "secagg_exact_noise":
            compare_noise(found, exact)
    return first, second


def compare_noise(attack, exact):
    """The coalition removes no more noise than the evaluator says; without replays just as much."""
    parts = attack.query.removable.parts
    for name, hidden in attack.surplus().items():
        said = attack.view.surplus.get(name, parts)
        assert hidden == said if exact else hidden >= said


def on_ring(attack):
    """Tell the evaluator of the graphs that the silos have computed."""
    members = attack.members.items()
    graphs = {name: member.graph for name, member in members if hasattr(member, "graph")}

    def around(_, name):
        return frozenset(graphs[name].around(name)) if name in graphs else frozenset()

    attack.view = replace(attack.view, around=around, shares=attack.terms.topology.shares)


@pytest.mark.parametrize("name", ["secagg", "secagg_exact_noise", "ring"])
@pytest.mark.parametrize(
    "seeds", [range(25), pytest.param(range(25, 1275), marks=pytest.mark.slow)], ids=str
)
def test_random_servers_learn_no_more_than_the_evaluator_says(name, seeds):
    learned = sum(bool(found.learned()) for seed in seeds for found in attack(seed, name))
    assert learned > 2
