"""The rule that picks the trainer."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from one_by_one import BY_TORCH, Tokens, silo, trained
from torch import nn

from fedpriv.errors import ConfigError
from fedpriv.models.cnn import MnistCnn
from fedpriv.models.tasks import BinaryClassification, Classification, CoxRegression
from fedpriv.training.cost import measure_cost
from fedpriv.training.description import Execution, Recipe
from fedpriv.training.optimizers import LocalOptimizer, Sgd
from fedpriv.training.select import select_trainer
from fedpriv.training.trainers.base import LocalProblem
from fedpriv.training.trainers.compiled.library import library
from fedpriv.training.vectors import flatten

TASK, RECIPE = Classification(), Recipe(1, None, 0.1)


def selected(model, shape, dtype=torch.float32, task=TASK, recipe=RECIPE, alone=False, **others):
    """The trainer's name, and why it was chosen."""
    model = model.double() if dtype == torch.float64 else model
    cost = measure_cost(model, shape, dtype)
    problem = LocalProblem(model, cost, shape, task, recipe, flatten(model), dtype=dtype, **others)
    trainer = select_trainer(problem, alone=alone)
    return trainer.name, trainer.reason


def chain(width=8, outputs=2):
    return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, outputs))


def softsign(width=8):
    return nn.Sequential(nn.Linear(4, width), nn.Softsign(), nn.Linear(width, 2))


class Recurrent(nn.Module):
    def __init__(self, states):
        super().__init__()
        self.cell, self.last = nn.LSTM(8, states, batch_first=True), nn.Linear(states, 3)

    def forward(self, x):
        return self.last(nn.functional.softsign(self.cell(x)[0][:, -1]))


class Jitter(nn.Module):
    def forward(self, x):
        return x + torch.rand_like(x)


class Branching(nn.Linear):
    def forward(self, x):
        return super().forward(x) if x.sum() > 0 else 2 * super().forward(x)


MOMENTUM = Recipe(1, None, 0.1, Sgd(momentum=0.9))
CASES = {
    "a chain": (chain(), {}, "compiled"),
    "binary": (chain(outputs=1), {"task": BinaryClassification()}, "compiled"),
    "survival": (chain(outputs=1), {"task": CoxRegression()}, "compiled"),
    "of words": (Tokens(), {"dtype": torch.int64}, "compiled"),
    "with momentum": (chain(), {"recipe": MOMENTUM}, "batched"),
    "in double precision": (chain(), {"dtype": torch.float64}, "batched"),
    "outside the table": (softsign(), {}, "batched"),
    "outside the table, alone": (softsign(), {"alone": True}, "plain"),
    "more than a cache": (chain(50_000), {}, "plain"),
    "many products": (softsign(40_000), {}, "plain"),
    "small recurrent": (Recurrent(16), {"shape": (20, 8)}, "batched"),
    "large recurrent": (Recurrent(128), {"shape": (20, 8)}, "plain"),
    "remembers batches": (
        nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)),
        {},
        "plain",
    ),
    "draws": (nn.Sequential(softsign(), nn.Dropout(0.5)), {}, "plain"),
    "draws by itself": (nn.Sequential(softsign(), Jitter()), {}, "plain"),
    "branches": (Branching(4, 2), {}, "plain"),
}


@pytest.mark.skipif(library() is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("name", CASES)
def test_the_fastest_trainer_that_can_is_chosen(name):
    model, given, expected = CASES[name]
    assert selected(model, **{"shape": (4,), **given})[0] == expected


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (softsign(), r"layer _?1 \(Softsign\) is not in the table"),
        (Branching(4, 2), "not captured: torch.fx cannot trace its forward pass"),
    ],
)
def test_the_reason_says_what_stands_against_a_faster_one(model, reason):
    with pytest.raises(AssertionError) as error:
        raise AssertionError(selected(model, (4,), alone=True)[1])
    assert error.match(reason)


def test_a_trainer_that_cannot_is_refused():
    with pytest.raises(ConfigError, match="trainer=compiled: auto or plain here"):
        selected(softsign(), (4,), execution=Execution("compiled"))
    with pytest.raises(ConfigError, match="trainer=batched: auto or plain here"):
        selected(Branching(4, 2), (4,), execution=Execution("batched"))


def test_a_trainer_may_be_asked_for():
    for name in BY_TORCH:
        assert selected(chain(), (4,), execution=Execution(name)) == (name, "asked for")


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


def test_an_embedding_multiplies_nothing():
    cost = measure_cost(Tokens(), (4,), torch.int64)
    assert (cost.parameters, cost.products) == (11 * 5 + 6 * 3, 5 * 3)


@dataclass(frozen=True)
class Lars(LocalOptimizer):
    """Steps of one length for each parameter."""

    slots = ()

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


@pytest.mark.parametrize("trainer", BY_TORCH)
@pytest.mark.parametrize("optimizer", [Lars(), ByRows()])
def test_an_optimiser_may_look_at_whole_parameters(optimizer, trainer):
    model = softsign()
    recipe = Recipe(1, None, 0.1, optimizer)
    data = silo([3, 2], (4,), TASK)
    for own in trained(model, flatten(model), data, TASK, recipe, execution=BY_TORCH[trainer]):
        start = 0
        for parameter in model.parameters():
            stop = start + parameter.numel()
            rows = 1 if type(optimizer) is Lars else len(parameter)
            length = np.linalg.norm(own[start:stop].reshape(rows, -1), axis=1)
            assert length == pytest.approx(0.1, rel=1e-5)
            start = stop
