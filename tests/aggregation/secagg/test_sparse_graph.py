"""Secure sums on a sparse graph: exact or none, and nothing else for a server that cheats."""

import re

import numpy as np
import pytest
from coalition_view import is_multiple_of_sum
from hypothesis import given, settings
from hypothesis import strategies as st
from parties_of_generators import SESSION
from secure_sums import OnRing, leaving, names, parties, ready, refused, total_of
from watched_rounds import SecAggRound

from fedpriv.aggregation.base import SERVER
from fedpriv.aggregation.secagg.aggregation import SecAgg
from fedpriv.aggregation.secagg.graph import Complete, RingGraph, Sparse
from fedpriv.aggregation.secagg.messages import session_of
from fedpriv.parties.messages import digest_of
from fedpriv.rounds.query import Broadcast

SAFE = SecAgg(neighbours=6, cohort=8, dropouts=1 / 9, corrupt=1 / 9)
"""For nine silos: any one may collude with the server, any one may drop out."""
PAIR = SecAgg(neighbours=6, dropouts=1 / 9, corrupt=2 / 9)
"""Any two may collude, and all must deliver."""


def test_a_ring_joins_each_to_the_nearest_on_either_side():
    graph = Sparse(4, 3, 0, 1).graph(b"session", names(9))
    order = [graph.names[index] for index in graph.order]
    for place, name in enumerate(order):
        near = {order[(place + step) % 9] for step in range(-2, 3)}
        assert graph.around(name) == tuple(sorted(near))
        assert all(name in graph.around(peer) for peer in near)
    assert graph == Sparse(4, 3, 0, 1).graph(b"session", reversed(names(9)))
    assert graph.order.tolist() != Sparse(4, 3, 0, 1).graph(b"other", names(9)).order.tolist()
    assert Complete(3).graph(b"", names(3)).around("silo1") == tuple(names(3))


def test_rings_are_in_uniformly_random_order():
    graphs = (
        RingGraph(("a", "b", "c", "d"), bytes([i, j]), 1, 0) for i in range(40) for j in range(60)
    )
    orders = [graph.order.tolist() for graph in graphs]
    counts = np.unique(orders, axis=0, return_counts=True)[1]
    assert len(counts) == 24
    assert ((counts - 100) ** 2 / 100).sum() < 58  # chi-square of 23 degrees of freedom, 1 - 7e-5


@st.composite
def schedules(draw):
    """Terms, who sends how many messages, and the seed of the server's draws."""
    silos = draw(st.integers(5, 9))
    cohort = draw(st.integers(silos // 2 + 1, silos))
    threshold = draw(st.integers(silos // 2 + 1, cohort))
    half = draw(st.integers(1, min(2, (cohort - 1) // 2)))
    graph = Sparse(
        2 * half,
        draw(st.integers(1, 2 * half + 1)),
        draw(st.integers(0, half)),
        draw(st.integers(1, 9)),
    )
    sends = draw(st.lists(st.sampled_from([5] * 8 + [4, 3, 2, 1]), min_size=silos, max_size=silos))
    return (
        OnRing(threshold=threshold, cohort=cohort, sparse=graph),
        sends,
        draw(st.integers(0, 2**20)),
    )


def goes_wrong(round, sends):
    """Why a round must end without a sum, if it must, from who sends how much and the graph
    alone.
    """
    graph, terms = round.graph, round.aggregation
    left = [
        {name for name, count in zip(names(len(sends)), sends) if count > phase}
        for phase in range(5)
    ]
    if min(map(len, left[:3])) < terms.cohort:
        return "of at least"
    around = {name: set(graph.around(name)) for name in left[0]}
    if any(len(around[name] & left[1]) < terms.sparse.shares for name in left[2]):
        return "refuses: shares of"
    if not round.chosen:
        return "too close together|ConsistencyCheck: 0 of at least"
    if min(len(round.chosen & left[3]), len(round.chosen & left[4])) < terms.threshold:
        return "of at least"
    if any(len(around[name] & round.chosen & left[4]) < terms.sparse.shares for name in left[1]):
        return "shares of .*'s secrets"
    return None


@settings(max_examples=60)
@given(schedules())
def test_any_dropouts_give_the_exact_sum_over_the_set_or_no_sum(schedule):
    aggregation, sends, seed = schedule
    # A silo that leaves after sharing may still find that too few have shared.
    round = SecAggRound(aggregation, sends, seed)
    if round.graph is None:
        assert round.summed is None
        return
    wrong = goes_wrong(round, sends)
    if wrong is None:
        assert "refuses: shares of" in round.aborted or round.summed == round.chosen
    else:
        assert round.summed is None
        assert re.search(f"{wrong}|refuses: shares of", round.aborted)
    if round.summed is not None:
        assert len(round.summed) == aggregation.cohort
        exact = round.query.encoding.decode(sum(round.inputs[name] for name in round.summed))
        np.testing.assert_array_equal(round.total, exact)


def check(round, largest):
    for colluding in round.coalitions(largest):
        honest = round.chosen - colluding
        assert not round.leaks(colluding), colluding
        assert bool(round.learned(colluding)) == round.revealed_to(colluding)
        if round.summed is not None:
            assert round.revealed_to(colluding) == bool(honest)


@pytest.mark.parametrize("sends", range(1, 6))
def test_one_dropout_in_each_phase_tells_any_one_colluding_silo_the_honest_sum_alone(sends):
    round = SecAggRound(SAFE, [5, 5, 5, sends, 5, 5, 5, 5, 5])
    assert round.summed == round.chosen
    assert len(round.summed) == 8
    check(round, 1)


@settings(max_examples=10)
@given(
    st.lists(st.sampled_from([5] * 12 + [4, 3, 2, 1]), min_size=9, max_size=9), st.integers(0, 99)
)
def test_so_it_is_for_any_dropouts(sends, seed):
    check(SecAggRound(SAFE, sends, seed), 1)


def test_two_colluding_silos_learn_the_honest_sum_alone():
    check(SecAggRound(PAIR, [5, 5, 5, 5, 5, 4, 5, 5, 5]), 2)


def test_all_around_a_silo_learn_its_input():
    round = SecAggRound(PAIR, [5] * 9)
    colluding = set(round.graph.around("silo4")) - {"silo4"}
    assert any(
        {name for name, factor in f.items() if factor} == {"silo4"} for f in round.leaks(colluding)
    )


def test_a_part_of_the_ring_between_two_stretches_left_out_would_be_a_leak():
    """What `holds_together` is for: with all slack, the sums of both parts of the ring are
    found.
    """
    for seed in range(200):
        round = SecAggRound(OnRing(threshold=5, cohort=6, sparse=Sparse(2, 1, 1, 9)), [5] * 8, seed)
        order = [round.graph.names[index] for index in round.graph.order]
        gaps = [place for place, name in enumerate(order) if name not in round.chosen]
        if gaps[1] - gaps[0] not in (1, 7):
            break
    part = set(order[gaps[0] + 1 : gaps[1]])
    assert any(is_multiple_of_sum(functional, part) for functional in round.leaks(set()))
    tight = RingGraph(round.graph.names, round.graph.session, 1, 0)
    assert not tight.holds_together(round.chosen)


@pytest.fixture
def protocols():
    return ready(SAFE, 9)


VECTORS = np.ones((9, 4))


def says(protocols, who, phase, change):
    cast = parties(protocols, VECTORS)
    protocols.says(cast, who, phase, change)
    return cast


def ring_of(roster):
    told = digest_of(Broadcast({}))
    graph = Sparse(6, 5, 1, 32).graph(session_of((SESSION, 1, 0, told), roster), roster)
    return [graph.names[index] for index in graph.order]


def test_each_silo_shares_with_its_neighbours_alone_and_answers_for_them_alone():
    round = SecAggRound(SAFE, [5] * 9)
    for name, (_, (_, letters), _, *answer) in round.letters.items():
        around = set(round.graph.around(name))
        assert len(around) == 7
        assert set(letters) == around - {name}
        assert not answer or set(answer[1]) == around
        assert bool(answer) == (name in round.chosen)


def test_shares_for_others_than_the_neighbours_are_refused(protocols):
    def others(sent):
        commitment, letters = sent[SERVER]
        stranger = min(set(names(9)) - {"silo3"} - set(letters))
        (_, letter), *kept = letters.items()
        return {SERVER: (commitment, dict(kept) | {stranger: letter})}

    refused(
        says(protocols, "silo3", "ShareKeys", others),
        "a message of silo3 is refused: shares for some candidates only",
    )


def test_a_set_that_leaves_out_two_neighbours_is_refused():
    protocols = ready(OnRing(threshold=5, cohort=7, sparse=Sparse(6, 4, 1, 32)), 9)
    protocols[SERVER].aggregation = OnRing(
        threshold=5, cohort=7, sparse=Sparse(6, 4, 3, 32)
    )  # lets its own draw pass
    rosters = []

    def note(sent):
        rosters.extend(sent.values())
        return sent

    def cut(sent):
        chosen = sorted(set(names(9)) - set(ring_of(rosters[0])[:2]))
        return {name: (sent[name][0], chosen, {}) for name in chosen if name in sent}

    cast = parties(protocols, VECTORS)
    protocols.says(cast, SERVER, "AdvertiseKeys", note)
    protocols.says(cast, SERVER, "MaskedInputCollection", cut)
    refused(cast, "ConsistencyCheck: .* refuses: the set leaves out too many neighbours in a row")


def test_a_server_refuses_a_draw_that_leaves_out_two_neighbours():
    round = SecAggRound(
        OnRing(threshold=5, cohort=5, sparse=Sparse(6, 4, 1, 32)), [5] * 9
    )  # four out, one in a stretch
    assert round.summed is None
    assert round.aborted == "ConsistencyCheck: the silos left out are too close together"


def test_a_silo_left_out_does_not_answer_for_the_set(protocols):
    def swap(sent):
        (name, (delivered, chosen, _)), *others = sent.items()
        (spared,) = set(names(9)) - set(chosen)
        return dict(others) | {name: (delivered, sorted({*chosen, spared} - {name}), {})}

    refused(
        says(protocols, SERVER, "MaskedInputCollection", swap), "it is asked about a set without it"
    )


def test_a_forged_signature_is_found_by_who_checks_it():
    forged = says(ready(PAIR, 9), "silo2", "ConsistencyCheck", lambda sent: {SERVER: bytes(64)})
    refused(forged, "silo2 signed another set")


def test_each_silo_draws_whose_signatures_it_checks():
    drawn = [frozenset(Sparse(4, 3, 0, 3).drawn(names(9))) for _ in range(30)]
    assert {len(some) for some in drawn} == {3}
    assert len(set(drawn)) > 5
    assert sorted(Sparse(4, 3, 0, 32).drawn(names(9))) == names(9)


@pytest.mark.slow
def test_a_thousand_silos():
    """With a dropout in every phase, on the graph of degree 94 that is found for them."""
    aggregation = SecAgg(neighbours="auto", cohort=950)
    protocols = ready(aggregation, 1000)
    vectors = np.random.default_rng(0).integers(-99, 100, (1000, 3))
    cast = parties(protocols, vectors)
    for silo in range(5):
        cast[f"silo{silo}"] = leaving(cast[f"silo{silo}"], silo)
    total = total_of(cast)
    assert len(total.silos) == 950
    np.testing.assert_array_equal(
        total.vector, vectors[[int(name[4:]) for name in total.silos]].sum(0)
    )
