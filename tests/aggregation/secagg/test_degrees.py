"""The probabilities that a sparse graph fails, held against graphs drawn at random."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from queries import query_for
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from fedpriv.aggregation.secagg.aggregation import SecAgg
from fedpriv.aggregation.secagg.degrees import CHECKED, GRINDING, Assumed
from fedpriv.aggregation.secagg.graph import RingGraph, Sparse
from fedpriv.errors import ConfigError
from fedpriv.rounds.plan import Federation

SMALL = Assumed(candidates=30, cohort=30, threshold=21, colluding=6, missing=6)
LEFT = replace(SMALL, cohort=26)
TURNS = 4000


def rings(marked, among, seed=0):
    """Of many rings in random order: whether each place holds one of `marked` out of `among` silos,
    (turns, among)."""
    rng = np.random.default_rng(seed)
    return rng.permuted(np.tile(np.arange(among) < marked, (TURNS, 1)), axis=1)


def in_a_row(flags, length):
    """How many flags there are in the stretch of so many places from each place on, round the
    ring.
    """
    around = np.concatenate([flags, flags[:, :length]], axis=1)
    sums = np.cumsum(np.pad(around, ((0, 0), (1, 0))), axis=1)
    return sums[:, length:-1] - sums[:, : -length - 1]


def beside(flags, half):
    """How many of the `half` places on either side of each have a flag."""
    stretches = in_a_row(flags, 2 * half + 1)
    return np.roll(stretches, half, axis=1) - flags


def agrees(logarithm, events):
    """A union bound is the expected number of events, here those of each turn and place, scaled to
    all candidates; it is at least as large as the frequency of any."""
    counts = events.sum(axis=1)
    expected, error = 2.0**logarithm, counts.std() / math.sqrt(TURNS)
    assert counts.mean() == pytest.approx(expected, abs=4 * error + 1e-9)
    assert counts.mean() > 0.01  # else nothing is tested
    assert (counts > 0).mean() <= expected + 4 * error


@pytest.mark.parametrize(("degree", "shares"), [(6, 5), (8, 7), (12, 9)])
def test_shares_fail_as_often_as_simulated(degree, shares):
    graph = Sparse(degree, shares, 0, CHECKED)
    flags = rings(SMALL.missing, 30)
    # Of the silos that are there, whose neighbours are drawn without them; the bound is over as
    # many as there are.
    events = (degree - beside(flags, degree // 2) < shares) & ~flags
    agrees(SMALL.failure(graph).shares, events * 30 / 24)


@pytest.mark.parametrize(("degree", "shares"), [(6, 5), (8, 6), (12, 9)])
def test_secrets_fail_as_often_as_simulated(degree, shares):
    graph = Sparse(degree, shares, 0, CHECKED)
    flags = rings(SMALL.colluding, 30)
    events = (beside(flags, degree // 2) >= min(shares, 2 * shares - degree - 1)) & ~flags
    assert SMALL.deceived == 0
    agrees(SMALL.failure(graph).secrets, events * 30 / 24)


@pytest.mark.parametrize(("degree", "slack"), [(6, 1), (8, 2), (12, 4)])
def test_connection_and_stretches_fail_as_often_as_simulated(degree, slack):
    graph, half = Sparse(degree, degree, slack, CHECKED), degree // 2
    few = replace(LEFT, candidates=26, cohort=26)  # the fewest candidates there may be
    colluding = rings(LEFT.colluding, 26)
    agrees(few.failure(graph).connection, in_a_row(colluding, half) >= half - slack)
    assert LEFT.failure(graph).connection == pytest.approx(
        few.failure(graph).connection + math.log2(30 / 26)
    )
    left_out = rings(4, 30, seed=1)
    if slack < 4:
        agrees(LEFT.failure(graph).stretches, in_a_row(left_out, half) > slack)


def test_a_silo_is_deceived_as_often_as_simulated():
    # 60 candidates, 4 of them colluding: of 50 signatures 32 are valid, and 30 are drawn of 50.
    assumed = Assumed(candidates=60, cohort=60, threshold=50, colluding=4, missing=5)
    exact = math.comb(32, CHECKED) / math.comb(50, CHECKED)
    assert assumed.deceived == pytest.approx(exact, rel=1e-9)
    assert replace(assumed, colluding=0).deceived == 0
    large = Assumed(candidates=10_000, cohort=10_000, threshold=6667, colluding=500, missing=500)
    assert large.deceived == pytest.approx((5250 / 6667) ** 32, rel=0.05)
    certain = replace(large, threshold=5251).failure(Sparse(20, 16, 0, CHECKED))
    assert certain.secrets > large.failure(Sparse(20, 16, 0, CHECKED)).secrets + 10


def apart(order, half, inside):
    """In how many parts those inside lie on a ring where each is joined to `half` on either
    side.
    """
    n = len(order)
    rows = np.repeat(np.arange(n), half)
    columns = (rows + np.tile(np.arange(1, half + 1), n)) % n
    kept = inside[order]
    edges = kept[rows] & kept[columns]
    matrix = csr_array((np.ones(edges.sum()), (rows[edges], columns[edges])), shape=(n, n))
    _, labels = connected_components(matrix, directed=False)
    return len(set(labels[kept]))


@settings(max_examples=120)
@given(st.integers(7, 16), st.integers(1, 3), st.integers(0, 2), st.randoms(use_true_random=False))
def test_a_set_that_holds_together_is_only_parted_by_colluding_stretches(n, half, slack, random):
    names = tuple(f"silo{i:02}" for i in range(n))
    graph = RingGraph(names, random.randbytes(32), half, slack)
    chosen = [name for name in names if random.random() < 0.8]
    inside = np.isin(names, chosen)
    missing = [[int(not inside[graph.order[(p + s) % n]]) for s in range(half)] for p in range(n)]
    assert graph.holds_together(chosen) == all(sum(stretch) <= slack for stretch in missing)
    colluding = np.array([random.random() < 0.3 for _ in names])
    stretches = in_a_row(colluding[graph.order][None], half)
    if graph.holds_together(chosen) and (stretches < half - slack).all():
        assert apart(graph.order, half, inside & ~colluding) == 1


@pytest.mark.parametrize("silos", [50, 100, 1000])
@pytest.mark.parametrize("cohort", [1.0, 0.95])
def test_auto_finds_the_least_degree_that_is_safe(silos, cohort):
    threshold = 2 * silos // 3 + 1
    assumed = Assumed(
        candidates=silos,
        cohort=math.ceil(cohort * silos),
        threshold=threshold,
        colluding=silos // 20,
        missing=silos // 20,
    )
    graph = assumed.least(40, 20)
    failure = assumed.failure(graph)
    assert failure.cheating <= -40
    assert failure.curious == failure.cheating - GRINDING or failure.curious == -math.inf
    assert failure.correctness <= -20
    with pytest.raises(ConfigError, match=r"^aggregation\.neighbours="):
        assumed.required(graph.degree - 2, 40, 20)
    assert assumed.required(graph.degree, 40, 20) == graph
    assert assumed.least(80, 20).degree > graph.degree or silos == 50


def settled(silos=1000, **settings):
    aggregation = SecAgg(**{"neighbours": "auto"} | settings)
    return aggregation, aggregation.terms(query_for(aggregation, silos)).topology


def test_the_numbers_are_told_before_a_run():
    aggregation, graph = settled(1000)
    lines = aggregation.estimate(query_for(aggregation, 1000), Federation(1, 1000, 1))
    assert f"{graph.degree} neighbours out of 999, {graph.shares} shares" in lines[0]
    assert "50 silos collude and 50 drop out" in lines[0]
    assert "2^-49.8 from a cheating server, 2^-113.8 from an honest one" in lines[1]
    aggregation, _ = settled(20, corrupt=0.2)
    assert (
        "complete graph"
        in aggregation.estimate(query_for(aggregation, 20), Federation(1, 20, 1))[0]
    )
    aggregation = SecAgg()
    assert aggregation.estimate(query_for(aggregation, 20), Federation(1, 20, 1)) == ()


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"bits": 32, "range": 1e9}, "range"),
        ({"neighbours": 3}, "neighbours"),
        ({"neighbours": 0}, "neighbours"),
        ({"neighbours": "some"}, "neighbours"),
        ({"neighbours": True}, "neighbours"),
        ({"neighbours": 40}, "neighbours"),
        ({"neighbours": 1000}, "neighbours"),
        ({"neighbours": "auto", "dropouts": 0.4}, "dropouts"),
        ({"neighbours": "auto", "dropouts": 0.04, "cohort": 950}, "dropouts"),
        ({"neighbours": "auto", "dropouts": 1.0}, "dropouts"),
        ({"neighbours": "auto", "corrupt": 0.34}, "corrupt"),
        ({"neighbours": "auto", "corrupt": -0.1}, "corrupt"),
        ({"neighbours": "auto", "security_bits": 0}, "security_bits"),
        ({"neighbours": "auto", "correctness_bits": 0}, "correctness_bits"),
    ],
)
def test_settings_that_cannot_work_end_in_one_line(settings, key):
    with pytest.raises(ConfigError, match=rf"^aggregation\.{key}=.*") as error:
        query_for(SecAgg(**settings), 1000)
    assert "\n" not in str(error.value)
