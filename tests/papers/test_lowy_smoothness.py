"""SPIDER's smaller noise, s2 |w - w'| (Lowy et al., Algorithm 3): how far one record can move the
difference of two gradients."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

CLIP = 0.7


def clipped(gradient):
    return gradient * min(1.0, CLIP / max(float(np.linalg.norm(gradient)), 1e-300))


def logistic(x, w):
    """The gradient of log(1 + exp(-x w)); its smoothness is |x|^2 / 4."""
    return -x / (1 + np.exp(x @ w))


def relu(x, w):
    """The gradient of max(x w, 0), which is not smooth."""
    return x * float(x @ w > 0)


@given(seed=st.integers(0, 10_000))
def test_with_a_proved_smoothness_a_record_moves_a_difference_in_proportion_to_the_step(seed):
    """Clipping is a projection onto a ball, which brings no two gradients further apart."""
    rng = np.random.default_rng(seed)
    scale = rng.choice([0.001, 1, 5], size=2)
    w, step = rng.normal(size=3), rng.normal(size=3) * scale[0]
    records = rng.normal(size=(2, 3)) * scale[1]
    smoothness = max(float(x @ x) for x in records) / 4
    for bound in (lambda g: g, clipped):
        changes = [bound(logistic(x, w + step)) - bound(logistic(x, w)) for x in records]
        moved = np.linalg.norm(changes[0] - changes[1])
        assert moved <= 2 * smoothness * np.linalg.norm(step) + 1e-12


def test_without_one_no_multiple_of_the_step_is_enough():
    """A kink between two points that are almost equal: networks with ReLU have them."""
    x, w = np.array([1.0, 0.0]), np.array([1e-9, 0.0])
    change = clipped(relu(x, w)) - clipped(relu(x, -w))
    assert np.linalg.norm(change) > 1e6 * np.linalg.norm(2 * w)
