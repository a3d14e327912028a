"""What a sum in the clear shows and lets pass: the limits of the trust that is asked for."""

from dataclasses import replace

import numpy as np
import pytest
from parties_of_generators import Protocols, changed, noting, run
from queries import query_for
from runs import experiment

from fedpriv.aggregation.base import MESSAGE, SERVER
from fedpriv.aggregation.plain import Plain
from fedpriv.aggregation.weighted import WEIGHTS
from fedpriv.errors import AggregationAbortedError
from fedpriv.rounds.contributors import RecordWeighting
from fedpriv.rounds.local_job import LocalJob
from fedpriv.runtime import prepare

SILOS = ("silo0", "silo1", "silo2")
COUNTS = np.array([[1, 2], [3, 0], [5, 6]])


def ready():
    """Protocols after a set-up with weights made of counts."""
    return Protocols(Plain(), (0, 1, 2), RecordWeighting()).ready(COUNTS)


def parties(protocols, vectors):
    query = query_for(Plain(), 3, users=2, size=vectors.shape[1])
    return protocols.query(
        query, {name: LocalJob(iter(()), vector) for name, vector in zip(SILOS, vectors)}
    )


def said_in(cast):
    """What each silo says, by name."""
    said = {name: [] for name in SILOS}
    run(cast | {name: noting(cast[name], said[name]) for name in SILOS})
    return said


def test_the_server_sees_every_message():
    vectors = np.random.default_rng(0).normal(size=(3, 4))
    said = said_in(parties(ready(), vectors))
    for name, vector in zip(SILOS, vectors):
        np.testing.assert_array_equal(said[name][-1][SERVER], vector)


def test_the_server_is_told_counts_where_weights_depend_on_them():
    said = said_in(Protocols(Plain(), (0, 1, 2), RecordWeighting()).setup(COUNTS))
    for name, counts in zip(SILOS, COUNTS):
        np.testing.assert_array_equal(said[name][0][SERVER], counts)


def sum_with(moved):
    """The sum of zeros when one silo adds something to its message."""
    protocols = ready()
    cast = parties(protocols, np.zeros((3, 2)))
    protocols.says(cast, "silo1", MESSAGE, lambda sent: {SERVER: sent[SERVER] + moved})
    return run(cast)[SERVER].vector


def test_a_silo_can_send_any_finite_vector():
    far = np.array([1e9, 0.0])
    np.testing.assert_array_equal(sum_with(far), far)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_silo_that_sends_no_number_is_named(number):
    with pytest.raises(
        AggregationAbortedError, match="a message of silo1 is refused: a number that is not finite"
    ):
        sum_with(number)


def test_a_server_can_give_two_silos_all_of_a_user():
    """Each weight is one that an honest server could have sent; together they are twice the
    bound.
    """
    protocols = Protocols(Plain(), (0, 1, 2), RecordWeighting())
    cast = protocols.setup(COUNTS)

    def all_of_it(sent):
        return sent | {name: (sent[name] > 0).astype(float) for name in ("silo0", "silo2")}

    cast[SERVER] = changed(cast[SERVER], WEIGHTS, all_of_it, name=SERVER)
    run(cast)
    weights = np.array([protocols[name].weights for name in SILOS])
    assert weights.sum(axis=0).tolist() == pytest.approx([2 + 3 / 9, 2])


@pytest.mark.parametrize("aggregation", ["plain", "masked", "secagg"])
def test_a_server_can_tell_any_sum(aggregation):
    """It alone learns the sum, and nobody asks it for more than the silos that are in it."""
    with prepare(experiment("algo=uldp_avg", f"aggregation={aggregation}")) as prepared:
        server = prepared.session.participants[SERVER].protocol
        honest = server.query

        def lying(query, broadcast):
            total = yield from honest(query, broadcast)
            return replace(total, vector=np.full_like(total.vector, 7.0))

        server.query = lying
        result = prepared.run_round(prepared.queries(1), prepared.state)
    assert result.aborted is None
    moved = result.state.params - prepared.state.params
    assert np.ptp(moved) < 1e-12 < abs(moved).min()
