"""Algorithm 3 of SecureD-FL: the first exchange averages initial weights of the peers' own."""

import numpy as np

from fedpriv.algorithms.secured_fl import INITIAL
from fedpriv.runtime import prepare
from fedpriv.testing import experiment
from fedpriv.testing.experiments import SMALL
from fedpriv.training.initial import drawn_weights

WORDS = (*SMALL, "preset.n_silos=9", "algo=secured_fl", "aggregation=admm")
CONVERGED = ("aggregation.preset=null", "aggregation.iterations=32", "aggregation.beyond_safe=true")


def test_peers_begin_with_the_average_of_weights_of_their_own():
    with prepare(experiment(*WORDS, *CONVERGED)) as prepared:
        first, update = prepared.queries(1)
        assert first.name == INITIAL
        assert first.serial < update.serial
        assert len(prepared.queries(2)) == 1
        streams, model = prepared.plan.streams, prepared.model
        own = [
            drawn_weights(model, streams.torch_seed("initial weights", party=f"silo{k}"))
            .double()
            .numpy()
            for k in range(9)
        ]
        assert len({vector.tobytes() for vector in own}) == 9
        result = prepared.run_round((first,), prepared.state)
        assert result.aborted is None
        np.testing.assert_allclose(
            result.state.params, np.mean(own, axis=0), rtol=1e-12, atol=1e-14
        )
        assert prepared.run_round(prepared.queries(2), result.state).aborted is None


def test_shared_weights_need_no_exchange_and_make_it_federated_averaging():
    ends = []
    for words in (("algo.init_weights=shared", *CONVERGED), ("algo=fedavg", "aggregation=plain")):
        with prepare(experiment(*WORDS, *words)) as prepared:
            [query] = prepared.queries(1)
            ends.append(prepared.run_round((query,), prepared.state).state.params)
    np.testing.assert_allclose(*ends, rtol=1e-12, atol=1e-14)
