import numpy as np
import pytest
from plain_loop import close, fedpriv_rounds, local_change

BETA1, BETA2, TAU, ETA = 0.8, 0.95, 0.05, 0.3
WORDS = ["algo=fedopt", f"algo.momentum={BETA1}"]


def mean_change(prepared, params):
    return np.mean([local_change(prepared, silo, params) for silo in range(3)], axis=0)


@pytest.mark.parametrize("rule", ["adagrad", "adam", "yogi"])
def test_three_rounds_of_algorithm_2(rule):
    """Reddi et al., line by line."""
    own = [f"algo.adaptivity={TAU}", f"algo.rule={rule}", f"algo.global_lr={ETA}"]
    own += [f"algo.second_moment={BETA2}"] if rule != "adagrad" else []
    start, after, prepared = fedpriv_rounds(3, *WORDS, *own)
    x, m, v = start, np.zeros_like(start), np.full_like(start, TAU**2)
    for found in after:
        change = mean_change(prepared, x)
        m = BETA1 * m + (1 - BETA1) * change
        v = {
            "adagrad": v + change**2,
            "adam": BETA2 * v + (1 - BETA2) * change**2,
            "yogi": v - (1 - BETA2) * change**2 * np.sign(v - change**2),
        }[rule]
        x = x + ETA * m / (np.sqrt(v) + TAU)
        close(found, x)


def test_three_rounds_of_server_momentum():
    start, after, prepared = fedpriv_rounds(
        3, *WORDS, "algo.rule=momentum", f"algo.global_lr={ETA}"
    )
    x, m = start, np.zeros_like(start)
    for found in after:
        m = BETA1 * m + mean_change(prepared, x)
        x = x + ETA * m
        close(found, x)
    assert "second_moment" not in prepared.state.slots
