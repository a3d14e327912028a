"""A coalition of the server and some silos learns the sum of the honest silos' inputs and nothing
else.

Letters and secrets are those of real rounds. Fewer than `threshold` shares of a secret tell nothing
about it (Shamir), and what is neither a share nor a masked vector (public keys, commitments,
signatures, names) does not depend on the inputs.
"""

from itertools import combinations

import numpy as np
import pytest
from coalition_view import eliminated
from hypothesis import given, settings
from secure_sums import names, schedules
from watched_rounds import KEY, SEED, SecAggRound

from fedpriv.aggregation.secagg.aggregation import SecAgg
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


@settings(max_examples=60)
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


def test_elimination_in_a_ring():
    # p and q cancel from (6p + y) - 3 (2p + x) and from 2^7 (2p + x), but not from q + z.
    rows = [[2, 0, 1, 0, 0], [6, 0, 0, 1, 0], [0, 1, 0, 0, 1]]
    free = eliminated(rows, 2, 2**8)
    assert [row for row in free if any(row)] == [[253, 1, 0], [128, 0, 0]]
    assert eliminated([], 2, 2**8) == []


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
