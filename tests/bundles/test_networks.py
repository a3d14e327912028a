"""A network that is saved as plain values computes the same bits once it is loaded."""

import numpy as np
import pytest
import torch
from own_networks import Attention, LastState, Residual
from torch import nn
from torch.nn import functional

from fedpriv.bundles.network import LAYERS, UnsavedError, load_network, run_network, save_network
from fedpriv.training.graph import captured


def layer(**others):
    return nn.TransformerEncoderLayer(6, 2, 9, batch_first=True, **others)


class OfSteps(nn.Module):
    """A body over the steps of a sequence of numbers."""

    def __init__(self, body):
        super().__init__()
        self.embed = nn.Linear(1, 6)
        self.body = body
        self.last = nn.Linear(6, 3)

    def forward(self, x):
        return self.last(self.body(self.embed(x[..., None])).mean(1))


def plain(activation):
    return nn.Sequential(nn.Linear(5, 4), activation, nn.Linear(4, 3))


NETWORKS = {
    **{name: plain(LAYERS[name]()) for name in ("ReLU", "Tanh", "Sigmoid", "Identity", "GELU")},
    "dropout": plain(nn.Dropout(0.5)),
    "own forward pass": Residual(5, 3),
    "lstm": LastState(nn.LSTM(1, 3, batch_first=True), 3, 3),
    "gru": LastState(nn.GRU(1, 3, batch_first=True), 3, 3),
    "encoder layer": Attention(3, 0.1),
    "norms first": OfSteps(layer(norm_first=True, activation="gelu")),
    "own activation": OfSteps(layer(activation=functional.silu)),
    "encoder": OfSteps(nn.TransformerEncoder(layer(), 3)),
    "encoder with a norm": OfSteps(nn.TransformerEncoder(layer(), 2, norm=nn.LayerNorm(6))),
}


def saved(network):
    """Its plain values and tensors."""
    arrays = {name: own.detach().numpy() for name, own in network.named_parameters()}
    return save_network(captured(network, (5,)), arrays, (5,), torch.float32)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_saved_network_computes_the_same(name):
    network = NETWORKS[name].eval()
    x = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)
    with torch.no_grad():
        expected = network(torch.from_numpy(x)).numpy()
    found = run_network(load_network(*saved(network)), x)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


UNSAVED = {
    "a layer": (plain(nn.Softsign()), "the layer Softsign; allowed: Linear, Conv1d, "),
    "an operation": (OfSteps(layer(activation=torch.erf)), "the operation erf; allowed: relu, "),
}


@pytest.mark.parametrize("case", UNSAVED)
def test_what_a_bundle_cannot_hold_is_named_with_what_it_can(case):
    network, line = UNSAVED[case]
    with pytest.raises(UnsavedError, match=f"^{line}"):
        saved(network)
