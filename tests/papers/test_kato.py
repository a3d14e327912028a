from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

from fedpriv.papers.uldp_fl.theory import (
    PairRisks,
    UldpAvgSetting,
    breast_cancer_pairs,
    measure_overheads,
)

SETTING = UldpAvgSetting(
    clip=0.1, noise_multiplier=2.0, by_records=False, local_lr=0.5, local_steps=3, global_lr=4.0
)


@pytest.fixture(scope="module")
def risks():
    return breast_cancer_pairs(8, 2)


def test_every_record_belongs_to_one_pair_and_weights_of_a_user_add_up_to_one(risks):
    assert risks.counts.sum() == 455
    assert len(set(risks.counts.tolist())) > 4
    assert np.linalg.norm(risks.x, axis=2).max() <= 1 + 1e-12
    for by_records in (False, True):
        assert np.bincount(risks.users, risks.weights(by_records)) == pytest.approx(1)
    assert np.ptp(risks.weights(False)) == 0 < np.ptp(risks.weights(True))


def test_gradients_stay_below_their_bound(risks):
    theta = np.random.default_rng(0).normal(size=risks.x.shape[2])
    assert np.linalg.norm(risks.gradient(1000 * theta)) <= risks.gradient_bound


def test_a_step_is_the_gradient_of_the_pair_in_the_mean(risks):
    theta = np.random.default_rng(0).normal(size=risks.x.shape[2])
    deltas = risks.deltas(theta, replace(SETTING, local_steps=1), 4000, np.random.default_rng(1))
    for pair in (0, 5, 15):
        x, y = (rows[pair, : risks.counts[pair]] for rows in (risks.x, risks.y))
        gradient = (-y * expit(-y * (x @ theta))) @ x / len(x)
        np.testing.assert_allclose(
            deltas[:, pair].mean(axis=0), -0.5 * gradient, atol=4 * deltas.std() / 4000**0.5
        )
    assert deltas.std(axis=0).max() > 0


def test_the_terms_by_hand():
    """One record a pair, so that batches have no variance: two users in one silo, one clipped and
    one not."""
    x = np.array([[[1.0, 0.0]], [[0.0, 0.1]]])
    risks = PairRisks(x, np.ones((2, 1)), np.ones(2, dtype=int), users=np.arange(2), silos=1)
    setting = UldpAvgSetting(
        clip=0.1, noise_multiplier=3.0, by_records=False, local_lr=0.5, local_steps=1, global_lr=2.0
    )
    found = measure_overheads(risks, setting, 1, 50_000, rng=np.random.default_rng(0))
    # |delta| = 0.5 * 0.5 |x|: 0.25, cut to 0.1, and 0.025.
    factors = np.array([0.4, 1.0])
    assert risks.smoothness == pytest.approx(1 / 4)
    assert found["noise"] == pytest.approx(0.25 * 2 * (3 * 0.1) ** 2 * 2 / (0.5 * 4 * 0.7))
    assert found["sampling"] == pytest.approx(0)
    assert found["clipping"] == pytest.approx(2 / (2 * 0.7) * np.abs(factors - 0.7).sum())
    # grad f = -(0.5, 0.05) / 2; each pair's delta along it, times what its factor differs from the
    # mean.
    along = np.array([-0.25 * 0.25, -0.025 * 0.025])
    unit = 0.7 * 2 * 0.5 / 2
    assert found["clipping_measured"] == pytest.approx(abs((factors - 0.7) @ along) / unit)
    assert found["gradient"] == pytest.approx(0.25**2 + 0.025**2)
    # f'' at the moved model, half of whose trace times the noise's variance is what noise lifts f
    # by.
    margins = 2 / 2 * factors * np.array([0.25, 0.025]) * np.array([1, 0.1])
    curvature = (expit(margins) * expit(-margins) * np.array([1, 0.01])).sum() / 2
    lifted = (3 * 0.1) ** 2 * curvature / 2
    assert found["noise_measured"] == pytest.approx(lifted / unit, rel=0.03)


def test_without_clipping_only_noise_costs(risks):
    found = measure_overheads(
        risks,
        replace(SETTING, clip=100.0, noise_multiplier=0.01),
        2,
        20,
        rng=np.random.default_rng(0),
    )
    assert found["sampling"] == 0
    assert found["clipping"] == pytest.approx(0, abs=1e-12)
    assert 0 < found["noise_measured"] < found["noise"]


def test_noise_grows_with_its_square_and_batches_cost_where_they_are_clipped(risks):
    one, two = (
        measure_overheads(
            risks, replace(SETTING, noise_multiplier=sigma), 1, 200, rng=np.random.default_rng(0)
        )
        for sigma in (1, 2)
    )
    assert two["noise"] == pytest.approx(4 * one["noise"])
    assert two["noise_measured"] == pytest.approx(4 * one["noise_measured"], rel=0.1)
    for term in ("sampling", "clipping"):
        assert 0 < one[f"{term}_measured"] < one[term]
