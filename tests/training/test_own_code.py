"""A network's code that a trace does not show, or that changes after the trace."""

import itertools
import logging
import random
import time
from collections import deque
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from one_by_one import one_by_one, silo, trained
from torch import fx, nn
from torch.nn import functional

from fedpriv.errors import ConfigError
from fedpriv.models.tasks import Classification
from fedpriv.training.description import Execution, Recipe
from fedpriv.training.layers.chain import LayerChain
from fedpriv.training.layers.mapping import Unmapped, layer_chain, mapped
from fedpriv.training.own_code import own_code
from fedpriv.training.vectors import flatten

FLAG = False
first = object()
"""Has the name of a layer, and nothing to do with it."""


def added(network, h):
    return network.second(h) + h


def helper(h):
    return torch.tanh(h)


@fx.wrap
def gelu(h):
    return functional.gelu(h) if h.abs().max() < 3 else h


class Base(nn.Module):
    flag = False
    seen = ()

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(6, 5), nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.last(self.middle(self.first(x)))

    def middle(self, h):
        return self.second(h)


class ReadsVariable(Base):
    def middle(self, h):
        return self.second(h) + h if FLAG else self.second(h)


class ReadsAttribute(Base):
    def middle(self, h):
        return self.second(h) + h if self.flag else self.second(h)


class Calls(Base):
    def middle(self, h):
        return helper(self.second(h))


class Drops(Base):
    """Stochastic depth, by torch's generator."""

    def middle(self, h):
        return h if torch.rand(()) < 0.1 else self.second(h)


class DropsByPython(Base):
    often = 0.001

    def middle(self, h):
        return h if random.random() < self.often else self.second(h)


class DropsHalf(DropsByPython):
    often = 0.5


class KnowsTensors(Base):
    def middle(self, h):
        h = self.second(h)
        return h + h if isinstance(h, torch.Tensor) and h.abs().max() > 50 else h


class MatchesTensors(Base):
    def middle(self, h):
        match h:
            case torch.Tensor() if h.abs().max() > 50:
                return self.second(h) + h
        return self.second(h)


class NamesAttribute(Base):
    def middle(self, h):
        return self.second(h) + h if getattr(self, "flag") else self.second(h)  # noqa: B009


class Catches(Base):
    def middle(self, h):
        h = self.second(h)
        try:
            return h + h if h.mean() > 50 else h
        except fx.proxy.TraceError:
            return h


class Wraps(Base):
    def middle(self, h):
        return gelu(self.second(h))


class Remembers(Base):
    seen = []  # noqa: RUF012

    def middle(self, h):
        self.seen.append(1)
        return self.second(h) + h if len(self.seen) > 1000 else self.second(h)


class Overwrites(Base):
    """At the points that are tried, nothing is below zero."""

    def __init__(self):
        super().__init__()
        nn.init.constant_(self.first.bias, 1e6)

    def middle(self, h):
        return torch.relu_(h) + self.second(h) + h


class AddsToRecords(Base):
    """In place, which a trace takes for a sum that nobody reads."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.second, self.last = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        before = x
        x += x
        return self.last(self.second(self.first(before)))


class SqueezesOne(Base):
    def middle(self, h):
        return self.second(h.squeeze())


FALLING = [
    Drops,
    DropsByPython,
    KnowsTensors,
    MatchesTensors,
    Catches,
    Wraps,
    Remembers,
    Overwrites,
    AddsToRecords,
    SqueezesOne,
]


@pytest.mark.parametrize("kind", FALLING)
def test_code_from_which_a_trace_may_hide_falls_back(kind):
    assert isinstance(mapped(kind(), (6,)), Unmapped)


CHANGES = {
    "variable": (ReadsVariable, lambda patch: patch.setattr(f"{__name__}.FLAG", True)),
    "attribute": (ReadsAttribute, lambda patch: patch.setattr(ReadsAttribute, "flag", True)),
    "attribute by name": (
        NamesAttribute,
        lambda patch: patch.setattr(NamesAttribute, "flag", True),
    ),
    "method": (
        Base,
        lambda patch: patch.setattr(Base, "middle", lambda self, h: self.second(h) + h),
    ),
    "function": (Calls, lambda patch: patch.setattr(f"{__name__}.helper", torch.sigmoid)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_code_that_changes_later_is_seen(name, monkeypatch):
    kind, change = CHANGES[name]
    torch.manual_seed(0)
    model, data, task = kind(), silo([3, 9, 1], (6,), Classification()), Classification()
    theta, recipe = flatten(model), Recipe(2, 4, 0.1)
    assert isinstance(mapped(model, (6,)), LayerChain)
    before = trained(model, theta, data, task, recipe)
    change(monkeypatch)
    own = one_by_one(model, theta, data, task, recipe)
    assert not torch.allclose(before, own, atol=1e-3)
    torch.testing.assert_close(trained(model, theta, data, task, recipe), own, atol=1e-6, rtol=1e-5)


def chain():
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


@pytest.mark.parametrize("build", [Base, chain])
@pytest.mark.parametrize(
    ("owner", "name"), [(nn.Sequential, "forward"), (nn.Linear, "__call__"), (nn.Linear, "weight")]
)
def test_a_patched_class_of_torch_falls_back(build, owner, name, monkeypatch):
    model = build()
    assert isinstance(mapped(model, (6,)), LayerChain)
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, property(lambda self: None), raising=False)
        used = owner is nn.Linear or build is chain
        assert isinstance(mapped(model, (6,)), Unmapped) == used
    assert isinstance(mapped(model, (6,)), LayerChain)


class Doubling(nn.Parameter):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            found = function(*args, **(kwargs or {}))
        return 2 * found if function is functional.linear else found


def test_a_parameter_of_another_type_falls_back():
    model = chain()
    model[0]._parameters["weight"] = torch.Tensor._make_subclass(Doubling, torch.ones(5, 6), True)
    assert isinstance(mapped(model, (6,)), Unmapped)


def test_what_python_draws_in_a_pass_does_not_depend_on_other_users():
    model, data, task = DropsHalf(), silo([3, 9, 1], (6,), Classification()), Classification()
    theta, recipe = flatten(model), Recipe(9, 2, 0.1)
    together = trained(model, theta, data, task, recipe)
    for user in range(3):
        assert torch.equal(trained(model, theta, data, task, recipe, [user])[0], together[user])


def test_a_network_that_counts_in_a_variable_is_refused():
    model, data, task = Remembers(), silo([3, 9, 1], (6,), Classification()), Classification()
    with pytest.raises(ConfigError, match="changes no variable outside the network"):
        trained(model, flatten(model), data, task, Recipe(1, None, 0.1))


GENERATOR = torch.Generator().manual_seed(0)
NUMPY = np.random.default_rng(0)
PYTHON = random.Random(0)
BOUND = np.random.default_rng(0).random
ARRAY = np.zeros(1)
TENSOR = torch.zeros(1)
SEEN = deque([0], maxlen=3)
NUMBERS = itertools.count()


def counted(array):
    array[0] += 1
    return float(array[0])


@dataclass
class Passes:
    seen: int = 0


PASSES = Passes()
SPACES = deque([SimpleNamespace(seen=0)])


def counted_by(own):
    own.seen += 1
    return own.seen


def seen_before():
    SEEN.append(SEEN[-1] + 1)
    return SEEN[-1]


class ReadsOutside(nn.Module):
    """Scales by a number from a variable outside the network, which moves on."""

    def __init__(self, draw):
        super().__init__()
        self.first, self.last = nn.Linear(6, 5), nn.Linear(5, 3)
        self.draw = draw

    def forward(self, x):
        return self.last(self.first(x)) * (1 + self.draw())


DRAWS = {
    "torch": lambda: torch.rand((), generator=GENERATOR),
    "numpy": lambda: NUMPY.random(),
    "python": lambda: PYTHON.random(),
    "method": lambda: BOUND(),
    "array": lambda: counted(ARRAY),
    "tensor": lambda: float(TENSOR.add_(1)),
    "deque": seen_before,
    "count": lambda: next(NUMBERS),
    "object": lambda: counted_by(PASSES),
    "object in a deque": lambda: counted_by(SPACES[0]),
}


@pytest.mark.parametrize("trainer", ["auto", "sequential"])
@pytest.mark.parametrize("name", DRAWS)
def test_a_network_that_draws_from_a_variable_is_refused(name, trainer):
    """What a user drew depended on who had trained before."""
    model = ReadsOutside(DRAWS[name])
    data, task = silo([3, 9, 1], (6,), Classification()), Classification()
    with pytest.raises(ConfigError, match="changes no variable outside the network"):
        trained(
            model, flatten(model), data, task, Recipe(1, None, 0.1), execution=Execution(trainer)
        )


BENT = True


def bent_or_not(h):
    return torch.tanh(h) if BENT else torch.relu(h)


def turned_if_many(h):
    return h if isinstance(h, fx.Proxy) or len(h) < 7 else h.flip(0)


class WithFunction(nn.Module):
    """Calls a function that is an attribute of the network, not of its class."""

    def __init__(self, function):
        super().__init__()
        self.first, self.last = nn.Linear(5, 6), nn.Linear(6, 3)
        self.function = function

    def forward(self, x):
        return self.last(self.function(self.first(x)))


def test_what_a_networks_own_function_reads_may_change(monkeypatch):
    """The layers of before were used on."""
    model = WithFunction(bent_or_not)
    kinds = []
    for bent in (True, False):
        monkeypatch.setitem(globals(), "BENT", bent)
        chain = layer_chain(model, (5,))
        kinds.append([type(layer.module) for layer in chain.layers])
    assert nn.Tanh in kinds[0]
    assert nn.ReLU in kinds[1]


def test_a_networks_own_function_may_not_hide_from_a_trace():
    assert layer_chain(WithFunction(turned_if_many), (5,)) is None


def logged(h):
    logging.debug("%s", h.shape)
    return torch.sin(h)


def joined(h):
    return h + torch.from_numpy(np.concatenate([np.ones(4), np.zeros(2)])).float()


@pytest.mark.parametrize("function", [logged, joined])
def test_a_function_may_use_a_large_library(function):
    """Reading all of logging took seconds, and one of numpy's constants cannot be read."""
    model, data, task = (
        WithFunction(function),
        silo([3, 1], (5,), Classification()),
        Classification(),
    )
    theta, recipe = flatten(model), Recipe(2, 2, 0.1)
    want = one_by_one(model, theta, data, task, recipe)
    torch.testing.assert_close(trained(model, theta, data, task, recipe), want)
    start = time.process_time()
    own_code(model)
    assert time.process_time() - start < 0.2


class Tempered(Base):
    """Branches on the weights. A trace sees the parameters themselves."""

    limit = 30.0

    def middle(self, h):
        size = sum(own.detach().abs().sum() for own in self.parameters())
        return self.second(h) + h if size > self.limit else self.second(h)


def test_a_branch_on_all_parameters_falls_back():
    torch.manual_seed(0)
    model, data, task = Tempered(), silo([3, 9, 1], (6,), Classification()), Classification()
    theta, recipe = flatten(model), Recipe(4, 4, 1.0)
    assert theta.abs().sum() < Tempered.limit
    assert isinstance(mapped(model, (6,)), Unmapped)
    own = one_by_one(model, theta, data, task, recipe)
    torch.testing.assert_close(trained(model, theta, data, task, recipe), own, atol=1e-6, rtol=1e-5)
