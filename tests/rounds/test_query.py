"""What a query's messages may be, and what cannot be asked."""

from dataclasses import replace

import numpy as np
import pytest
from queries import query_for

from fedpriv.aggregation.plain import Plain
from fedpriv.parties.messages import decode, encode
from fedpriv.parties.schema import SchemaError
from fedpriv.rounds.query import STATE_DIGEST, Broadcast, Exchange, SiloReport, Total
from fedpriv.rounds.state import State
from fedpriv.training.contributions import ContributionStats

SILOS = ("silo0", "silo1", "silo2")
EXCHANGE = Exchange(down=(("params", (2,)),), n_units=4)
QUERY = replace(query_for(Plain(), 3, users=4, size=2), exchange=EXCHANGE)
TOTAL = Total(np.zeros(2), SILOS)
DIGEST = State(np.zeros(2)).digest()


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_nobody_is_sent_numbers_that_are_not_finite(number):
    QUERY.broadcast_schema.check(Broadcast({"params": np.zeros(2)}, np.ones(4, dtype=bool)))
    with pytest.raises(SchemaError, match="not finite"):
        QUERY.broadcast_schema.check(Broadcast({"params": np.array([0.0, number])}))


def test_silos_are_told_of_as_many_as_the_noise_is_for():
    """And of any number where noise that is too much is taken out."""
    told = SILOS[:2]
    with pytest.raises(SchemaError, match="2 names instead of 3"):
        QUERY.summed_schema(SILOS).check(told)
    QUERY.summed_schema(SILOS).check(SILOS)
    replace(QUERY, n_summed=2, n_most=3).summed_schema(SILOS).check(told)
    replace(QUERY, n_summed=2, n_most=3).summed_schema(SILOS).check(SILOS)


def test_a_state_is_told_by_its_digest():
    report = SiloReport(TOTAL, ContributionStats(), 0.5, DIGEST)
    QUERY.learned_schema(SILOS, silo=True).check(report)
    assert len(DIGEST) == STATE_DIGEST
    for digest in (DIGEST[1:], DIGEST + b"\0"):
        with pytest.raises(SchemaError, match="bytes instead of 32"):
            QUERY.learned_schema(SILOS, silo=True).check(replace(report, state=digest))


def test_what_parties_have_learned_is_a_message():
    report = SiloReport(TOTAL, ContributionStats(units=3, clipped=1, norm_sum=0.25), 0.5, DIGEST)
    read = decode(encode(report))
    assert (read.stats, read.seconds, read.state, read.total.silos) == (
        report.stats,
        0.5,
        DIGEST,
        SILOS,
    )
    np.testing.assert_array_equal(read.total.vector, TOTAL.vector)


def test_noise_without_a_grid_stays():
    assert QUERY.removable is None
    with pytest.raises(ValueError, match="needs an integer encoding"):
        _ = replace(QUERY, n_most=3).removable
