"""Networks with a forward pass of their own train with torch's numbers, mapped or not."""

import copy
from dataclasses import replace

import pytest
import torch
from drawn_networks import traceable
from one_by_one import assert_same, mlp, one_by_one, silo, token_silo, trained
from torch import nn

from fedpriv.models.regression import ExponentialSurvival, Regression
from fedpriv.models.tasks import BinaryClassification, Classification, CoxRegression
from fedpriv.training.clipped import NO_KEYS
from fedpriv.training.description import Execution, Recipe
from fedpriv.training.layers.chain import LayerChain, Unmapped, mapped
from fedpriv.training.trainers.compiled.clipped_sum import clipped_sum
from fedpriv.training.trainers.compiled.library import library
from fedpriv.training.trainers.compiled.losses import compiled_loss
from fedpriv.training.trainers.compiled.network import CompiledNetwork, compiled_network
from fedpriv.training.vectors import flatten

TASK = Classification()
RECIPE = Recipe(2, 4, 0.1)
COUNTS = [3, 9, 1]


def plain_numbers(model, theta, data):
    return one_by_one(copy.deepcopy(model).train(), theta, data, TASK, RECIPE)


def doubled(data):
    data = copy.copy(data)
    object.__setattr__(data, "x", data.x.double())
    return data


def slow(seed):
    return pytest.param(seed, marks=pytest.mark.slow)


@pytest.mark.parametrize("seed", [*range(8), *(slow(seed) for seed in range(8, 200))])
def test_a_random_network_that_can_be_traced_is_compiled(seed):
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


# -- gradients of the losses against autograd: closed forms, and those of C++ ----------------------


ROWS = 6
TIMES = torch.tensor([3.0, 1.0, 3.0, 2.0, 2.0, 0.5])  # two pairs of equal times
EVENTS = torch.tensor([1.0, 1.0, 1.0, 0.0, 1.0, 0.0])
SURVIVAL = torch.stack([EVENTS, TIMES], dim=-1)
LOSSES = [
    (Classification(), torch.tensor([0, 3, 1, 1, 2, 0]), 4),
    (BinaryClassification(), EVENTS, 1),
    (Regression(), TIMES, 1),
    (ExponentialSurvival(), SURVIVAL, 1),
    (CoxRegression(), SURVIVAL, 1),
    (CoxRegression(), SURVIVAL * torch.tensor([0.0, 1.0]), 1),  # no event
]
NOT_COMPILED = "the loss of Changed is not compiled"
compiled = pytest.mark.skipif(library() is None, reason="needs a C++ compiler")


@pytest.mark.parametrize("scale", [1.0, 50.0])
@pytest.mark.parametrize("lead", [(), (3,)], ids=["one", "batched"])
@pytest.mark.parametrize(("task", "y", "outputs"), LOSSES)
def test_closed_form(task, y, outputs, lead, scale):
    torch.manual_seed(0)
    weight = torch.rand(*lead, ROWS) * (torch.arange(ROWS) < 4)
    y = y.expand(*lead, *y.shape)
    z = (scale * torch.randn(*lead, ROWS, outputs)).requires_grad_()
    task.loss(z, y, weight).sum().backward()
    for mode in (torch.no_grad(), torch.inference_mode()):
        with mode:
            got = task.gradient(z.detach().clone(), y, weight)
            torch.testing.assert_close(got, z.grad, rtol=1e-4, atol=1e-6)
    assert not got[..., 4:, :].any()  # padding


@compiled
@pytest.mark.parametrize("scale", [1.0, 64.0, 4096.0])
@pytest.mark.parametrize(("task", "y", "outputs"), LOSSES)
def test_compiled_training(task, y, outputs, scale):
    """One step of a layer whose weights are the outputs of one record each."""
    torch.manual_seed(0)
    model = nn.Linear(ROWS, outputs, bias=False)
    theta = (16 * torch.randn(outputs * ROWS)).round() / 16
    data = replace(silo([ROWS], (ROWS,), task), x=scale * torch.eye(ROWS), y=y)
    weights = theta.double().view(outputs, ROWS).requires_grad_()
    task.loss(scale * weights.mT, y, torch.full((ROWS,), 1 / ROWS)).backward()
    got = trained(model, theta, data, task, Recipe(1, None, 1.0), execution=Execution("compiled"))
    torch.testing.assert_close(
        -got[0].double(), weights.grad.flatten(), rtol=1e-6, atol=1e-6 * scale
    )


@compiled
@pytest.mark.parametrize("scale", [1.0, 50.0])
@pytest.mark.parametrize(("task", "y", "outputs"), LOSSES)
def test_compiled_sums_of_clipped_gradients(task, y, outputs, scale):
    torch.manual_seed(0)
    model = mlp(outputs=outputs)
    theta, x, gradients = flatten(model), scale * torch.randn(ROWS, 6), []
    for i in range(ROWS):
        model.zero_grad()
        task.loss(model(x[i : i + 1]), y[i : i + 1], torch.ones(1)).backward()
        gradients.append(torch.cat([own.grad.flatten() for own in model.parameters()]).double())
    norms = torch.stack(gradients).norm(dim=1)
    clip = float(norms.median())
    compute = clipped_sum(model, compiled_network(model, (6,)), task)
    total, found = compute(theta, x, y, NO_KEYS, NO_KEYS, clip)
    torch.testing.assert_close(found, norms, rtol=1e-5, atol=1e-7)
    want = sum(own * min(1, clip / max(float(own.norm()), 1e-30)) for own in gradients)
    torch.testing.assert_close(total, want, rtol=1e-4, atol=1e-5 * clip)
    for i in range(ROWS):  # alone a record has the bits that it has in company
        assert compute(theta, x[i : i + 1], y[i : i + 1], NO_KEYS, NO_KEYS, clip)[1] == found[i]
    with pytest.raises(ValueError, match="y has the shape"):
        compute(theta, x, y.unsqueeze(-1), NO_KEYS, NO_KEYS, clip)


def changed(**methods):
    """Regression with methods of its own."""
    return type("Changed", (Regression,), methods)(unit=3.0)


@pytest.mark.parametrize(
    ("task", "outputs", "reason"),
    [
        (changed(metrics=lambda task, outputs, y: {"r2": 0.0}), 1, None),
        (changed(loss=lambda task, *given: 2 * Regression.loss(task, *given)), 1, NOT_COMPILED),
        (changed(gradient=lambda task, *given: Regression.gradient(task, *given)), 1, NOT_COMPILED),
        (Regression(), 2, "the loss of Regression needs one output"),
        (CoxRegression(), 2, "the loss of CoxRegression needs one output"),
        (Classification(), 2, None),
    ],
    ids=["metrics", "loss", "gradient", "two outputs", "two scores", "classes"],
)
def test_a_task_is_known_by_the_methods_that_compute_its_loss(task, outputs, reason):
    found = compiled_loss(task, outputs)
    assert found == Unmapped(reason) if reason else not isinstance(found, Unmapped)
