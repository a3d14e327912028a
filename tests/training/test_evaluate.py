"""Flat vectors, and evaluation in batches."""

import numpy as np
import pytest
import torch
from one_by_one import PROBLEMS, Tokens, silo, token_silo
from torch import nn

from fedpriv.models.tasks import Classification
from fedpriv.training.evaluate import Evaluator, Labelled, training_loss
from fedpriv.training.vectors import flatten, load, unflatten


@pytest.mark.parametrize("name", PROBLEMS)
def test_batches_do_not_matter_and_the_model_is_left_alone(name):
    build, shape, task = PROBLEMS[name]
    model = build().train()
    data, theta = silo([50], shape, task), flatten(build())
    before = flatten(model)
    loss, metrics = Evaluator(model, task).evaluate(theta, Labelled(data.x, data.y))
    assert torch.equal(flatten(model), before)
    assert all(part.training for part in model.modules())
    again, same = Evaluator(model, task, batch=7).evaluate(theta, Labelled(data.x, data.y))
    assert loss == pytest.approx(again, rel=1e-5)
    assert metrics == pytest.approx(same)
    load(model, theta)
    outputs = model.eval()(data.x)
    assert loss == pytest.approx(
        float(task.loss(outputs.detach(), data.y, torch.full((50,), 1 / 50))), rel=1e-5
    )
    assert metrics == task.metrics(outputs.detach().numpy(), data.y.numpy())


def test_dropout_is_off():
    model = nn.Sequential(nn.Linear(6, 40), nn.Dropout(0.5), nn.Linear(40, 3))
    data = silo([20], (6,), Classification())
    theta, task = flatten(model), Classification()
    loss, _ = Evaluator(model, task).evaluate(theta, Labelled(data.x, data.y))
    assert loss == Evaluator(model, task).evaluate(theta, Labelled(data.x, data.y))[0]


def test_vectors_follow_named_parameters():
    model = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 1, bias=False)))
    model.register_parameter("scalar", nn.Parameter(torch.tensor(7.0)))
    names = [name for name, _ in model.named_parameters()]
    vector = flatten(model)
    np.testing.assert_array_equal(
        vector, torch.cat([p.detach().flatten() for _, p in model.named_parameters()])
    )
    stack = torch.stack([vector, vector + 1])
    named = unflatten(model, stack)
    assert list(named) == names
    assert named["0.weight"].shape == (2, 3, 2)
    assert named["scalar"].shape == (2,)
    load(model, vector + 1)
    assert torch.equal(flatten(model), vector + 1)


def test_token_ids_are_evaluated_as_they_are():
    torch.manual_seed(3)
    model, task = Tokens(), Classification()
    silos, theta = [token_silo([n], seed=n) for n in (5, 30)], flatten(model)
    losses = [torch.nn.functional.cross_entropy(model(data.x), data.y) for data in silos]
    for data, loss in zip(silos, losses):
        assert Evaluator(model, task).evaluate(theta, Labelled(data.x, data.y))[0] == pytest.approx(
            float(loss.detach()), rel=1e-5
        )
    found = training_loss(model, theta, silos=[(data.x, data.y) for data in silos], task=task)
    assert found.loss == pytest.approx(float(sum(losses).detach()) / 2, rel=1e-5)
    gradients = torch.autograd.grad(sum(losses) / 2, list(model.parameters()))
    assert float(found.gradient.norm()) == pytest.approx(
        float(torch.cat([g.flatten() for g in gradients]).norm()), rel=1e-4
    )


def test_the_objective_is_the_mean_of_the_silos_means():
    build, shape, task = PROBLEMS["mlp"]
    model = build()
    silos = [silo([n], shape, task, seed=n) for n in (5, 30)]
    theta = flatten(build())
    found = training_loss(model, theta, silos=[(data.x, data.y) for data in silos], task=task)
    load(model, theta)
    parts = [torch.nn.functional.cross_entropy(model(data.x), data.y) for data in silos]
    mean = sum(parts) / 2
    gradients = torch.autograd.grad(mean, list(model.parameters()), retain_graph=True)
    assert found.loss == pytest.approx(float(mean.detach()), rel=1e-5)
    assert float(found.gradient.norm()) == pytest.approx(
        float(torch.cat([g.flatten() for g in gradients]).norm()), rel=1e-4
    )
    each = [
        torch.autograd.grad(part, list(model.parameters()), retain_graph=True) for part in parts
    ]
    apart = torch.cat([(a - b).flatten() for a, b in zip(*each)]).norm() / 2
    assert found.heterogeneity == pytest.approx(float(apart), rel=1e-4)
