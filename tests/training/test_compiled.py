"""Local training in C++ against plain autograd."""

import dataclasses
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from one_by_one import (
    COMPILED,
    PROBLEMS,
    as_array,
    blocks,
    cnn,
    compiled_like_one_by_one,
    mlp,
    silo,
    trained,
    wide,
)
from torch import nn

from fedpriv.models.regression import ExponentialSurvival, Regression
from fedpriv.models.tasks import BinaryClassification, Classification, CoxRegression
from fedpriv.training.description import Execution, Recipe, Training
from fedpriv.training.random_words import name_of, random_words, row_counters
from fedpriv.training.trainers.compiled import trainer as compiled_trainer
from fedpriv.training.trainers.compiled.library import library
from fedpriv.training.vectors import flatten
from fedpriv.util.streams import branch

pytestmark = pytest.mark.skipif(library() is None, reason="needs a C++ compiler")
COUNTS = [5, 1, 9, 16, 17, 3, 3, 150, 40, 8]
torch.manual_seed(0)  # a draw can be so ill-conditioned that float32 exceeds every tolerance
FEATURES = {
    "linear": nn.Linear(7, 3),
    "linear without bias": nn.Linear(7, 3, bias=False),
    "two linear": nn.Sequential(nn.Linear(7, 5), nn.Linear(5, 3)),
    "relu first": nn.Sequential(nn.ReLU(), nn.Linear(7, 3)),
    "relu twice": nn.Sequential(nn.Linear(7, 5), nn.ReLU(), nn.ReLU(), nn.Linear(5, 3)),
    "group norm": nn.Sequential(nn.Linear(7, 5), nn.GroupNorm(1, 5), nn.Linear(5, 3)),
    "group norm first": nn.Sequential(nn.GroupNorm(1, 7), nn.Linear(7, 3)),
    "group norm last": nn.Sequential(nn.Linear(7, 3), nn.GroupNorm(1, 3)),
    "plain group norm": nn.Sequential(
        nn.Linear(7, 5), nn.GroupNorm(1, 5, eps=1e-2, affine=False), nn.Linear(5, 3)
    ),
    "nested": nn.Sequential(
        nn.Sequential(nn.Linear(7, 5), nn.Identity()), nn.Sequential(nn.ReLU(), nn.Linear(5, 3))
    ),
}
IMAGES = {
    "flatten": nn.Sequential(nn.Flatten(), nn.ReLU(), nn.Linear(2 * 8 * 10, 3)),
    "convolution": nn.Sequential(nn.Conv2d(2, 3, 3), nn.Flatten(), nn.Linear(3 * 6 * 8, 3)),
    "padding": nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.Flatten(), nn.Linear(3 * 8 * 10, 3)),
    "stride": nn.Sequential(
        nn.Conv2d(2, 3, (2, 3), stride=(2, 3)), nn.Flatten(), nn.Linear(3 * 4 * 3, 3)
    ),
    "without bias": nn.Sequential(
        nn.Conv2d(2, 3, 3, bias=False), nn.Flatten(), nn.Linear(3 * 6 * 8, 3)
    ),
    "pool": nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(3 * 3 * 4, 3)
    ),
    "relu, pool": nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3)
    ),
    "two convolutions": nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 4 * 6, 3)
    ),
    "second with padding, stride, pool": nn.Sequential(
        nn.Conv2d(2, 3, 3),
        nn.Conv2d(3, 4, 3, padding=(1, 2), stride=(1, 2)),
        nn.MaxPool2d((3, 1)),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(4 * 2 * 5, 3),
    ),
    "second without bias": nn.Sequential(
        nn.Conv2d(2, 3, 3),
        nn.MaxPool2d(2),
        nn.Conv2d(3, 4, 2, bias=False),
        nn.MaxPool2d((2, 3)),
        nn.ReLU(),
        nn.Conv2d(4, 3, 1),
        nn.Flatten(),
    ),
    "images as outputs": nn.Sequential(nn.Conv2d(2, 1, 3), nn.MaxPool2d((2, 8)), nn.Flatten()),
}


class Residuals(nn.Module):
    """Sums with the records, with what several layers before computed, of a value with itself, and
    around another sum. The parameters are not in the order of the layers."""

    def __init__(self, p=0.0):
        super().__init__()
        self.last, self.first, self.third = nn.Linear(7, 3), nn.Linear(7, 7), nn.Linear(7, 7)
        self.norm, self.dropout, self.second = nn.GroupNorm(1, 7), nn.Dropout(p), nn.Linear(7, 7)

    def forward(self, x):
        h = torch.relu(x + self.first(x))
        inner = self.norm(self.second(h)) + h
        inner = self.dropout(torch.relu(inner))
        h = h + self.third(inner)
        h = torch.relu(h)
        return self.last(h + h)


class Doubled(nn.Module):
    """A sum before the first layer with parameters, and one as the last layer."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(7, 3), nn.Linear(3, 3)

    def forward(self, x):
        h = self.one(torch.relu(x) + x)
        return h + self.two(torch.relu(h))


FEATURES |= {"residual sums": Residuals(), "sums at the ends": Doubled()}


NETWORKS = {
    "cnn": PROBLEMS["cnn"],
    "mlp": PROBLEMS["mlp"],
    "linear-binary": PROBLEMS["linear-binary"],
    "mlp-binary": (lambda: mlp(outputs=1), (6,), BinaryClassification()),
    "wide": (wide, (19,), Classification()),
    "mlp-weighted": (lambda: mlp(outputs=3), (6,), Classification(factors=(1.0, 4.0, 0.3))),
    "mlp-regression": (lambda: mlp(outputs=1), (6,), Regression()),
    "mlp-survival": (lambda: mlp(outputs=1), (6,), ExponentialSurvival()),
    "mlp-cox": (lambda: mlp(outputs=1), (6,), CoxRegression()),
}


DROPPED = {"dropped-cnn": (lambda: cnn(p=0.5), *PROBLEMS["cnn"][1:])}


def problem(name):
    torch.manual_seed(1)
    build, shape, task = {**NETWORKS, "dropped-cnn": (lambda: cnn(p=0.5), *NETWORKS["cnn"][1:])}[
        name
    ]
    model = build()
    return model, flatten(model), silo(COUNTS, shape, task), task


@pytest.mark.parametrize(
    "recipe",
    [
        Recipe(3, 8, 0.02),
        Recipe(2, 64, 0.1),
        Recipe(2, None, 0.05),
        Recipe(2, 8, 0.02, proximal=0.7),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", NETWORKS)
def test_every_recipe_equals_one_by_one(name, recipe):
    """Full batches and the proximal term with a correction."""
    model, theta, data, task = problem(name)
    corrected = recipe.proximal or recipe.batch_size is None
    correction = torch.linspace(-0.05, 0.1, len(theta)) if corrected else None
    got = compiled_like_one_by_one(model, data, task, recipe, correction, rows=150)
    assert float(got.norm(dim=1).min()) > 1e-3 or isinstance(task, CoxRegression)


@pytest.mark.parametrize(
    "recipe", [Recipe(1, None, 0.1), Recipe(2, 4, 0.1)], ids=["gradient", "steps"]
)
@pytest.mark.parametrize("name", [*FEATURES, *IMAGES])
def test_layer_against_autograd(name, recipe):
    model = FEATURES.get(name) or IMAGES[name]
    shape, task = (7,) if name in FEATURES else (2, 8, 10), Classification()
    compiled_like_one_by_one(model, silo([3, 9, 1, 6], shape, task), task, recipe)


@pytest.mark.parametrize("before", [(), (nn.ReLU(),)], ids=["norm", "norm of ReLU"])
@pytest.mark.parametrize("width", [3, 16, 30, 64, 90, 128, 150])
def test_norms_of_any_width(width, before):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, width), *before, nn.GroupNorm(1, width), nn.Linear(width, 3))
    with torch.no_grad():
        model[-2].weight.uniform_(0.5, 1.5)
        model[-2].bias.normal_()
    data = silo([1, 2, 3, 4, 5, 7, 8, 17, 64], (6,), Classification())
    compiled_like_one_by_one(model, data, Classification(), Recipe(2, 32, 0.05))


def dropping(p, layers=2):
    hidden = [(nn.Linear(12, 12), nn.ReLU(), nn.Dropout(p)) for _ in range(layers - 1)]
    return nn.Sequential(
        nn.Linear(6, 12),
        nn.ReLU(),
        nn.Dropout(p),
        *(x for part in hidden for x in part),
        nn.Linear(12, 3),
    )


DROPPING = {
    "half": lambda: dropping(0.5),
    "other odds": lambda: dropping(0.3),
    "both": lambda: nn.Sequential(*dropping(0.5)[:-1], nn.Dropout(0.2), nn.Linear(12, 3)),
    "records and before the loss": lambda: nn.Sequential(
        nn.Dropout(0.5), nn.Linear(6, 3), nn.Dropout(0.5)
    ),
    "all": lambda: nn.Sequential(nn.Linear(6, 12), nn.Dropout(1.0), nn.Linear(12, 3)),
    "channels": lambda: cnn(p=0.5),
    "channels of other odds": lambda: cnn(p=0.3),
    "more layers than a word has bits": lambda: dropping(0.5, 34),
}


@pytest.mark.parametrize("size", [4, 8, None])
@pytest.mark.parametrize("name", DROPPING)
def test_dropout_is_that_of_its_words(name, size):
    torch.manual_seed(3)
    epochs = 35 if size == 8 and name in ("half", "both") else 3  # more than a word has bits
    model, task, recipe = DROPPING[name](), Classification(), Recipe(epochs, size, 0.02)
    data = silo(COUNTS, (1, 12, 12) if "channels" in name else (6,), task)
    got = compiled_like_one_by_one(model, data, task, recipe, rows=150, words=True)
    if name != "all":
        other = trained(model, flatten(model), data, task, recipe, execution=COMPILED, round=9)
        assert float((got - other).norm(dim=1).min()) > 1e-4


@given(st.integers(0, 2**64 - 1), st.integers(0, 99), st.integers(1, 9), st.integers(1, 40))
def test_words_are_those_of_random_words(key, row, rows, features):
    loaded, keys = library(), np.array([key], dtype=np.uint64)
    width = -(-features // loaded.lanes()) * loaded.lanes()
    got = np.empty((rows, width), dtype=np.int32)
    loaded.draw(key, int(name_of((1, 2, 3))[0]), row, rows, features, got.ctypes.data)
    want = random_words(keys, row_counters([(1, 2, 3)], row, rows), features, torch.device("cpu"))
    np.testing.assert_array_equal(got[:, :features], want[0].numpy())


@given(st.integers(0, 2**64 - 1), st.integers(1, 700))
def test_orders_sort_the_branches_of_a_key(key, n):
    numbers, order, ends = np.empty(n, np.uint64), np.empty(n, np.int64), np.empty(n + 1, np.int64)
    library().order(key, n, numbers.ctypes.data, order.ctypes.data, ends.ctypes.data)
    want = branch(np.array([key], dtype=np.uint64), np.arange(n))
    np.testing.assert_array_equal(numbers, want)
    np.testing.assert_array_equal(order, want.argsort(kind="stable"))


@pytest.mark.parametrize("task", [Classification(), CoxRegression()], ids=["classes", "cox"])
@pytest.mark.parametrize("size", [4, None])
def test_a_users_bits_are_its_own(size, task, monkeypatch):
    """Whoever else trains, in whichever blocks, on any number of threads."""
    torch.manual_seed(3)
    model = mlp(p=0.5, outputs=3 if task == Classification() else 1)
    recipe = Recipe(3, size, 0.1)
    theta, data = flatten(model), silo(COUNTS, (6,), task)
    full = trained(model, theta, data, task, recipe, execution=COMPILED)
    for positions in ([7, 0, 4, 1], [2], [8]):
        if size or 7 in positions:  # else the batch is as large as the largest of those who train
            got = trained(model, theta, data, task, recipe, np.array(positions), execution=COMPILED)
            assert torch.equal(got, full[positions])
    for workers in (2, 3, 50):
        execution = Execution("compiled", workers)
        assert torch.equal(trained(model, theta, data, task, recipe, execution=execution), full)
    monkeypatch.setattr(compiled_trainer, "BLOCK_BYTES", (3 * 4 * len(theta),) * 2)
    own = {"model": model, "data": data, "task": task, "execution": COMPILED}
    assert len(blocks(Training(recipe, as_array(theta)), **own)) == 4
    assert torch.equal(trained(model, theta, data, task, recipe, execution=COMPILED), full)


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        *product(["mlp", "wide", "mlp-binary", "linear-binary"], [np.nan, np.inf, -np.inf, 1e25]),
        *product(["cnn", "dropped-cnn"], [np.nan, np.inf, -np.inf]),
    ],
)
def test_a_user_that_diverges_arrives_as_it_is_and_stays_alone(name, bad):
    model, theta, data, task = problem(name)
    recipe = Recipe(3, 8, 0.1)
    before = trained(model, theta, data, task, recipe, execution=COMPILED)
    data.x[data.starts[4], ..., -1] = bad
    got = trained(model, theta, data, task, recipe, execution=COMPILED)
    others = np.delete(np.arange(len(COUNTS)), 4)
    assert torch.equal(got[others], before[others])
    assert bool(got[4].isfinite().all()) == bool(np.isfinite(bad))


def test_a_class_that_the_network_has_not_is_refused():
    model, theta, data, task = problem("mlp")
    for label in (-1, 3):
        wrong = dataclasses.replace(data, y=torch.full_like(data.y, label))
        with pytest.raises(IndexError, match="3 outputs"):
            trained(model, theta, wrong, task, Recipe(1, 8, 0.1), execution=COMPILED)


def test_denormal_numbers_are_zero_inside_and_back_outside():
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
    data, theta = silo([64, 9], (4,), Classification()), torch.zeros(len(flatten(model)))
    tiny = torch.tensor(1e-40)
    changes = trained(model, theta, data, Classification(), Recipe(2, None, 1e-39))
    assert bool((changes == 0).all())  # they would be denormal
    assert float(tiny * 1) == float(tiny) > 0
    larger = trained(model, theta, data, Classification(), Recipe(2, None, 1e-30))
    assert bool((larger != 0).any())
