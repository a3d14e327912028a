"""Finding a compiler, building the library, and doing without."""

import logging
import platform
import sys

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from one_by_one import (
    COMPILED,
    assert_same,
    cnn,
    compiled_like_one_by_one,
    mlp,
    one_by_one,
    silo,
    trained,
)
from torch import nn

from fedpriv.errors import ConfigError
from fedpriv.models.tasks import Classification
from fedpriv.training.description import Execution, Recipe
from fedpriv.training.trainers.compiled.library import (
    FLAGS,
    compiler,
    library,
    native_library,
)
from fedpriv.training.vectors import flatten

needs_compiler = pytest.mark.skipif(library() is None, reason="needs a C++ compiler")
SOURCE = {"one.cpp": '#include "other.h"', "other.h": "int one() { return 1; }"}


@pytest.fixture
def afresh(monkeypatch, tmp_path):
    """Whether there is a library is asked again, here and afterwards."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    library.cache_clear()
    yield
    library.cache_clear()


def results(execution=Execution(), images=False):
    torch.manual_seed(1)
    model, shape = (cnn(), (1, 12, 12)) if images else (mlp(hidden=(8, 20)), (6,))
    theta, task, recipe = flatten(model), Classification(), Recipe(2, 8, 0.02)
    data = silo([5, 1, 9, 70], shape, task)
    got = trained(model, theta, data, task, recipe, execution=execution)
    assert_same(got, one_by_one(model, theta, data, task, recipe), theta)
    return got


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("PATH", "", "no C++ compiler found ($CXX, c++, g++, clang++)"),
        ("CXX", "no-such-compiler", "No such file or directory: 'no-such-compiler'"),
        ("CXX", f"{sys.executable} -c raise(SystemExit(3))", "fails: exit status 3"),
        ("XDG_CACHE_HOME", "/dev/null", "Not a directory: '/dev/null/fedpriv/compiled'"),
    ],
)
def test_without_a_compiler_torch_trains_which_is_said_once(
    name, value, reason, afresh, monkeypatch, caplog
):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv(name, value)
    with caplog.at_level(logging.WARNING, "fedpriv"):
        results()
        results()
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith("local training and clipped gradients by torch, not compiled: ")
    assert line.endswith(reason)
    with pytest.raises(ConfigError, match=r"trainer=compiled.*needs a C\+\+ compiler"):
        results(Execution("compiled"))


@needs_compiler
def test_it_is_built_once_for_a_source_flags_and_a_compiler(tmp_path, monkeypatch):
    first = native_library(tmp_path, "one", SOURCE, "one.cpp", ["-shared", "-fPIC"])
    made = first.stat().st_mtime_ns
    assert native_library(tmp_path, "one", SOURCE, "one.cpp", ["-shared", "-fPIC"]) == first
    assert first.stat().st_mtime_ns == made
    assert {path.suffix for path in tmp_path.iterdir()} == {".so", ".lock"}  # nothing half done
    header = SOURCE | {"other.h": "int one() { return 2; }"}
    found = {first, native_library(tmp_path, "one", header, "one.cpp", ["-shared", "-fPIC"])}
    found.add(native_library(tmp_path, "one", SOURCE, "one.cpp", ["-shared", "-fPIC", "-O1"]))
    monkeypatch.setenv("CXX", " ".join([*compiler(), "-DOTHER"]))  # says something else of itself
    found.add(native_library(tmp_path, "one", SOURCE, "one.cpp", ["-shared", "-fPIC"]))
    assert len(found) == 4


@needs_compiler
@pytest.mark.skipif(platform.machine() != "x86_64", reason="flags of x86")
@pytest.mark.parametrize(
    ("flag", "lanes"),
    [
        pytest.param("-mno-avx512f", 8, id="256 bits"),
        pytest.param("-mno-avx", 4, id="128 bits", marks=pytest.mark.slow),
    ],
)
def test_narrower_vectors_train_alike(flag, lanes, afresh, monkeypatch):
    monkeypatch.setenv("CXX", " ".join([*compiler(), flag]))
    fast = tuple(own if own != "-O3" else "-O1" for own in FLAGS)  # to build
    monkeypatch.setattr("fedpriv.training.trainers.compiled.library.FLAGS", fast)
    assert library().lanes() == lanes
    for images in (False, True):
        results(Execution("compiled"), images)


# -- compiled convolutions, with the maxima that are taken of them, against autograd ---------------


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


@settings(max_examples=30)
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


@pytest.mark.parametrize("size", [1, 4, 7, 16, 17, 33, 64, 70])
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
