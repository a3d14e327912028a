"""Layers whose parameters are not those that their settings promise: C++ read and wrote beside its
arrays, by settings alone."""

import pytest
import torch
from clipped_problems import WAYS, OfSequences, exactly_one_by_one
from one_by_one import assert_same, one_by_one, silo, trained
from torch import nn
from torch.nn.utils import prune

from fedpriv.errors import ConfigError
from fedpriv.models.tasks import Classification
from fedpriv.training.clipped import ClippedGradients
from fedpriv.training.description import Execution, Recipe
from fedpriv.training.layers import compiled_specs
from fedpriv.training.layers.compiled_specs import Place, Pooled
from fedpriv.training.vectors import flatten

N = 9
CLASSES = 3


class OfSteps(OfSequences):
    def __init__(self, body, width):
        super().__init__(body, width, CLASSES)


class OfAttention(OfSteps):
    def states(self, x):
        return self.body(x, x, x, need_weights=False)[0]


class WithUnreadLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.unread, self.last = nn.Linear(5, 6), nn.Linear(6, 6), nn.Linear(6, CLASSES)

    def forward(self, x):
        h = torch.tanh(self.first(x))
        self.unread(h)
        return self.last(h)


class OfStates(OfSteps):
    def states(self, x):
        return self.body(x)[0]


class OfStatesTwice(OfSteps):
    def states(self, x):
        return self.body(self.body(x)[0])[0]


class OfTwoLayers(OfSteps):
    """Two recurrent layers with one parameter in common."""

    def __init__(self, kind, name):
        super().__init__(kind(6, 6, batch_first=True), 6)
        self.second = kind(6, 6, batch_first=True)
        setattr(self.second, name, getattr(self.body, name))

    def states(self, x):
        return self.second(self.body(x)[0])[0]


def pruned(model, name, part=lambda model: model.body):
    """With a weight that was registered anew, behind the layer's other parameters."""
    prune.l1_unstructured(part(model), name, 0.1)
    prune.remove(part(model), name)
    return model


def recurrent(kind):
    return OfStates(kind(6, 5, batch_first=True), 5)


def attentive():
    return OfAttention(nn.MultiheadAttention(6, 2, batch_first=True), 6)


def one_offset():
    model = nn.Sequential(nn.Linear(5, 6), nn.Linear(6, CLASSES))
    model[0].bias = nn.Parameter(torch.randn(1))
    return model


def attention():
    model = OfAttention(nn.MultiheadAttention(6, 2, batch_first=True), 40)
    model.body.out_proj = nn.Linear(6, 40)
    return model


def norm(name):
    model = nn.Sequential(nn.Linear(5, 9), nn.GroupNorm(1, 9), nn.Linear(9, CLASSES))
    setattr(model[1], name, None)
    return model


def words(width, table, body=nn.Identity):
    embedding = nn.Embedding(4, 6)
    embedding.weight = nn.Parameter(torch.randn(table, width))
    return OfSteps(nn.Sequential(embedding, body()), width)


NETWORKS = {
    "attention with a wider output": (attention, (7, 6), 0),
    "norm without offset": (lambda: norm("bias"), (5,), 0),
    "norm without scale": (lambda: norm("weight"), (5,), 0),
    "table with more words": (lambda: words(6, 9), (7,), 9),
    "table with wider vectors": (lambda: words(20, 4), (7,), 4),
    "norm of all steps": (  # each was once normalised by itself
        lambda: OfSteps(nn.Sequential(nn.Linear(6, 9), nn.GroupNorm(1, 7), nn.ReLU()), 9),
        (7, 6),
        0,
    ),
    "norm of one word": (lambda: words(6, 4, lambda: nn.GroupNorm(1, 1)), (1,), 4),
    "layer whose result nobody reads": (WithUnreadLayer, (5,), 0),
    "pruned GRU": (lambda: pruned(recurrent(nn.GRU), "weight_hh_l0"), (7, 6), 0),
    "pruned attention": (lambda: pruned(attentive(), "in_proj_weight"), (7, 6), 0),
    "attention with a pruned output": (
        lambda: pruned(attentive(), "weight", lambda model: model.body.out_proj),
        (7, 6),
        0,
    ),
    "tied: LSTM used twice": (
        lambda: OfStatesTwice(nn.LSTM(6, 6, batch_first=True), 6),
        (7, 6),
        0,
    ),
    "tied: weight of two LSTMs": (lambda: OfTwoLayers(nn.LSTM, "weight_hh_l0"), (7, 6), 0),
    "linear layer with one offset": (one_offset, (5,), 0),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_are_those_of_autograd(name, way):
    torch.manual_seed(1)
    build, shape, known = NETWORKS[name]
    model = build()
    x = torch.randint(0, known, (N, *shape)) if known else torch.randn(N, *shape)
    y = torch.arange(N) % CLASSES
    rows = exactly_one_by_one(model, x, y, Classification())
    norms = rows.norm(dim=1)
    clip = float(norms.median())
    expected = (clip / norms).clamp(max=1) @ rows
    gradients = ClippedGradients(model, Classification(), clip, shape=shape, dtype=x.dtype)
    if way == "by torch":
        gradients.compiled = None
    theta = flatten(model)
    assert (gradients.sum(theta, x, y) - expected).norm() <= 1e-6 * clip * N
    for i in range(N):
        assert gradients.sum(theta, x[i : i + 1], y[i : i + 1]).norm() <= clip * (1 + 1e-6)


@pytest.mark.parametrize("trainer", ["auto", "plain"])
@pytest.mark.parametrize("name", [name for name in NETWORKS if "pruned" in name or "tied" in name])
def test_updates_are_those_of_a_loop(name, trainer):
    torch.manual_seed(1)
    build, shape, _ = NETWORKS[name]
    model, task, recipe = build(), Classification(), Recipe(2, 8, 0.1)
    data, theta = silo([5, 1, 9, 3], shape, task), flatten(model)
    want = one_by_one(model, theta, data, task, recipe)
    got = trained(model, theta, data, task, recipe, execution=Execution(trainer))
    assert_same(got, want, theta)


@pytest.mark.parametrize("name", [name for name in NETWORKS if "tied" in name])
def test_tied_parameters_are_not_compiled(name):
    """C++ has a place of its own for each layer's numbers."""
    model = NETWORKS[name][0]()
    data, theta = silo([5, 1], (7, 6), Classification()), flatten(model)
    with pytest.raises(ConfigError, match=r"^trainer=compiled"):
        trained(
            model, theta, data, Classification(), Recipe(1, 8, 0.1), execution=Execution("compiled")
        )


def test_more_words_than_a_float_counts_are_not_compiled():
    """2^24 + 1 was read as 2^24, and the last word of 2^24 + 4 lay beside the table."""
    table = nn.Embedding(1, 1)
    table.weight = nn.Parameter(torch.zeros(1, 1).expand(2**24 + 1, 1), requires_grad=False)
    table.num_embeddings = 2**24 + 1
    assert compiled_specs.embedding(table, Place(7), Pooled()) is None
    table.num_embeddings = 2**24
    table.weight = nn.Parameter(torch.zeros(1, 1).expand(2**24, 1), requires_grad=False)
    assert compiled_specs.embedding(table, Place(7), Pooled()) is not None
