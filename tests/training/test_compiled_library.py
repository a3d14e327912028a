"""Finding a compiler, building the library, and doing without."""

import logging
import platform
import sys

import pytest
import torch
from one_by_one import assert_same, cnn, mlp, one_by_one, silo, trained

from fedpriv.errors import ConfigError
from fedpriv.models.tasks import Classification
from fedpriv.training.description import Execution, Recipe
from fedpriv.training.trainers.compiled.library import (
    compiler,
    library,
    native_library,
    source_texts,
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
    assert library().lanes() == lanes
    for images in (False, True):
        results(Execution("compiled"), images)


def test_a_compiler_may_be_named(monkeypatch):
    monkeypatch.setenv("CXX", "ccache clang++ -O1")
    assert compiler() == ["ccache", "clang++", "-O1"]


def test_the_source_belongs_to_the_package():
    names = set(source_texts("fedpriv.training.trainers.compiled"))
    assert {"training.cpp", "vectors.h", "losses.h", "layers.h", "users.h", "records.h"} <= names


def test_bits_do_not_hang_on_threads():
    assert torch.equal(results(Execution(workers=3)), results())
