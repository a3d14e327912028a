"""A cheating server that sends silos different models, so that it knows all contributions but one
silo's (Pasquini et al., Eluding secure aggregation in federated learning via model inconsistency,
CCS 2022)."""

import numpy as np
import pytest
from parties_of_generators import Protocols, run
from queries import query_for

from fedpriv.aggregation.base import BROADCAST, SERVER
from fedpriv.aggregation.masked import Masked
from fedpriv.aggregation.plain import Plain
from fedpriv.aggregation.secagg.aggregation import SecAgg
from fedpriv.aggregation.secagg.exact_noise import SecAggExactNoise
from fedpriv.errors import AggregationAbortedError
from fedpriv.rounds.local_job import LocalJob
from fedpriv.rounds.query import Broadcast

VICTIM = "silo1"
SECRET = np.array([3.0, -1.0, 2.0])
DEAD, ALIVE = Broadcast({"params": np.zeros(3)}), Broadcast({"params": np.ones(3)})
"""Models with which a silo's contribution is zero, and is not."""


def attack(aggregation, others=DEAD):
    """What the server computes when the victim gets a model that tells something, and all others
    get the same one, or one that tells nothing."""
    protocols = Protocols(aggregation, (0, 1, 2, 3)).ready(np.ones((4, 3), dtype=np.int64))

    def respond(broadcast):
        return LocalJob(iter(()), SECRET * broadcast.vectors["params"], bytes(32))

    query = query_for(aggregation, 4, 1, size=3)
    cast = protocols.query(query, dict.fromkeys(protocols.names, respond), others)
    protocols.says(
        cast,
        SERVER,
        BROADCAST,
        lambda sent: {name: ALIVE if name == VICTIM else others for name in sent},
    )
    return run(cast)[SERVER].vector


def test_in_the_clear_nothing_hides_a_silo_anyway():
    np.testing.assert_allclose(attack(Plain()), SECRET)


@pytest.mark.parametrize("aggregation", [SecAgg(), SecAggExactNoise(), SecAgg(neighbours=2)])
def test_silos_with_another_model_do_not_accept_each_others_keys(aggregation):
    with pytest.raises(AggregationAbortedError, match="has not signed its keys"):
        attack(aggregation)


def test_masks_do_not_cancel_between_silos_with_different_models():
    """The server sees uniformly random integers, and their sum is one too."""
    try:
        total = attack(Masked())
    except AggregationAbortedError:
        return  # a sum beyond what honest messages reach
    assert np.abs(total).max() > 1e3


@pytest.mark.parametrize("aggregation", [Masked(), SecAgg()])
def test_one_model_for_all_gives_the_sum(aggregation):
    np.testing.assert_allclose(attack(aggregation, others=ALIVE), 4 * SECRET, atol=1e-6)
