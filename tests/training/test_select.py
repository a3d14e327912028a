"""The rule that picks the trainer."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from one_by_one import Tokens, silo, trained
from torch import nn

from fedpriv.errors import ConfigError
from fedpriv.models.cnn import MnistCnn
from fedpriv.models.l2_projection import L2Projection
from fedpriv.models.tasks import BinaryClassification, Classification, CoxRegression
from fedpriv.training import select
from fedpriv.training.cost import measure_cost
from fedpriv.training.description import Execution, Recipe
from fedpriv.training.layers.mapping import Unmapped
from fedpriv.training.optimizers import (
    Adam,
    LocalOptimizer,
    RmsProp,
    Sgd,
    treats_numbers_alike,
)
from fedpriv.training.select import select_trainers
from fedpriv.training.trainers.base import LocalProblem
from fedpriv.training.trainers.compiled.library import library
from fedpriv.training.vectors import flatten

TASK, RECIPE = Classification(), Recipe(1, None, 0.1)


def selected(model, shape, rows, dtype=torch.float32, task=TASK, recipe=RECIPE, **others):
    model = model.double() if dtype == torch.float64 else model
    cost = measure_cost(model, shape, dtype)
    problem = LocalProblem(model, cost, shape, task, recipe, flatten(model), dtype=dtype, **others)
    selection = select_trainers(problem, np.asarray(rows))
    assert sorted(np.concatenate([users for _, users in selection])) == list(range(len(rows)))
    return {type(trainer).__name__: users.tolist() for trainer, users in selection}


def test_known_chains_are_stacked():
    chain = nn.Sequential(L2Projection(1.0), nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    assert list(selected(chain, (4,), [64] * 3)) == ["Batched"]


def chain(width=8, outputs=2):
    return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, outputs))


@pytest.mark.skipif(library() is None, reason="needs a C++ compiler")
def test_small_chains_are_compiled_where_loss_optimiser_and_features_are():
    def chosen(model, **changes):
        return list(selected(model, (4,), [64] * 3, **changes))

    assert chosen(chain()) == ["Compiled"]
    assert chosen(chain(50_000)) == [
        "Batched"
    ]  # a core's cache no longer holds a user's parameters
    assert chosen(chain(), recipe=Recipe(1, None, 0.1, Sgd(momentum=0.9))) == ["Batched"]
    assert chosen(chain(outputs=1), task=CoxRegression()) == ["Compiled"]
    assert chosen(chain(), dtype=torch.float64) == ["Batched"]
    assert chosen(chain(outputs=1), task=BinaryClassification()) == ["Compiled"]
    assert chosen(chain(outputs=2), task=BinaryClassification()) == [
        "Batched"
    ]  # which has no such loss either


@pytest.mark.parametrize("trainer", ["compiled", "batched"])
def test_a_trainer_that_cannot_is_refused(trainer):
    model = nn.Sequential(nn.Linear(4, 8), nn.Softsign(), nn.Linear(8, 2))
    with pytest.raises(ConfigError, match=f"trainer={trainer}: auto"):
        selected(model, (4,), [64], execution=Execution(trainer))


def test_a_trainer_may_be_asked_for():
    asked = {
        name: selected(chain(), (4,), [64], execution=Execution(name))
        for name in ("batched", "sequential")
    }
    assert asked == {"batched": {"Batched": [0]}, "sequential": {"Sequential": [0]}}


@pytest.mark.parametrize(("key", "value"), [("trainer", "fast"), ("workers", 0)])
def test_impossible_executions_are_refused(key, value):
    with pytest.raises(ConfigError, match=f"{key}={value}"):
        Execution(**{key: value})


def test_others_are_mapped_when_small_and_looped_when_large():
    model = nn.Sequential(nn.Linear(4, 8), nn.Softsign(), nn.Linear(8, 2))
    assert list(selected(model, (4,), [64] * 6)) == ["Vmapped"]
    assert list(selected(model, (4,), [64])) == ["Vmapped"]  # whoever else is there
    assert selected(model, (4,), [10**6, 10**6, *[9] * 6]) == {
        "Vmapped": [2, 3, 4, 5, 6, 7],
        "Sequential": [0, 1],
    }
    wide = nn.Sequential(nn.Linear(500, 500), nn.Softsign(), nn.Linear(500, 2))
    assert list(selected(wide, (500,), [1] * 50)) == ["Sequential"]


def test_layers_that_remember_batches_train_one_user_after_another():
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    assert list(selected(model, (4,), [64] * 20)) == ["Sequential"]


class Jitter(nn.Module):
    def forward(self, x):
        return x + torch.rand_like(x)


@pytest.mark.parametrize(
    "layer",
    [nn.Dropout(0.5), nn.AlphaDropout(0.5), Jitter()],
    ids=lambda layer: type(layer).__name__,
)
def test_networks_that_draw_random_numbers_are_not_mapped(layer):
    model = nn.Sequential(nn.Linear(4, 8), nn.Softsign(), layer, nn.Linear(8, 2))
    assert list(selected(model, (4,), [64] * 20)) == ["Sequential"]


@pytest.mark.parametrize("compiler", [True, False])
def test_embeddings_are_compiled_or_mapped(compiler, monkeypatch):
    if not compiler:
        monkeypatch.setattr(select, "compiled", lambda problem: Unmapped("no compiler"))
    elif library() is None:
        pytest.skip("needs a C++ compiler")
    name = "Compiled" if compiler else "Vmapped"
    for users in (20, 1):
        assert list(selected(Tokens(), (4,), [64] * users, torch.int64)) == [name]


def test_cost_of_the_published_cnn():
    cost = measure_cost(MnistCnn([10, 20], 50, 0.5).build((1, 28, 28), 10), (1, 28, 28))
    assert cost.parameters == 21840
    # 10 x 24 x 24 x 25 + 20 x 8 x 8 x 250 + 320 x 50 + 50 x 10 multiply-adds
    assert cost.products == 144_000 + 320_000 + 16_000 + 500


def test_cost_of_recurrent_layers_and_attention():
    lstm = nn.LSTM(4, 5, num_layers=2, batch_first=True)
    cost = measure_cost(nn.Sequential(lstm), (7, 4))
    assert cost.products == 7 * (20 * 4 + 20 * 5 + 20 * 5 + 20 * 5)
    assert cost.steps == 7
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
    attention = 6 * (24 * 8 + 8 * 8) + 2 * 36 * 8
    cost = measure_cost(layer, (6, 8))
    assert (cost.products, cost.steps) == (attention + 2 * 6 * 8 * 16, 1)
    assert cost.activations > 6 * 8 * 5 + 36 * 2


class Recurrent(nn.Module):
    def __init__(self, states):
        super().__init__()
        self.cell, self.last = nn.LSTM(8, states, batch_first=True), nn.Linear(states, 3)

    def forward(self, x):
        return self.last(nn.functional.softsign(self.cell(x)[0][:, -1]))


@pytest.mark.parametrize(("states", "name"), [(16, "Vmapped"), (128, "Sequential")])
def test_large_recurrent_layers_train_one_user_after_the_other(states, name):
    assert list(selected(Recurrent(states), (20, 8), [16] * 20)) == [name]


def test_an_embedding_multiplies_nothing():
    cost = measure_cost(Tokens(), (4,), torch.int64)
    assert (cost.parameters, cost.products) == (11 * 5 + 6 * 3, 5 * 3)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_number_of_threads_does_not_choose_the_trainer(threads):
    """A stack trains on one thread; several would part its numbers inside a vector."""
    model = nn.Sequential(nn.Linear(6, 129), nn.Softplus(), nn.Linear(129, 3))
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert selected(model, (6,), [9, 9]) == {"Vmapped": [0, 1]}
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True)
class Lars(LocalOptimizer):
    """Steps of one length for each parameter."""

    @property
    def slots(self):
        return ()

    def step(self, parameters, gradients, slots, *, lr):
        for stack, gradient in zip(parameters, gradients):
            rows = gradient.flatten(1)
            length = rows.norm(dim=1, keepdim=True).clamp_min(1e-12)
            stack[: len(gradient)].sub_((rows / length).view_as(gradient), alpha=lr)


@dataclass(frozen=True)
class ByRows(Lars):
    """Steps of one length for each row of a parameter."""

    def step(self, parameters, gradients, slots, *, lr):
        for stack, gradient in zip(parameters, gradients):
            rows = gradient.reshape(*gradient.shape[:2], -1)
            length = rows.norm(dim=2, keepdim=True).clamp_min(1e-12)
            stack[: len(gradient)].sub_((rows / length).view_as(gradient), alpha=lr)


@dataclass(frozen=True)
class Signs(Lars):
    def step(self, parameters, gradients, slots, *, lr):
        for stack, gradient in zip(parameters, gradients):
            stack[: len(gradient)].sub_(gradient.sign(), alpha=lr)


@dataclass(frozen=True)
class Bounded(Lars):
    """Long steps have one length for each parameter."""

    most: float = 50.0

    def step(self, parameters, gradients, slots, *, lr):
        for stack, gradient in zip(parameters, gradients):
            rows = gradient.flatten(1)
            length = rows.norm(dim=1, keepdim=True).clamp_min(self.most)
            stack[: len(gradient)].sub_((rows * self.most / length).view_as(gradient), alpha=lr)


@dataclass(frozen=True)
class Noisy(Lars):
    def step(self, parameters, gradients, slots, *, lr):
        for stack, gradient in zip(parameters, gradients):
            stack[: len(gradient)].sub_(gradient + torch.randn_like(gradient), alpha=lr)


@dataclass(frozen=True)
class WithList(Signs):
    """Cannot be hashed."""

    milestones: list[int] = field(default_factory=list)


@pytest.mark.parametrize("optimizer", [Bounded(), Noisy()])
def test_a_step_is_tried_with_large_gradients_and_draws_nothing(optimizer):
    before = torch.get_rng_state()
    assert not treats_numbers_alike(optimizer)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("optimizer", [Lars(), ByRows()])
def test_users_train_one_by_one_where_an_optimiser_looks_at_whole_parameters(optimizer):
    softsign = nn.Sequential(nn.Linear(4, 8), nn.Softsign(), nn.Linear(8, 2))
    recipe = Recipe(1, None, 0.1, optimizer)
    for model in (chain(), softsign):
        assert selected(model, (4,), [2, 9], recipe=recipe) == {"Sequential": [0, 1]}
    with pytest.raises(ConfigError, match="trainer=batched: auto or sequential here"):
        selected(chain(), (4,), [9], recipe=recipe, execution=Execution("batched"))
    moved = trained(softsign, flatten(softsign), silo([3, 2], (4,), TASK), TASK, recipe)
    for own in moved:
        start = 0
        for parameter in softsign.parameters():
            stop = start + parameter.numel()
            rows = 1 if type(optimizer) is Lars else len(parameter)
            length = np.linalg.norm(own[start:stop].reshape(rows, -1), axis=1)
            assert length == pytest.approx(0.1, rel=1e-5)
            start = stop


@pytest.mark.parametrize(
    "optimizer",
    [
        Sgd(0.9, 0.1),
        RmsProp(),
        RmsProp(momentum=0.5),
        Adam(),
        Adam(weight_decay=0.1),
        Signs(),
        WithList(),
    ],
)
def test_other_optimisers_take_whole_stacks(optimizer):
    assert treats_numbers_alike(optimizer)
    assert list(selected(chain(), (4,), [9], recipe=Recipe(1, None, 0.1, optimizer))) == ["Batched"]


class DrawsForOne(nn.Module):
    """Draws random numbers for single records."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        outputs = self.layer(x).sin()
        return outputs + torch.rand(3) if len(x) == 1 else outputs


def test_a_network_that_draws_for_a_single_record_trains_one_user_after_another():
    model = DrawsForOne()
    assert selected(model, (4,), [8, 8]) == {"Sequential": [0, 1]}
    trained(model, flatten(model), silo([9, 17], (4,), TASK), TASK, Recipe(1, 8, 0.1))
