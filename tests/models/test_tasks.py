import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lifelines.utils import concordance_index
from torch.nn import functional as F

from fedpriv.models.linear import Linear
from fedpriv.models.regression import ExponentialSurvival, Regression
from fedpriv.models.tasks import (
    BinaryClassification,
    Classification,
    CoxRegression,
    convex_loss,
)


def cox_by_hand(score, event, time):
    order = np.argsort(-time, kind="stable")
    losses = [
        event[i] * (np.log(np.exp(score[order[: k + 1]]).sum()) - score[i])
        for k, i in enumerate(order)
    ]
    return np.mean(losses)


def test_cox_golden():
    # ALGORITHMS 2.9, golden row 35
    y = torch.tensor([[1.0, 3.0], [1.0, 2.0], [1.0, 1.0]], dtype=torch.float64)
    outputs = torch.tensor([[0.1], [0.2], [0.3]], dtype=torch.float64)
    assert CoxRegression().loss(
        outputs, y, torch.full((3,), 1 / 3, dtype=torch.float64)
    ).item() == pytest.approx(0.5487798361, 1e-9)


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 12), st.integers(0, 5), st.integers(0, 2**31))
def test_cox_equals_the_definition_and_ignores_padding(real, padding, seed):
    rng = np.random.default_rng(seed)
    score = rng.normal(size=real + padding)
    event = rng.integers(0, 2, real + padding).astype(float)
    time = rng.permutation(100)[: real + padding].astype(float)
    weight = np.where(np.arange(real + padding) < real, 1 / real, 0.0)
    y = torch.from_numpy(np.stack([event, time], 1))
    outputs = torch.from_numpy(score[:, None]).requires_grad_()
    loss = CoxRegression().loss(outputs, y, torch.from_numpy(weight))
    assert loss.item() == pytest.approx(
        cox_by_hand(score[:real], event[:real], time[:real]), abs=1e-9
    )
    if loss.requires_grad:
        (gradient,) = torch.autograd.grad(loss, outputs)
        assert gradient.isfinite().all()
        assert (gradient[real:] == 0).all()


def test_losses_equal_torch_and_take_leading_dimensions():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(4, 6, 3, generator=generator)
    labels = torch.randint(0, 3, (4, 6), generator=generator)
    weight = torch.full((4, 6), 1 / 6)
    expected = torch.stack([F.cross_entropy(a, b) for a, b in zip(logits, labels)])
    torch.testing.assert_close(Classification().loss(logits, labels, weight), expected)
    factors = torch.tensor([1.0, 4.0, 0.5])
    weighted = Classification(factors=tuple(factors.tolist()))
    each = [F.cross_entropy(a, b, factors, reduction="sum") / 6 for a, b in zip(logits, labels)]
    found = weighted.loss(logits.requires_grad_(), labels, weight)
    torch.testing.assert_close(found, torch.stack(each))
    (expected,) = torch.autograd.grad(found.sum(), logits)
    logits = logits.detach()
    torch.testing.assert_close(weighted.gradient(logits, labels, weight), expected)
    one, truth = logits[..., :1], (labels > 0).float()
    expected = torch.stack(
        [F.binary_cross_entropy(a.sigmoid().squeeze(-1), b) for a, b in zip(one, truth)]
    )
    torch.testing.assert_close(BinaryClassification().loss(one, truth, weight), expected)


def test_a_hazard_is_lived_through_and_met():
    """Hazards 2 and 1: 2 * 3 - ln 2 with an event, and 1 * 2 without."""
    outputs = torch.tensor([[np.log(2.0)], [0.0]])
    events = torch.tensor([[1.0, 3.0], [0.0, 2.0]])
    loss = ExponentialSurvival().loss(outputs, events, torch.ones(2))
    assert loss.item() == pytest.approx(6 - np.log(2) + 2)


@pytest.mark.parametrize(
    ("task", "outputs", "bias", "smoothness"),
    [
        (BinaryClassification(), 1, False, 0.25 * 9),
        (BinaryClassification(), 1, True, 0.25 * 10),
        (Regression(), 1, True, 10.0),
    ],
)
def test_smoothness_grows_with_the_square_of_the_features_norm(task, outputs, bias, smoothness):
    loss = convex_loss(Linear(bias=bias), task, outputs)
    assert loss.smoothness(3.0) == pytest.approx(smoothness)


def test_balanced_accuracy_is_the_mean_of_true_rates():
    outputs = np.array([[1.0, 0], [1, 0], [1, 0], [0, 1]])
    values = Classification("balanced_accuracy").metrics(outputs, np.array([0, 0, 1, 1]))
    assert list(values) == ["balanced_accuracy", "accuracy", "error"]
    assert values == {"balanced_accuracy": 0.75, "accuracy": 0.75, "error": 0.25}
    lazy = Classification("balanced_accuracy").metrics(
        np.array([[1.0, 0]] * 100), np.array([0] * 99 + [1])
    )
    assert lazy == pytest.approx({"balanced_accuracy": 0.5, "accuracy": 0.99, "error": 0.01})


def test_balanced_accuracy_leaves_out_classes_without_records():
    outputs = np.eye(4)[[0, 0, 3, 3, 1]]
    values = Classification().metrics(outputs, np.array([0, 0, 3, 0, 3]))
    assert values["balanced_accuracy"] == pytest.approx((2 / 3 + 1 / 2) / 2)


def test_a_logit_decides_by_its_sign():
    outputs = np.array([[0.2], [-0.2], [0.4], [3.0]])
    values = BinaryClassification().metrics(outputs, np.array([1.0, 0.0, 0.0, 1.0]))
    assert values == {"accuracy": 0.75, "error": 0.25}


def test_c_index_takes_the_score_as_risk():
    rng = np.random.default_rng(0)
    time, event = rng.exponential(size=50), rng.integers(0, 2, 50)
    y = np.stack([event, time], 1)
    risk = CoxRegression().metrics(-time[:, None], y)["c_index"]
    assert risk == 1.0
    noise = rng.normal(size=50)
    assert CoxRegression().metrics(noise[:, None], y)["c_index"] == concordance_index(
        time, -noise, event
    )
    assert np.isnan(CoxRegression().metrics(noise[:1, None], y[:1])["c_index"])
