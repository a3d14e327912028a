"""Networks whose clipped gradients are summed, and each record's gradient by a plain loop."""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import nn

from benchmarks.own_networks import OwnCnn, ResidualMlp
from fedpriv.models.cnn import CifarCnn, MnistCnn
from fedpriv.models.linear import Linear
from fedpriv.models.mlp import Mlp
from fedpriv.models.tasks import BinaryClassification, Classification
from fedpriv.training.clipped import ClippedGradients
from fedpriv.training.trainers.compiled.library import library
from fedpriv.training.vectors import flatten, load

PROBLEMS = {
    "logistic regression": (Linear(), (5,), 1, BinaryClassification()),
    "softmax, no bias": (Linear(bias=False), (5,), 3, Classification()),
    "images": (Linear(), (1, 4, 4), 3, Classification()),
    "mlp": (Mlp([8, 7], False, 0.0), (5,), 3, Classification()),
    "weighted classes": (Linear(), (5,), 2, Classification(factors=(0.5, 3.0))),
    "wider mlp": (Mlp([20], False, 0.0), (6,), 3, Classification()),
    "group norm": (Mlp([8, 7], True, 0.0), (5,), 3, Classification()),
    "cnn": (MnistCnn([2, 3], 6, 0.0), (1, 20, 20), 4, Classification()),
    "colour cnn": (CifarCnn([2, 3], [8, 6]), (3, 18, 18), 4, Classification()),
}


class OfSequences(nn.Module):
    """A class of sequences, or of words where there are some."""

    def __init__(self, body, width, classes=4, words=0):
        super().__init__()
        self.words = nn.Embedding(words, width) if words else nn.Identity()
        self.body, self.last = body, nn.Linear(width, classes)

    def forward(self, x):
        return self.last(self.states(self.words(x)).mean(1))

    def states(self, x):
        return self.body(x)


class OfRecurrence(OfSequences):
    def states(self, x):
        return self.body(x)[0]


class OfWords(OfSequences):
    """Of words with positions."""

    def __init__(self, body, width):
        super().__init__(body, width, words=5)
        self.places = nn.Parameter(torch.randn(7, width))

    def states(self, x):
        return self.body(x + self.places)


@dataclass(frozen=True)
class Own:
    """Stands for a configuration: builds what `make` makes."""

    make: Callable[[], nn.Module]

    def build(self, shape, outputs):
        return self.make()


SEQUENCES = {
    "steps": lambda: OfSequences(nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.LayerNorm(9)), 9),
    "wide steps": lambda: OfSequences(nn.Linear(6, 32, bias=False), 32),
    "lstm": lambda: OfRecurrence(nn.LSTM(6, 5, batch_first=True), 5),
    "lstm, no bias": lambda: OfRecurrence(nn.LSTM(6, 8, batch_first=True, bias=False), 8),
    "gru": lambda: OfRecurrence(nn.GRU(6, 5, batch_first=True), 5),
    "gru, no bias": lambda: OfRecurrence(nn.GRU(6, 16, batch_first=True, bias=False), 16),
    "attention": lambda: OfSequences(
        nn.TransformerEncoderLayer(6, 2, 11, 0.0, batch_first=True), 6
    ),
    "words": lambda: OfWords(nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.Tanh()), 8),
}
PROBLEMS |= {
    name: (Own(make), (7,) if name == "words" else (7, 6), 4, Classification())
    for name, make in SEQUENCES.items()
}
OWN = {
    "residual mlp": (Own(ResidualMlp), (30,), 10, Classification()),
    "own cnn": (Own(OwnCnn), (1, 28, 28), 10, Classification()),
}
FLOATS = [name for name in PROBLEMS if name != "words"]
"""Networks whose records are numbers."""


class Built:
    """A network that is built the same way for any data."""

    def __init__(self, *layers):
        self.layers = layers

    def build(self, shape, outputs):
        return nn.Sequential(*copy.deepcopy(self.layers))


OTHERS = {
    "layer norm": (
        Built(nn.Linear(5, 9), nn.LayerNorm(9), nn.SiLU(), nn.Linear(9, 3)),
        (5,),
        3,
        Classification(),
    ),
    "softplus": (
        Built(nn.Linear(5, 9), nn.Softplus(), nn.Linear(9, 3)),
        (5,),
        3,
        Classification(),
    ),
    "one dimension": (
        Built(nn.Conv1d(2, 3, 3), nn.ELU(), nn.Flatten(), nn.Linear(24, 3)),
        (2, 10),
        3,
        Classification(),
    ),
    "one pixel": (
        Built(nn.Conv2d(4, 4, 1), nn.ReLU(), nn.Conv2d(4, 1, 1), nn.Flatten(), nn.Linear(25, 3)),
        (4, 5, 5),
        3,
        Classification(),
    ),
    "one unit": (
        Built(nn.Linear(5, 1), nn.Tanh(), nn.Linear(1, 64), nn.ReLU(), nn.Linear(64, 3)),
        (5,),
        3,
        Classification(),
    ),
    "flattened steps": (
        Built(nn.Linear(5, 7), nn.Tanh(), nn.Flatten(), nn.Linear(28, 3)),
        (4, 5),
        3,
        Classification(),
    ),
}


def problem(name, n=23):
    config, shape, outputs, task = (PROBLEMS | OWN | OTHERS)[name]
    torch.manual_seed(1)
    model, x = config.build(shape, outputs), torch.randn(n, *shape)
    if name == "words":
        x = torch.randint(0, 5, x.shape)
    y = torch.arange(n) % outputs if outputs > 1 else (torch.arange(n) % 2).float()
    return model, x, y, task


WAYS = "compiled", "by torch"


def clipped_gradients(way, *args, **kwargs):
    """Sums in single precision: with a compiler, and as without one."""
    found = ClippedGradients(*args, **kwargs)
    if way == "by torch":
        found.compiled = None
    elif library() is None:
        pytest.skip("needs a C++ compiler")
    else:
        assert found.compiled is not None
    return found


def one_by_one(model, theta, x, y, task):
    """Each record's gradient (n, d), by plain autograd in a loop."""
    model, rows = copy.deepcopy(model), []
    load(model, theta)
    for own, label in zip(x.split(1), y.split(1)):
        loss = task.loss(model(own), label, torch.ones(1))
        parts = torch.autograd.grad(loss, list(model.parameters()), materialize_grads=True)
        rows.append(torch.cat([part.flatten() for part in parts]))
    return torch.stack(rows).double()


def exactly_one_by_one(model, x, y, task):
    """The same in float64, at the parameters that `model` has."""
    model = copy.deepcopy(model).double()
    x = x.double() if x.is_floating_point() else x
    return one_by_one(model, flatten(model), x, y, task)
