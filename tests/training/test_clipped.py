import copy

import numpy as np
import pytest
import torch
from one_by_one import Tokens, token_silo
from torch import nn

from fedpriv.errors import ConfigError
from fedpriv.models.cnn import MnistCnn
from fedpriv.models.linear import Linear
from fedpriv.models.mlp import Mlp
from fedpriv.tally import Tally
from fedpriv.tasks import BinaryClassification, Classification
from fedpriv.training import clipped as module
from fedpriv.training.clipped import clipped_gradients
from fedpriv.training.vectors import flatten, load

PROBLEMS = {
    "logistic regression": (Linear(), (5,), 1, BinaryClassification()),
    "softmax, no bias": (Linear(bias=False), (5,), 3, Classification()),
    "images": (Linear(), (1, 4, 4), 3, Classification()),
    "mlp": (Mlp([8, 7], False, 0.0), (5,), 3, Classification()),
    "group norm": (Mlp([8, 7], True, 0.0), (5,), 3, Classification()),
    "cnn": (MnistCnn([2, 3], 6, 0.0), (1, 20, 20), 4, Classification()),
}
CLOSED = ("logistic regression", "softmax, no bias", "images", "mlp")
"""Problems whose gradients are never formed one by one."""


def problem(name, n=23):
    config, shape, outputs, task = PROBLEMS[name]
    torch.manual_seed(1)
    model, x = config.build(shape, outputs), torch.randn(n, *shape)
    y = torch.arange(n) % outputs if outputs > 1 else (torch.arange(n) % 2).float()
    return model, x, y, task


def one_by_one(model, theta, x, y, task):
    """Each record's gradient (n, d), by plain autograd in a loop."""
    model, rows = copy.deepcopy(model), []
    load(model, theta)
    for i in range(len(x)):
        loss = task.loss(model(x[i : i + 1]), y[i : i + 1], torch.ones(1))
        rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))]))
    return torch.stack(rows).double()


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_sum_is_that_of_a_loop_over_records(name, monkeypatch):
    model, x, y, task = problem(name)
    theta = flatten(model) + 0.1
    rows = one_by_one(model, theta, x, y, task)
    norms = rows.norm(dim=1)
    clip = float(norms.median())
    expected = (clip / norms).clamp(max=1) @ rows
    tally = Tally()
    gradients = clipped_gradients(model, task, clip, shape=tuple(x.shape[1:]))
    assert isinstance(gradients, module._Outer) == (name in CLOSED)
    torch.testing.assert_close(gradients.sum(theta, x, y, tally=tally), expected, rtol=1e-4, atol=1e-5)
    assert (tally.units, tally.nonfinite) == (23, 0)
    assert abs(tally.clipped - 11) <= 1  # the median itself may fall on either side
    assert tally.norm_sum == pytest.approx(float(norms.sum()), rel=1e-5)
    monkeypatch.setattr(type(gradients), "rows_at_once", lambda self, parameters: 4)
    torch.testing.assert_close(gradients.sum(theta, x, y), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", PROBLEMS)
def test_without_a_bound_nothing_is_clipped(name):
    model, x, y, task = problem(name)
    theta = flatten(model)
    total = clipped_gradients(model, task, float("inf"), shape=tuple(x.shape[1:])).sum(theta, x, y)
    torch.testing.assert_close(total, one_by_one(model, theta, x, y, task).sum(0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", PROBLEMS)
def test_no_record_weighs_more_than_the_clip(name):
    model, x, y, task = problem(name)
    gradients = clipped_gradients(model, task, 0.01, shape=tuple(x.shape[1:]))
    for i in range(5):
        assert gradients.sum(flatten(model), 1e3 * x[i : i + 1], y[i : i + 1]).norm() <= 0.01 * (1 + 1e-5)


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("wrong", [np.nan, np.inf, 1e38])
def test_a_record_without_a_finite_gradient_is_counted_and_left_out(name, wrong):
    model, x, y, task = problem(name)
    sick = x.clone()
    sick[3] = wrong
    theta, tally = flatten(model), Tally()
    gradients = clipped_gradients(model, task, 0.5, shape=tuple(x.shape[1:]))
    total = gradients.sum(theta, sick, y, tally=tally)
    assert total.isfinite().all()
    if tally.nonfinite:
        healthy = torch.arange(23) != 3
        torch.testing.assert_close(total, gradients.sum(theta, x[healthy], y[healthy]), rtol=1e-4, atol=1e-5)
    assert tally.units == 23
    assert tally.nonfinite == 1 or wrong == 1e38


def test_no_records_sum_to_zero_and_the_model_stays_as_it_was():
    model, x, y, task = problem("mlp")
    model.eval()
    before = flatten(model)
    gradients = clipped_gradients(model, task, 1.0, shape=(5,))
    assert torch.equal(gradients.sum(before + 1, x[:0], y[:0]), torch.zeros(len(before), dtype=torch.float64))
    gradients.sum(before + 1, x, y)
    assert torch.equal(flatten(model), before)
    assert not model.training
    assert all(p.grad is None and p.requires_grad for p in model.parameters())


def test_networks_that_overwrite_activations_go_one_by_one():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(inplace=True), nn.Linear(6, 3))
    x, y = torch.randn(9, 4), torch.arange(9) % 3
    gradients = clipped_gradients(model, Classification(), 1.0, shape=(4,))
    assert isinstance(gradients, module._PerRecord)
    rows = one_by_one(model, flatten(model), x, y, Classification())
    expected = (1 / rows.norm(dim=1)).clamp(max=1) @ rows
    torch.testing.assert_close(gradients.sum(flatten(model), x, y), expected, rtol=1e-4, atol=1e-5)


def test_token_ids_go_through_an_embedding():
    torch.manual_seed(1)
    model, data, task = Tokens(), token_silo([23]), Classification()
    theta = flatten(model)
    rows = one_by_one(model, theta, data.x, data.y, task)
    clip = float(rows.norm(dim=1).median())
    gradients = clipped_gradients(model, task, clip, shape=(4,))
    expected = (clip / rows.norm(dim=1)).clamp(max=1) @ rows
    torch.testing.assert_close(gradients.sum(theta, data.x, data.y), expected, rtol=1e-4, atol=1e-5)


def test_batch_norm_is_refused():
    with pytest.raises(ConfigError, match="model=BatchNorm1d"):
        clipped_gradients(nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 2)), Classification(), 1.0, shape=(5,))
