"""The three trainers against a plain loop with torch's optimisers, with everything that a recipe
may hold."""

import numpy as np
import pytest
import torch
from one_by_one import (
    PROBLEMS,
    TRAINERS,
    Tokens,
    assert_same,
    one_by_one,
    silo,
    token_silo,
    trained,
)

from fedpriv.models.tasks import Classification
from fedpriv.training import users
from fedpriv.training.cost import measure_cost
from fedpriv.training.description import Recipe
from fedpriv.training.optimizers import Adam, RmsProp, Sgd
from fedpriv.training.schedule import StackedBatches
from fedpriv.training.trainers.base import LocalProblem, TrainingUsers
from fedpriv.training.vectors import flatten
from fedpriv.util.streams import Streams

COUNTS = [5, 1, 9, 16, 17, 3]
# An eps near the gradients' size keeps the rounding of gradients near zero from growing.
OPTIMIZERS = {
    "sgd": Sgd(),
    "momentum": Sgd(momentum=0.9, weight_decay=0.01),
    "rmsprop": RmsProp(alpha=0.9, eps=0.1),
    "rmsprop with all": RmsProp(alpha=0.9, eps=0.1, momentum=0.5, weight_decay=0.01),
    "adam": Adam(eps=0.1),
    "adam with decay": Adam(0.8, 0.9, eps=0.1, weight_decay=0.01),
}


def correction_of(theta):
    return torch.linspace(-0.05, 0.1, len(theta))


@pytest.mark.parametrize("corrected", [False, True], ids=["uncorrected", "corrected"])
@pytest.mark.parametrize("proximal", [0.0, 0.7])
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("problem", ["mlp", "cnn", "linear-cox"])
@pytest.mark.parametrize("trainer", TRAINERS)
def test_every_recipe_is_the_plain_loop(trainer, problem, name, proximal, corrected, monkeypatch):
    monkeypatch.setattr(users, "select_trainers", TRAINERS[trainer])
    torch.manual_seed(1)
    build, shape, task = PROBLEMS[problem]
    model = build()
    theta, data = flatten(model), silo(COUNTS, shape, task)
    recipe = Recipe(3, 8, 0.1, OPTIMIZERS[name], proximal)
    correction = correction_of(theta) if corrected else None
    want = one_by_one(model, theta, data, task, recipe, correction)
    assert_same(trained(model, theta, data, task, recipe, correction=correction), want, theta)
    assert float(want.norm(dim=1).max()) > 1e-3


def test_every_part_of_a_recipe_matters():
    torch.manual_seed(1)
    build, shape, task = PROBLEMS["mlp"]
    model = build()
    theta, data = flatten(model), silo(COUNTS, shape, task)
    results = [
        trained(
            model, theta, data, task, Recipe(3, 8, 0.1, optimizer, proximal), correction=correction
        )
        for optimizer in OPTIMIZERS.values()
        for proximal in (0.0, 0.7)
        for correction in (None, correction_of(theta))
    ]
    for i, one in enumerate(results):
        for other in results[:i]:
            assert float((one - other).norm(dim=1).min()) > 1e-4


@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.parametrize("optimizer", [Sgd(), Adam(eps=0.1)], ids=str)
def test_all_that_a_block_changes_is_in_its_state(trainer, optimizer):
    """Two blocks that train in turns end where each does alone, bit for bit."""
    torch.manual_seed(1)
    build, shape, task = PROBLEMS["cnn"]
    model = build()
    data = silo([20, 20, 12, 12, 5], shape, task)
    cost, recipe = measure_cost(model, shape), Recipe(2, 8, 0.1, optimizer)
    problem = LocalProblem(model, cost, shape, task, recipe, flatten(model))
    [(one, _)] = TRAINERS[trainer](problem, COUNTS)
    keys = Streams(0).unit_keys("batches", 0, "", data.users)
    groups = [np.array([0]), np.array([2])]
    alone = [
        one.run(TrainingUsers(data, group, 8, keys[group], keys[group]), None)[0]
        for group in groups
    ]
    fresh = optimizer.init(one.starts)
    last = np.array([8 if one.pads else 4])
    given = {"last": last, "seats": 1, "epochs": 2}
    steps = [list(StackedBatches(data, group, 8, keys=keys[group], **given)) for group in groups]
    states, changes = [one.init(1) for _ in groups], [torch.empty_like(own) for own in alone]
    while any(steps):
        for i, state in enumerate(states):
            if steps[i]:
                step = steps[i].pop(0)
                one._begin(state, step.begin, fresh, keys[groups[i]])
                one.step(state, step)
                if len(step.end.seats):
                    one._end(state, step.end, changes[i], {})
    for got, want in zip(changes, alone):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-6)
    assert all(float(own.norm()) > 1e-3 for own in changes)


@pytest.mark.parametrize("trainer", ["vmapped", "sequential"])
@pytest.mark.parametrize("optimizer", [Sgd(), Adam(eps=0.1)], ids=str)
def test_token_ids_train_through_an_embedding(trainer, optimizer, monkeypatch):
    monkeypatch.setattr(users, "select_trainers", TRAINERS[trainer])
    torch.manual_seed(1)
    model, data, task = Tokens(), token_silo(COUNTS), Classification()
    theta, recipe = flatten(model), Recipe(3, 8, 0.3, optimizer)
    got = trained(model, theta, data, task, recipe)
    assert_same(got, one_by_one(model, theta, data, task, recipe), theta)
    assert float(got.norm(dim=1).min()) > 1e-3
