"""Networks one step outside the supported layers: autograd trains them with equal numbers, or one
line refuses them."""

import copy
from threading import Lock

import numpy as np
import pytest
import torch
from one_by_one import COMPILED, assert_same, one_by_one, silo, trained
from torch import nn
from torch.nn.utils import parametrizations

from fedpriv.errors import ConfigError
from fedpriv.models.tasks import Classification
from fedpriv.training import network_checks
from fedpriv.training.clipped import ClippedGradients
from fedpriv.training.description import Execution, Recipe
from fedpriv.training.evaluate import Evaluator, Labelled
from fedpriv.training.layers.chain import Unmapped, mapped
from fedpriv.training.vectors import flatten

TASK = Classification()
COUNTS = [3, 9, 1, 4, 2, 2, 5, 1, 1, 6, 2, 3]
CLIP = 0.3


class TwiceLinear(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


class TwiceSequential(nn.Sequential):
    def forward(self, x):
        return 2 * super().forward(x)


class AlwaysEvaluating(nn.Sequential):
    def train(self, mode=True):
        return super().train(False)


class TwiceInTraining(nn.Module):
    def forward(self, x):
        return 2 * x if self.training else x


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, x):
        return self.scale * x


class ScaledByParameter(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        return self.scale * x


class Counting(Scaled):
    def forward(self, x):
        self.scale.add_(1.0)
        return self.scale * x


def plain(*between):
    return nn.Sequential(nn.Linear(6, 5), *between, nn.ReLU(), nn.Linear(5, 3))


def changed(change):
    """The plain network after `change`, which may give another."""
    torch.manual_seed(0)
    model = plain()
    other = change(model)
    return other if isinstance(other, nn.Sequential) else model


def tied(model):
    last = nn.Linear(3, 3)
    last.weight = nn.Parameter(torch.randn(3, 3))
    other = nn.Linear(3, 3)
    other.weight = last.weight
    return nn.Sequential(*model, other, nn.ReLU(), last)


def shared(model):
    layer = nn.Linear(5, 5)
    return nn.Sequential(model[0], layer, nn.ReLU(), layer, model[2])


def pass_gradients_twice(layer, read, written):
    return (2 * read[0],)


BY_AUTOGRAD = {
    "forward hook": lambda m: m[0].register_forward_hook(lambda layer, x, y: 2 * y),
    "forward pre-hook": lambda m: m[2].register_forward_pre_hook(lambda layer, x: (2 * x[0],)),
    "hook of the container": lambda m: m.register_forward_hook(lambda layer, x, y: 2 * y),
    "weight norm": lambda m: parametrizations.weight_norm(m[0]),
    "orthogonal weights": lambda m: parametrizations.orthogonal(m[0]),
    "tied weights": tied,
    "a layer called twice": shared,
    "subclass of Linear": lambda m: nn.Sequential(TwiceLinear(6, 5), nn.ReLU(), nn.Linear(5, 3)),
    "subclass of Sequential": lambda m: TwiceSequential(*m),
    "subclass of Sequential inside": lambda m: plain(TwiceSequential(nn.ReLU())),
    "another mode in training": lambda m: plain(TwiceInTraining()),
    "a mode of its own": lambda m: plain(AlwaysEvaluating(nn.Dropout(0.5), nn.Tanh())),
    "buffer": lambda m: plain(Scaled()),
    "an unused parameter of Linear": lambda m: m[0].register_parameter(
        "more", nn.Parameter(torch.ones(2))
    ),
    "an unused parameter of ReLU": lambda m: m[1].register_parameter(
        "more", nn.Parameter(torch.ones(2))
    ),
    "an unused layer inside Linear": lambda m: m[0].add_module("more", nn.Linear(2, 2)),
    "a forward pass of its own": lambda m: setattr(m[1], "forward", lambda x: 2 * x),
    "a scalar parameter": lambda m: plain(ScaledByParameter()),
    "a layer outside the table": lambda m: plain(nn.PReLU()),
}


class _Doubled(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, g):
        return 2 * g


class Between(nn.Module):
    """A perceptron whose second layer is called by a function."""

    def __init__(self, between):
        super().__init__()
        self.between = between
        self.first, self.second, self.last = nn.Linear(6, 5), nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.last(self.between(self.second, torch.tanh(self.first(x))))


def doubled_backwards(layer, h):
    h = layer(h)
    if h.requires_grad:
        h.register_hook(lambda g: 2 * g)
    return h


BETWEEN = {
    "branch on the number of records": lambda layer, h: layer(h) if len(h) > 2 else h,
    "detach": lambda layer, h: layer(h.detach()) + h,
    "custom backward": lambda layer, h: layer(_Doubled.apply(h)),
    "hook in the pass": doubled_backwards,
    "unused parameters": lambda layer, h: h,
    "mixes records": lambda layer, h: layer(h - h.mean(0)),
    "turns records around": lambda layer, h: layer(h).flip(0),
    "scaled": lambda layer, h: 2 * layer(h),
    "product of two": lambda layer, h: h * layer(h),
    "adds a number": lambda layer, h: layer(h) + 1,
    "weights used by name": lambda layer, h: nn.functional.linear(h, layer.weight),
    "sorts": lambda layer, h: torch.sort(layer(h), 1)[0],
    "one value of all": lambda layer, h: layer(h) + h.mean(),
    "takes a part": lambda layer, h: layer(h)[:, :1] + h,
}
"""Ways to call a layer that no trace shows, or no table describes."""


@pytest.mark.parametrize("name", [*BY_AUTOGRAD, *BETWEEN])
def test_a_network_outside_the_table_is_trained_by_autograd(name):
    own = BETWEEN.get(name)
    model = changed(lambda m: nn.Sequential(Between(own)) if own else BY_AUTOGRAD[name](m))
    assert isinstance(mapped(model, (6,)), Unmapped)
    data, theta = silo(COUNTS, (6,), TASK), flatten(model)
    for recipe in (Recipe(1, None, 0.1), Recipe(2, 4, 0.1)):
        expected = by_plain_autograd(model, theta, data, recipe)
        found = trained(model, theta, data, TASK, recipe)
        assert_same(found, expected, theta)
    with pytest.raises(ConfigError, match="trainer=compiled: "):
        trained(model, theta, data, TASK, Recipe(1, None, 0.1), execution=COMPILED)


@pytest.mark.parametrize("name", ["a supported network", *BY_AUTOGRAD])
def test_clipped_gradients_and_scores_are_those_of_autograd(name):
    model = changed(BY_AUTOGRAD.get(name, lambda m: None))
    data, theta = silo(COUNTS, (6,), TASK), flatten(model)
    total = ClippedGradients(model, TASK, CLIP, shape=(6,)).sum(theta, data.x, data.y)
    expected = torch.zeros(len(theta), dtype=torch.float64)
    own = copy.deepcopy(model).train()
    for x, y in zip(data.x.split(1), data.y.split(1)):
        loss = TASK.loss(own(x), y, torch.ones(1))
        parts = torch.autograd.grad(loss, list(own.parameters()), materialize_grads=True)
        gradient = torch.cat([part.flatten() for part in parts]).double()
        expected += gradient * min(1.0, CLIP / float(gradient.norm()))
    torch.testing.assert_close(total, expected, rtol=1e-5, atol=1e-6)
    score, _ = Evaluator(model, TASK).evaluate(theta, Labelled(data.x, data.y))
    outputs = own.eval()(data.x)
    weight = torch.full((len(data.x),), 1 / len(data.x))
    assert score == pytest.approx(float(TASK.loss(outputs, data.y, weight)), rel=1e-6)


def by_plain_autograd(model, theta, data, recipe):
    return one_by_one(copy.deepcopy(model).train(), theta, data, TASK, recipe)


@pytest.mark.parametrize(
    "register", ["register_full_backward_hook", "register_full_backward_pre_hook"]
)
def test_backward_hooks_act(register):
    model = plain()
    hook = pass_gradients_twice if register.endswith("d_hook") else lambda layer, g: (2 * g[0],)
    getattr(model[2], register)(hook)
    data, theta, recipe = silo(COUNTS, (6,), TASK), flatten(model), Recipe(2, 4, 0.1)
    expected = by_plain_autograd(model, theta, data, recipe)
    assert_same(trained(model, theta, data, TASK, recipe), expected, theta)


@pytest.mark.parametrize("layer", [Counting(), parametrizations.spectral_norm(nn.Linear(5, 5))])
def test_buffers_that_change_are_a_users_own(layer):
    model = plain(layer)
    data, theta, recipe = silo(COUNTS, (6,), TASK), flatten(model), Recipe(2, 4, 0.1)
    before = copy.deepcopy(model.state_dict())
    together = trained(model, theta, data, TASK, recipe)
    for user in range(len(COUNTS)):
        alone = trained(model, theta, data, TASK, recipe, chosen=[user])
        assert torch.equal(alone[0], together[user])
    assert all(torch.equal(before[name], own) for name, own in model.state_dict().items())


def with_attribute(value):
    return lambda m: setattr(m, "own", value(m))


REFUSED = {
    "module": (with_attribute(lambda m: np), r"copy.deepcopy copies \(cannot pickle 'module'"),
    "lock": (with_attribute(lambda m: Lock()), r"copy.deepcopy copies \(cannot pickle"),
    "view of a weight": (
        with_attribute(lambda m: m[0].weight.t()),
        r"copy.deepcopy copies \(Only Tensors created",
    ),
    "frozen": (lambda m: m[0].requires_grad_(False), r"trainable parameters only \(0.weight"),
    "no outputs": (lambda m: m.append(nn.Linear(3, 0)), r"no empty parameters \(3.weight"),
    "half": (lambda m: m.half(), "0.weight has torch.float16"),
    "bfloat16": (lambda m: m.bfloat16(), "0.weight has torch.bfloat16"),
    "complex": (lambda m: m[0].to(torch.complex64), "0.weight has torch.complex64"),
    "mixed": (lambda m: m[2].double(), "2.weight has torch.float64"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_network_that_no_trainer_supports_is_refused_in_one_line(name):
    change, message = REFUSED[name]
    model = changed(change)
    data = silo(COUNTS, (6,), TASK)
    theta = torch.zeros(sum(own.numel() for own in model.parameters()))
    for trainer in ("auto", "batched", "compiled", "plain"):
        with pytest.raises(ConfigError, match=f"^model=.*{message}") as error:
            trained(model, theta, data, TASK, Recipe(1, None, 0.1), execution=Execution(trainer))
        assert "\n" not in str(error.value)
    with pytest.raises(ConfigError, match=f"^model=.*{message}"):
        ClippedGradients(model, TASK, CLIP, shape=(6,))


def test_users_train_in_float32_and_records_also_in_float64():
    model = plain().double()
    data, theta = silo(COUNTS, (6,), TASK), flatten(model)
    with pytest.raises(ConfigError, match=r"one type, float32 \(0.weight has torch.float64\)"):
        trained(model, theta, data, TASK, Recipe(1, None, 0.1))
    double = ClippedGradients(model, TASK, CLIP, shape=(6,), dtype=torch.float64)
    total = double.sum(theta, data.x.double(), data.y)
    single = ClippedGradients(plain_as(model), TASK, CLIP, shape=(6,))
    expected = single.sum(theta.float(), data.x, data.y)
    torch.testing.assert_close(total, expected, rtol=1e-5, atol=1e-6)


def plain_as(model):
    return copy.deepcopy(model).float()


@pytest.mark.parametrize("inside", [False, True])
def test_torchscript_is_refused(inside):
    model = torch.jit.script(plain())
    model = nn.Sequential(model) if inside else model
    data, theta = silo(COUNTS, (6,), TASK), flatten(model)
    for trainer in ("auto", "plain"):
        with pytest.raises(ConfigError, match="networks in Python, not in TorchScript"):
            trained(model, theta, data, TASK, Recipe(1, None, 0.1), execution=Execution(trainer))
    with pytest.raises(ConfigError, match="networks in Python, not in TorchScript"):
        network_checks.refuse_shared_state(model)


def test_a_lazy_layer_without_weights_is_refused():
    model = nn.Sequential(nn.LazyLinear(5), nn.Linear(5, 3))
    with pytest.raises(ConfigError, match=r"model=Sequential: no lazy parameters .*\(0.weight\)"):
        network_checks.check_parameters(model)
