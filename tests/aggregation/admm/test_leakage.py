"""What the paper promises about privacy, held against transcripts of real aggregations."""

import math
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from peer_averages import Peers, admm, vectors
from recovery import recovered

from fedpriv.aggregation.admm.knowledge import PRIME, Knowledge, first_leak, residue
from fedpriv.aggregation.admm.penalty import PRESETS, Penalty
from fedpriv.aggregation.admm.transcript import Eavesdroppers
from fedpriv.engines.inprocess import InProcess
from fedpriv.errors import AggregationAbortedError
from fedpriv.testing.faults import Faulty, drop
from fedpriv.topology.design import designed

ONE = Penalty(1.0)


def numbers(letters, colluders, n, model_of=None):
    """How many other peers' vectors are determined after each iteration."""
    shares = {f"silo{k}": 1 / n for k in range(n)}
    names = [f"silo{k}" for k in colluders]
    keep = {} if model_of is None else {"model_of": model_of}
    return [
        len(step.determined) for step in Eavesdroppers(names, ONE, shares, **keep).steps(letters)
    ]


@pytest.fixture(scope="module")
def nine():
    peers = Peers(admm(iterations=7), 9)
    peers.average(vectors(9))
    return peers


@pytest.fixture(scope="module")
def fifteen():
    """Five classes, as the paper's construction mostly finds."""
    seed = next(
        seed
        for seed in range(20)
        if len(admm(groups="randomised", group_seed=seed).partitions(15)) == 5
    )
    peers = Peers(admm(iterations=7, groups="randomised", group_seed=seed), 15)
    peers.average(vectors(15))
    return peers


def test_the_table_for_nine_peers(nine):
    """ALGORITHMS.md 7.5, JE-1. Theorem III.2 says that nobody is determined before iteration 8."""
    first = designed(9, 3)[0]
    assert numbers(nine.letters, [0], 9) == [0, 0, 0, 0, 2, 8, 8]
    assert numbers(nine.letters, first[0][:2], 9) == [0, 0, 2, 7, 7, 7, 7]
    triples = [
        t for t in combinations(range(9), 3) if all(len(set(t) & set(g)) == 1 for g in first)
    ]
    assert [0, 6, 6, 6, 6, 6, 6] in [numbers(nine.letters, t, 9) for t in triples]


def test_the_table_for_fifteen_peers(fifteen):
    assert numbers(fifteen.letters, [0], 15) == [0, 0, 0, 0, 0, 14, 14]
    partitions = fifteen.aggregation.partitions(15)
    assert first_leak(partitions, ONE, 7) == 6  # Theorem III.2: safe up to 9
    triples = list(combinations(range(15), 3))[::23]
    found = [numbers(fifteen.letters, t, 15) for t in triples]
    assert all(row[0] == 0 and row[3:] == [12] * 4 for row in found)
    assert {row[1] for row in found} >= {1}


def test_with_all_seven_classes_of_a_kirkman_system_the_sums_give_away_what_the_messages_do_not():
    """No pair meets twice in 7 iterations, and all are determined after the sixth: t_g is no bound
    either."""
    assert first_leak(designed(15, 3), ONE, 7) == 6
    assert first_leak(designed(9, 3), ONE, 7) == 5


def test_lemma_iii_1_all_to_all_is_determined_after_two_iterations():
    peers = Peers(admm(iterations=3, topology="all"), 9)
    peers.average(vectors(9))
    assert numbers(peers.letters, [0], 9) == [0, 8, 8]


def test_the_determined_vectors_are_recovered(nine):
    w = vectors(9)
    spy = Eavesdroppers(["silo0"], ONE, dict.fromkeys(nine.names, 1 / 9))
    until = [
        letter for letter in nine.letters if int(letter.message.phase.partition(" ")[2] or 9) <= 5
    ]
    found = recovered(spy, until)
    assert len(found) == 2
    for (_, name), vector in found.items():
        np.testing.assert_allclose(vector, w[nine.names.index(name)], rtol=0, atol=1e-13)
    assert len(recovered(spy, nine.letters)) == 8


@pytest.mark.parametrize(("before", "after", "known"), [(1, 1, False), (2, 1, False), (2, 2, True)])
def test_repeating_an_aborted_aggregation_without_a_peer_gives_it_away(before, after, known):
    """ALGORITHMS.md JE-4: silo8 drops out after `before` iterations, the other eight repeat the
    same vectors. Peers never do: here new ones get the old vectors."""
    w = vectors(9)
    peers = Peers(admm(iterations=4), 9)
    lost = Faulty(InProcess(), (drop(step=4 * before, sender="silo8"),))
    with pytest.raises(AggregationAbortedError, match="silo8"):
        peers.average(w, (1, 0), lost)
    whole = [letter for letter in peers.letters if letter.step < 4 * before]
    again = Peers(admm(iterations=after, topology="groups"), 8)
    again.average(w[:8], (2, 0))
    determined = []
    for curious in range(8):
        shares = dict.fromkeys(peers.names, 1 / 9)
        spy = Eavesdroppers([f"silo{curious}"], ONE, shares, model_of=lambda serial: "the same")
        determined.append(
            ("the same", "silo8") in spy.steps([*whole, *again.letters])[-1].determined
        )
    assert determined == [known] * 8


def test_masks_inside_fixed_groups_leave_sums_that_determine_nobody():
    peers = Peers(admm(masking=True, iterations=9), 9)
    peers.average(vectors(9))
    first = designed(9, 3)[0]
    for colluders in ([0], [first[0][0], first[1][0]], [group[0] for group in first]):
        assert numbers(peers.letters, colluders, 9)[-1] == 0
    assert (
        numbers(peers.letters, first[0][:2], 9)[-1] == 1
    )  # all of a group but one: its sum less their own


def test_masks_inside_changing_groups_would_not_do():
    assert first_leak(designed(9, 3), ONE, 7, masked=True) == 7
    assert first_leak(designed(9, 3)[:1], ONE, 40, masked=True) is None


def test_a_first_message_leaves_an_interval_of_width_one_over_rho(nine):
    """JE-2: y^1 = 2 / (2 + rho) (w + lambda^0 / rho), lambda^0 in [0, 1)."""
    w = vectors(9)
    for letter in nine.letters:
        if letter.message.phase == "y 1":
            own = w[nine.names.index(letter.sender)]
            above = 1.5 * letter.message.content
            assert np.all((above - 1 < own) & (own <= above))
    assert Penalty(3.0).widths(1) == [pytest.approx(1 / 3)]
    assert Penalty(70.0).widths(1) == [pytest.approx(0.0143, abs=1e-4)]


def test_later_messages_leave_less(nine):
    w = vectors(9)
    widths = ONE.widths(4)
    assert widths == sorted(widths, reverse=True)
    assert widths[3] < widths[0] / 8
    z, offset = np.zeros(4), np.zeros(4)
    for iteration in range(1, 5):
        said = {
            x.sender: x.message.content for x in nine.letters if x.message.phase == f"y {iteration}"
        }
        a, b = (float(number) for number in ONE.coefficients(iteration)[-1])
        offset = (z + 2 * (offset - z)) / 3
        for name, y in said.items():
            upper = (y - offset) / a
            own = w[nine.names.index(name)]
            assert np.all((upper - b / a - 1e-12 <= own) & (own <= upper + 1e-12))
        z = sum(said.values()) / 9


def test_fresh_dual_variables_average_out_over_rounds():
    peers, w = Peers(admm(iterations=1), 9), vectors(9, size=50)
    estimates = []
    for round in range(1, 41):
        peers.letters.clear()
        peers.average(w, (round, 0))
        y = next(
            letter
            for letter in peers.letters
            if letter.sender == "silo1" and letter.message.phase == "y 1"
        )
        estimates.append(1.5 * y.message.content - 0.5)
    left = np.std(np.mean(estimates, axis=0) - w[1])
    # The error of one message is uniform on an interval of this width.
    assert left == pytest.approx(ONE.widths(1)[0] / math.sqrt(12 * 40), rel=0.3)


@given(st.lists(st.lists(st.integers(-3, 3), min_size=5, max_size=5), min_size=1, max_size=7))
@settings(max_examples=60)
def test_knowledge_agrees_with_rational_elimination(rows):
    known = Knowledge()
    for row in rows:
        known.add({("vector", 0, str(k)): value for k, value in enumerate(row)})
    for k in range(5):
        unit = [Fraction(int(k == other)) for other in range(5)]
        fractions = [[Fraction(value) for value in row] for row in rows]
        assert known.determines(("vector", 0, str(k))) == (
            rank([*fractions, unit]) == rank(fractions)
        )


def rank(rows):
    left, found = list(rows), 0
    for column in range(5):
        pivots = [row for row in left if row[column]]
        if pivots:
            pivot, found = pivots[0], found + 1
            left.remove(pivot)
            left = [
                [x - row[column] / pivot[column] * y for x, y in zip(row, pivot)] for row in left
            ]
    return found


def test_residues():
    assert residue(Fraction(2, 3)) * 3 % PRIME == 2


@pytest.mark.parametrize("name", PRESETS)
def test_what_the_presets_leave(name):
    iterations, penalty = PRESETS[name]
    assert penalty.widths(iterations)[0] == pytest.approx(1 / penalty.rho)
    assert min(penalty.widths(iterations)) > 0


def test_peers_are_certified_by_their_own_noise_alone():
    peer = admm().threat_model().observers[1]
    assert (peer.name, peer.sees_messages, peer.own_shares) == ("silo", True, 1)
