from dataclasses import replace

import numpy as np
import pytest
from erm_world import prepared, silos_of
from hypothesis import given
from hypothesis import strategies as st
from lowy_world import MINIBATCH, ONE_PASS

from fedpriv.certificates.sampling import SAMPLING, Coins, OnePass, Poisson, paper_batch
from fedpriv.data.silo import SiloData
from fedpriv.rounds.silo_context import Silo
from fedpriv.util.streams import Streams

[RECORDS] = silos_of([30])


def setting(algo=MINIBATCH, system=False):
    """A run's silo, and its first 400 queries."""
    sim = prepared(replace(algo, rounds=400 if algo is MINIBATCH else 5, batch_size=6), [RECORDS])
    plan = replace(sim.plan, streams=Streams(0, system=system))
    silo = Silo(0, RECORDS, sim.model, sim.evaluation.task, plan)
    return silo, [sim.queries(number)[0] for number in range(1, 401)]


@pytest.mark.parametrize("system", [False, True])
@pytest.mark.parametrize("name", SAMPLING)
def test_every_record_is_drawn_as_often_as_declared(name, system):
    silo, queries = setting(system=system)
    draw, counts = SAMPLING[name](), np.zeros(30)
    for query in queries:
        rows = draw.rows(silo, query, 6)
        assert len(rows) <= draw.most(6, 30)
        assert len(rows) == 6 or name == "poisson"
        assert len(set(rows.tolist())) == len(rows) or name == "with_replacement"
        counts += np.bincount(rows, minlength=30)
    assert (np.abs(counts - 80) < 4.7 * np.sqrt(80)).all()


@pytest.mark.parametrize("name", ["without_replacement", "poisson"])
def test_whole_batches_are_everybody_and_cost_what_is_not_sampled(name):
    from dp_accounting import GaussianDpEvent

    silo, queries = setting()
    np.testing.assert_array_equal(SAMPLING[name]().rows(silo, queries[0], 30), np.arange(30))
    assert SAMPLING[name]().event(GaussianDpEvent(2.0), 30, 30) == GaussianDpEvent(2.0)


def test_a_sample_of_what_is_not_private_is_not_private():
    """Once an event that no accountant knows, of a run without noise."""
    from dp_accounting import NonPrivateDpEvent

    assert Coins(0.5).event(NonPrivateDpEvent(), 1, 1) == NonPrivateDpEvent()
    assert Poisson().event(NonPrivateDpEvent(), 6, 30) == NonPrivateDpEvent()


@pytest.mark.parametrize("system", [False, True])
def test_one_pass_takes_every_record_once_also_with_real_randomness(system):
    silo, queries = setting(ONE_PASS, system=system)
    batches = [OnePass(5).rows(silo, query, 6) for query in queries[:5]]
    again = [OnePass(5).rows(silo, query, 6) for query in queries[:5]]
    assert sorted(np.concatenate(batches)) == list(range(30))
    assert all(np.array_equal(one, two) for one, two in zip(batches, again))
    assert OnePass(5).rows(silo, queries[5], 6).size == 0


def test_batches_of_one_pass_are_disjoint_even_if_their_sizes_change():
    """The scopes of rounds are charged as disjoint; a second round of one record met the first."""
    silo, queries = setting(ONE_PASS)
    sizes = [6, 1, 3, 2, 6]
    batches = [OnePass(5).rows(silo, query, size) for query, size in zip(queries, sizes)]
    assert [len(batch) for batch in batches] == sizes
    assert len(np.unique(np.concatenate(batches))) == sum(sizes)
    with pytest.raises(ValueError, match="7 records from a part of 6"):
        OnePass(5).rows(silo, queries[0], 7)


@pytest.mark.parametrize("name", ["without_replacement", "poisson"])
def test_who_is_drawn_depends_on_a_records_own_number(name):
    """With others' rows in another order the same records come, and without one of them the others'
    coins stay."""
    silo, queries = setting()
    order = np.random.default_rng(0).permutation(30)
    data = SiloData(
        RECORDS.x[order], RECORDS.y[order], RECORDS.users, RECORDS.starts, np.arange(30)[order]
    )
    rows = SAMPLING[name]().rows(silo, queries[0], 6)
    moved = SAMPLING[name]().rows(replace(silo, data=data), queries[0], 6)
    assert set(order[moved]) == set(rows)


@given(records=st.integers(1, 5000), rounds=st.integers(1, 500), factor=st.floats(0.1, 30))
def test_the_papers_batch_is_never_empty_nor_larger_than_the_silo(records, rounds, factor):
    assert 1 <= paper_batch(records, rounds, factor) <= records
