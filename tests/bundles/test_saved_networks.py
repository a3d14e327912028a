"""A captured network as plain values computes the same, and without what it was captured from."""

import json

import pytest
import torch
from own_networks import Gru, OwnForward, Transformer
from torch import nn
from torch.nn import functional

from fedpriv.bundles.network import LAYERS, UnsavedError, load_network, save_network
from fedpriv.training.graph import Uncaptured, captured, inputs

SHAPE = (6,)


class Last(nn.Module):
    """A layer that reads a record's features one by one, and a linear layer on the last."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.linear = nn.Linear(3, 2)

    def forward(self, x):
        read = self.layer(x.unsqueeze(2))
        states = read[0] if isinstance(self.layer, nn.RNNBase) else read
        return self.linear(states[:, -1])


def encoder(**others):
    return nn.TransformerEncoderLayer(3, 1, 5, batch_first=True, **others)


def steps(layer):
    return Last(nn.Sequential(nn.Linear(1, 3), layer))


def activated(name):
    return lambda: Last(nn.Sequential(nn.Linear(1, 3), LAYERS[name]()))


NETWORKS = {
    **{name: activated(name) for name in ("ReLU", "Tanh", "Sigmoid", "Identity", "GELU")},
    "gru": lambda: Last(nn.GRU(1, 3, batch_first=True)),
    "lstm without biases": lambda: Last(nn.LSTM(1, 3, bias=False, batch_first=True)),
    "linear without biases": lambda: Last(nn.Linear(1, 3, bias=False)),
    "no chain of layers": lambda: OwnForward().build(SHAPE, 2),
    "an ellipsis": lambda: Gru().build(SHAPE, 2),
    "encoder layer": lambda: Transformer(dropout=0.1).build(SHAPE, 2),
    "norms first": lambda: steps(encoder(norm_first=True, activation="gelu")),
    "own activation": lambda: steps(encoder(activation=functional.silu)),
    "encoder": lambda: steps(nn.TransformerEncoder(encoder(), 3, enable_nested_tensor=False)),
    "encoder with a norm": lambda: steps(
        nn.TransformerEncoder(encoder(), 2, norm=nn.LayerNorm(3), enable_nested_tensor=False)
    ),
}
UNSAVED = {
    "a layer": (
        lambda: Last(nn.RNN(1, 3, batch_first=True)),
        "the layer RNN; allowed: Linear, Conv1d, ",
    ),
    "an operation": (
        lambda: steps(encoder(activation=torch.erf)),
        "the operation erf; allowed: relu, tanh, ",
    ),
}
"""Each network, and the beginning of what is said of it."""


def saved(network):
    graph = captured(network, SHAPE)
    assert not isinstance(graph, Uncaptured)
    arrays = {name: own.detach().numpy() for name, own in network.named_parameters()}
    return save_network(graph, arrays, SHAPE, torch.float32)


@pytest.mark.parametrize("case", NETWORKS)
def test_it_is_made_again_from_text(case):
    network = NETWORKS[case]().eval()
    tree, tensors = saved(network)
    again = load_network(json.loads(json.dumps(tree)), tensors)
    for x in inputs(network, SHAPE, torch.float32):
        assert torch.equal(again(x), network(x))


@pytest.mark.parametrize("case", UNSAVED)
def test_what_the_table_lacks_is_named(case):
    build, what = UNSAVED[case]
    with pytest.raises(UnsavedError, match=f"^{what}"):
        saved(build())
