import numpy as np
import pytest
from plain_loop import EPOCHS, RATE, close, fedpriv_rounds, local_change


def algorithm_1(prepared, start, rounds, chosen=((0, 1, 2),) * 3):
    """Karimireddy et al., Algorithm 1 with option II, line by line; silos outside the sum change
    nothing."""
    x, c, own = start, np.zeros_like(start), [np.zeros_like(start) for _ in range(3)]
    for number in range(1, rounds + 1):
        changes, drifts = [], []
        for silo in chosen[number - 1]:
            change = local_change(prepared, silo, x, correction=c - own[silo])
            after = own[silo] - c - change / (EPOCHS * RATE)
            changes.append(change)
            drifts.append(after - own[silo])
            own[silo] = after
        x, c = x + np.mean(changes, axis=0), c + np.sum(drifts, axis=0) / 3
        yield x, c


@pytest.mark.parametrize("aggregation", ["plain", "masked", "secagg"])
def test_three_rounds_of_a_plain_loop(aggregation):
    start, after, prepared = fedpriv_rounds(3, "algo=scaffold", f"aggregation={aggregation}")
    expected = list(algorithm_1(prepared, start, 3))
    for found, (params, _) in zip(after, expected, strict=True):
        close(found, params)
    np.testing.assert_allclose(prepared.state.slots["control"], expected[-1][1], atol=2e-5)


def test_silos_outside_the_sum_keep_their_control_variate():
    words = [
        "algo=scaffold",
        "aggregation=secagg",
        "aggregation.cohort=2",
        "aggregation.threshold=2",
    ]
    start, after, prepared = fedpriv_rounds(3, *words)
    # Which two are summed is the server's draw: find the sequence that fits, and what silos
    # remember must fit it too.
    matches = []
    for code in range(27):
        left_out = [code // 3**k % 3 for k in range(3)]
        sets = [tuple(silo for silo in range(3) if silo != out) for out in left_out]
        path = [params for params, _ in algorithm_1(prepared, start, 3, sets)]
        if all(
            np.allclose(found, params, rtol=1e-4, atol=1e-5)
            for found, params in zip(after, path, strict=True)
        ):
            matches.append(left_out)
    [left_out] = matches
    never = {silo for silo in range(3) if all(out == silo for out in left_out)}
    assert {name for name, state in prepared.standing.silo_states.items() if not state} == {
        f"silo{silo}" for silo in never
    }
