"""Compiled convolutions, with the maxima that are taken of them, against autograd."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from one_by_one import COMPILED, cnn, compiled_like_one_by_one, one_by_one, silo, trained
from torch import nn

from fedpriv.models.tasks import Classification
from fedpriv.training.description import Recipe
from fedpriv.training.trainers.compiled.library import library
from fedpriv.training.vectors import flatten

pytestmark = pytest.mark.skipif(library() is None, reason="needs a C++ compiler")
GRADIENT, TASK = Recipe(1, None, 0.5), Classification()


def sides(low, high):
    return st.tuples(st.integers(low, high), st.integers(low, high))


@st.composite
def convolutions(draw, inputs, size):
    """A convolution with the elementwise layers and the maxima that may follow, in any order; and
    what comes out."""
    kernel, stride, zeros, window = (
        draw(sides(1, 5)),
        draw(sides(1, 3)),
        draw(sides(0, 2)),
        draw(sides(1, 3)),
    )
    out = [(n + 2 * z - k) // s + 1 for n, z, k, s in zip(size, zeros, kernel, stride)]
    assume(min(out) >= 1)
    window = tuple(w if n % w == 0 else 1 for w, n in zip(window, out))
    outputs = draw(st.integers(1, 18))
    after = [nn.MaxPool2d(window)] if max(window) > 1 else []
    after = draw(st.permutations(after + [nn.ReLU()] * draw(st.booleans())))
    layers = [nn.Conv2d(inputs, outputs, kernel, stride, zeros, bias=draw(st.booleans())), *after]
    return layers, outputs, tuple(n // w for n, w in zip(out, window))


@st.composite
def networks(draw):
    shape = draw(st.integers(1, 19)), *draw(sides(1, 12))
    layers, channels, size = draw(convolutions(shape[0], shape[1:]))
    if draw(st.booleans()):
        more, channels, size = draw(convolutions(channels, size))
        layers += more
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * size[0] * size[1], 3)), shape


@settings(max_examples=60)
@given(problem=networks(), rows=st.lists(st.integers(1, 70), min_size=1, max_size=2))
def test_any_convolutions(problem, rows):
    """In small whole numbers, so that maxima are those of autograd: the same where several are
    equal."""
    model, shape = problem
    with torch.no_grad():
        for parameter in list(model.parameters())[:-2]:
            parameter.copy_((4 * torch.randn_like(parameter)).round() / 4)
    data = silo(rows, shape, TASK)
    data.x.round_()
    compiled_like_one_by_one(model, data, TASK, GRADIENT, rows=70)


@pytest.mark.parametrize("size", range(1, 71, 3))
def test_batches_of_any_size(size):
    torch.manual_seed(5)
    model, data = cnn(p=0.5), silo([71, size, 4], (1, 12, 12), TASK)
    compiled_like_one_by_one(model, data, TASK, Recipe(2, size, 0.02), rows=71, words=True)


@pytest.mark.parametrize("p", [0.5, 0.3])
def test_channels_are_dropped_before_relu_and_maxima_or_after(p):
    torch.manual_seed(2)
    layers = [
        nn.Conv2d(1, 17, 3),
        nn.ReLU(),
        nn.MaxPool2d((2, 5)),
        nn.Flatten(),
        nn.Linear(17 * 5 * 2, 3),
    ]
    data, recipe = silo([40, 5], (1, 12, 12), TASK), Recipe(3, 16, 0.02)
    for place in (1, 2, 3):
        model = nn.Sequential(*layers[:place], nn.Dropout2d(p), *layers[place:])
        got = compiled_like_one_by_one(model, data, TASK, recipe, rows=71, words=True)
        assert float(got[:, :17].abs().sum()) > 0  # the convolution learns


def test_what_is_not_finite_arrives_though_its_gradient_is_zero():
    """The maximum hides minus infinity, and ReLU passes no gradient; zero times it is no number, as
    in torch."""
    model = nn.Sequential(
        nn.Conv2d(1, 1, 1), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(4, 3)
    )
    theta, data = flatten(model).abs(), silo([2, 2], (1, 4, 4), TASK)
    data.x[0, 0, 1, 2] = -np.inf
    got = trained(model, theta, data, TASK, GRADIENT, execution=COMPILED)
    want = one_by_one(model, theta, data, TASK, GRADIENT)
    assert torch.equal(got.isnan(), want.isnan())
    assert got.isnan().any(dim=1).tolist() == [True, False]
