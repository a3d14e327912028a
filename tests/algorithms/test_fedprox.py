import numpy as np
import pytest
from plain_loop import close, fedpriv_rounds, local_change


@pytest.mark.parametrize("aggregation", ["plain", "masked"])
def test_two_rounds_of_a_plain_loop(aggregation):
    start, after, prepared = fedpriv_rounds(
        2, "algo=fedprox", "algo.proximal=0.7", f"aggregation={aggregation}"
    )
    params = start
    for found in after:
        params = params + np.mean(
            [local_change(prepared, silo, params, pull=0.7) for silo in range(3)], axis=0
        )
        close(found, params)


def test_the_pull_matters_and_without_it_this_is_federated_averaging():
    without, pulled = (
        fedpriv_rounds(1, "algo=fedprox", f"algo.proximal={mu}")[1][0] for mu in (0, 2)
    )
    start, [average], _ = fedpriv_rounds(1, "algo=fedavg")
    np.testing.assert_array_equal(without, average)
    assert np.linalg.norm(pulled - start) < 0.9 * np.linalg.norm(average - start)
