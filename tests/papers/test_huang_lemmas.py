"""Lemmas 2 and 3 of Huang against exact moments."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpriv.papers.huang.lemmas import drift_of_flat_losses, progress


@settings(max_examples=150)
@given(seed=st.integers(0, 100_000), owners=st.integers(2, 6), synchronised=st.booleans())
def test_lemma_2_bounds_one_step_of_quadratics(seed, owners, synchronised):
    rng = np.random.default_rng(seed)
    curvature = rng.uniform(0.1, rng.choice([0.11, 1, 10]), owners)
    after, bound = progress(
        rng.normal(size=(owners, 2)) * rng.choice([0.01, 1, 10]),
        curvature=curvature,
        centres=rng.normal(size=(owners, 2)) * rng.choice([0.01, 1, 10]),
        lr=float(rng.uniform(0, 1)) / (4 * curvature.max()),
        noise=float(rng.choice([0.0, 1.0, 10.0])),
        n_summed=int(rng.integers(1, owners + 1)),
        synchronised=synchronised,
    )
    assert after <= bound * (1 + 1e-9)


def test_lemma_2_needs_its_step_size():
    """So the test above can fail: a step of four times 1 / L overshoots."""
    models, centres = np.ones((2, 1)), np.zeros((2, 1))
    settings = {"curvature": np.ones(2), "centres": centres, "noise": 0.0, "n_summed": 2}
    after, bound = progress(models, lr=4.0, synchronised=True, **settings)
    assert after > bound


def test_lemma_3_leaves_out_the_noise():
    """Its first bound is zero for flat losses, as its second one; owners drift all the same."""
    drift = drift_of_flat_losses(10, steps=2, lr=0.1, noise=0.5, parameters=3)
    rng = np.random.default_rng(0)
    models = 0.1 * 0.5 * rng.standard_normal((20_000, 2, 10, 3)).sum(axis=1)
    spread = ((models - models.mean(axis=1, keepdims=True)) ** 2).sum(axis=2).mean()
    assert spread == pytest.approx(drift, rel=0.02)
    assert drift > 0 == 4 * 0.1**2 * (2 - 1) ** 2 * 0.0**2
