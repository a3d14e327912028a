"""Networks with a forward pass of their own train with torch's numbers, mapped or not."""

import copy

import pytest
import torch
from drawn_networks import REMEMBERS, traceable, untraceable
from one_by_one import assert_same, one_by_one, silo, token_silo, trained
from torch import nn

from fedpriv.models.tasks import Classification
from fedpriv.training.description import Recipe
from fedpriv.training.layers.chain import LayerChain
from fedpriv.training.layers.mapping import Unmapped, mapped
from fedpriv.training.trainers.compiled.library import library
from fedpriv.training.trainers.compiled.network import CompiledNetwork, compiled_network
from fedpriv.training.vectors import flatten

TASK = Classification()
RECIPE = Recipe(2, 4, 0.1)
COUNTS = [3, 9, 1]


def plain_numbers(model, theta, data):
    return one_by_one(copy.deepcopy(model).train(), theta, data, TASK, RECIPE)


def check_traceable(seed):
    model, shape = traceable(seed)
    chain = mapped(model, shape)
    assert isinstance(chain, LayerChain), chain.reason
    x = torch.randn(7, *shape, dtype=torch.float64)
    twin = copy.deepcopy(model).double()
    torch.testing.assert_close(chain.run(x.float()), model(x.float()))
    if library() is not None:
        found = compiled_network(model, shape)
        assert isinstance(found, CompiledNetwork), found.reason
    data, theta = silo(COUNTS, shape, TASK, seed), flatten(model)
    found = trained(model, theta, data, TASK, RECIPE)
    # The rounding of torch itself in float32 may exceed the bound: both are compared with float64.
    exact = plain_numbers(twin, theta.double(), doubled(data)).float()
    own = (plain_numbers(model, theta, data) - exact).norm()
    assert (found - exact).norm() <= 1e-5 * exact.norm() + 2 * own, seed


def doubled(data):
    data = copy.copy(data)
    object.__setattr__(data, "x", data.x.double())
    return data


def check_untraceable(seed):
    model, kind = untraceable(seed)
    found = mapped(model, (6,))
    assert isinstance(found, Unmapped), kind
    data, theta = silo(COUNTS, (6,), TASK, seed), flatten(model)
    if kind in REMEMBERS:
        return
    assert_same(trained(model, theta, data, TASK, RECIPE), plain_numbers(model, theta, data), theta)


@pytest.mark.parametrize("seed", range(16))
def test_a_random_network_that_can_be_traced_is_compiled(seed):
    check_traceable(seed)


@pytest.mark.slow
def test_two_hundred_networks_that_can_be_traced_are_compiled():
    for seed in range(200):
        check_traceable(seed)


@pytest.mark.parametrize("seed", range(24))
def test_a_random_network_that_cannot_be_traced_falls_back(seed):
    check_untraceable(seed)


@pytest.mark.slow
def test_fifty_networks_that_cannot_be_traced_fall_back():
    for seed in range(24, 48):
        check_untraceable(seed)


class OfWords(nn.Module):
    """A transformer's layer, whose norms come first or last."""

    def __init__(self, first):
        super().__init__()
        self.words = nn.Embedding(11, 24)
        self.places = nn.Parameter(torch.randn(1, 4, 24))
        function = "gelu" if first else "relu"
        self.layer = nn.TransformerEncoderLayer(
            24, 3, 40, 0.0, function, batch_first=True, norm_first=first
        )
        self.last = nn.Linear(24, 3)

    def forward(self, x):
        return self.last(self.layer(self.words(x) + self.places).mean(1))


class OfSequences(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(10, 2, batch_first=True)
        self.last = nn.Linear(10, 3)

    def forward(self, x):
        h, _ = self.attention(x, x, x, need_weights=False)
        return self.last((x + h)[:, -1])


@pytest.mark.skipif(library() is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("recipe", [Recipe(2, None, 0.1), Recipe(2, 4, 0.1, proximal=0.1)], ids=str)
@pytest.mark.parametrize("kind", ["norms first", "norms last", "no words"])
def test_attention_is_compiled(kind, recipe):
    torch.manual_seed(2)
    if kind == "no words":
        model, data = OfSequences(), silo([5, 70, 2], (7, 10), TASK)
    else:
        model, data = OfWords(kind == "norms first"), token_silo([5, 70, 2])
    found = compiled_network(model, tuple(data.x.shape[1:]), data.x.dtype)
    assert isinstance(found, CompiledNetwork), found.reason
    theta = flatten(model)
    own = one_by_one(copy.deepcopy(model), theta, data, TASK, recipe)
    assert_same(trained(model, theta, data, TASK, recipe), own, theta)


@pytest.mark.skipif(library() is None, reason="needs a C++ compiler")
def test_a_word_that_the_network_does_not_know_is_refused():
    model, data = OfWords(first=True), token_silo([5, 2])
    data.x[3, 1] = 11
    with pytest.raises(IndexError, match="words from 0 to 11 for a network of 11"):
        trained(model, flatten(model), data, TASK, RECIPE)
