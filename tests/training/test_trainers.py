"""The trainers of torch against a plain loop with torch's optimisers, with everything that a recipe
may hold."""

import pytest
import torch
from one_by_one import (
    BY_TORCH,
    PROBLEMS,
    Tokens,
    assert_same,
    one_by_one,
    silo,
    token_silo,
    trained,
)
from torch import nn

from fedpriv.models.tasks import Classification
from fedpriv.training.description import Recipe
from fedpriv.training.optimizers import Adam, RmsProp, Sgd
from fedpriv.training.vectors import flatten

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


@pytest.mark.parametrize(
    ("name", "proximal", "corrected", "size"),
    [
        *(("sgd", 0.0, False, 64), ("sgd", 0.0, True, None), ("sgd", 0.7, False, 8)),
        *((name, 0.7, True, 8) for name in OPTIMIZERS),
    ],
)
@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("trainer", BY_TORCH)
def test_every_recipe_is_the_plain_loop(trainer, problem, name, proximal, corrected, size):
    torch.manual_seed(1)
    build, shape, task = PROBLEMS[problem]
    model = build()
    theta, data = flatten(model), silo(COUNTS, shape, task)
    recipe = Recipe(3, size, 0.1, OPTIMIZERS[name], proximal)
    correction = correction_of(theta) if corrected else None
    want = one_by_one(model, theta, data, task, recipe, correction)
    own = {"correction": correction, "execution": BY_TORCH[trainer]}
    assert_same(trained(model, theta, data, task, recipe, **own), want, theta)
    assert torch.equal(flatten(model), theta)  # the caller's model is only a template
    assert float(want.norm(dim=1).max()) > 1e-3


class LastState(nn.Module):
    """An LSTM, which vmap knows within torch.func.grad alone."""

    def __init__(self):
        super().__init__()
        self.layer, self.last = nn.LSTM(3, 4, batch_first=True), nn.Linear(4, 3)

    def forward(self, x):
        return self.last(self.layer(x)[0][:, -1])


@pytest.mark.parametrize("trainer", BY_TORCH)
def test_recurrent_layers_train(trainer):
    torch.manual_seed(1)
    model, task, recipe = LastState(), Classification(), Recipe(2, 8, 0.3)
    theta, data = flatten(model), silo(COUNTS, (5, 3), task)
    want = one_by_one(model, theta, data, task, recipe)
    found = trained(model, theta, data, task, recipe, execution=BY_TORCH[trainer])
    assert_same(found, want, theta)


@pytest.mark.parametrize("trainer", BY_TORCH)
@pytest.mark.parametrize("optimizer", [Sgd(), Adam(eps=0.1)], ids=str)
def test_token_ids_train_through_an_embedding(trainer, optimizer):
    torch.manual_seed(1)
    model, data, task = Tokens(), token_silo(COUNTS), Classification()
    theta, recipe = flatten(model), Recipe(3, 8, 0.3, optimizer)
    got = trained(model, theta, data, task, recipe, execution=BY_TORCH[trainer])
    assert_same(got, one_by_one(model, theta, data, task, recipe), theta)
    assert float(got.norm(dim=1).min()) > 1e-3
