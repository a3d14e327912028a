"""Finding a compiler, building and keeping the library, and doing without."""

import importlib.resources
import logging
import platform
import shutil
import sys

import pytest
import torch
from one_by_one import assert_same, cnn, mlp, one_by_one, silo, trained

from fedpriv.errors import ConfigError
from fedpriv.models.tasks import Classification
from fedpriv.training.description import Execution, Recipe
from fedpriv.training.trainers.compiled import library as module
from fedpriv.training.trainers.compiled import trainer as compiled_trainer
from fedpriv.training.trainers.compiled.library import CannotCompileError, build, compiler, library
from fedpriv.training.vectors import flatten

needs_compiler = pytest.mark.skipif(library() is None, reason="needs a C++ compiler")
COUNTS = [5, 1, 9, 70]


@pytest.fixture
def afresh():
    """Whether there is a library is asked again, here and afterwards."""
    library.cache_clear()
    yield
    library.cache_clear()


@pytest.fixture
def no_compiler(afresh, monkeypatch, tmp_path):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))


def results(execution, images=False):
    torch.manual_seed(1)
    model, shape, task = (
        (cnn(), (1, 12, 12), Classification())
        if images
        else (mlp(hidden=(8, 20)), (6,), Classification())
    )
    theta, data, recipe = flatten(model), silo(COUNTS, shape, task), Recipe(2, 8, 0.02)
    got = trained(model, theta, data, task, recipe, execution=execution)
    assert_same(got, one_by_one(model, theta, data, task, recipe), theta)
    return got


def test_without_a_compiler_torch_trains_which_is_said_once(no_compiler, caplog):
    with caplog.at_level(logging.INFO, "fedpriv"):
        auto = results(Execution())
        assert torch.equal(results(Execution()), auto)
    assert torch.equal(results(Execution("batched")), auto)
    assert [record.getMessage() for record in caplog.records] == [
        "local training and clipped gradients by torch, not compiled: "
        "no C++ compiler found ($CXX, c++, g++, clang++)"
    ]
    with pytest.raises(ConfigError, match=r"trainer=compiled.*needs a C\+\+ compiler"):
        results(Execution("compiled"))


@pytest.mark.parametrize(
    "command", ["no-such-compiler", f"{sys.executable} -c raise(SystemExit(3))"]
)
def test_a_compiler_that_fails_is_as_good_as_none(command, afresh, monkeypatch, caplog):
    monkeypatch.setenv("CXX", command)
    with caplog.at_level(logging.INFO, "fedpriv"):
        results(Execution())
    assert len(caplog.records) == 1
    assert command.split()[0] in caplog.text


@needs_compiler
def test_it_is_built_once_for_a_source_a_compiler_and_flags(tmp_path, monkeypatch):
    command = compiler()
    monkeypatch.setattr(
        module, "FLAGS", tuple("-O0" if flag == "-O3" else flag for flag in module.FLAGS)
    )  # quick
    first = build(command, tmp_path)
    left = {path.suffix for path in tmp_path.iterdir()}
    assert left == {".so", ".sha256", ".lock"}  # nothing half done
    made = first.stat().st_mtime_ns
    assert build(command, tmp_path) == first
    assert first.stat().st_mtime_ns == made
    assert (
        build([*command, "-DOTHER"], tmp_path) != first
    )  # the compiler says something else of itself


@needs_compiler
def test_another_header_is_another_build(tmp_path, monkeypatch):
    """Else a library of an older version would compute what the new one asks for."""
    package = tmp_path / "package"
    shutil.copytree(module.files(module.__package__) / "source", package / "source")
    monkeypatch.setattr(module, "files", lambda name: package)
    names = set()

    class Folder:
        def __init__(self, folder):
            pass

        def library(self, name, make):
            names.add(name)

    monkeypatch.setattr(module, "BuildFolder", Folder)
    build(compiler(), tmp_path)
    for number, header in enumerate(sorted((package / "source").iterdir()), 2):
        header.write_text(header.read_text() + "\n")
        build(compiler(), tmp_path)
        assert len(names) == number


@needs_compiler
def test_a_cache_that_cannot_be_written_is_no_error(afresh, monkeypatch, tmp_path, caplog):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with caplog.at_level(logging.INFO, "fedpriv"):
        results(Execution())
    assert "clipped gradients by torch" in caplog.text


@needs_compiler
@pytest.mark.skipif(platform.machine() != "x86_64", reason="flags of x86")
@pytest.mark.parametrize(
    "flags",
    [
        pytest.param(["-mno-avx512f"], id="256 bits"),
        pytest.param(["-mno-avx"], id="128 bits", marks=pytest.mark.slow),
    ],
)
def test_narrower_vectors_train_alike(flags, tmp_path, monkeypatch):
    narrow = module._typed(module.ctypes.CDLL(str(build([*compiler(), *flags], tmp_path))))
    assert narrow.lanes() == (8 if "512" in flags[0] else 4)
    monkeypatch.setattr(compiled_trainer, "library", lambda: narrow)
    for images in (False, True):
        results(Execution("compiled"), images)


def test_a_compiler_may_be_named(monkeypatch):
    monkeypatch.setenv("CXX", "ccache clang++ -O1")
    assert compiler() == ["ccache", "clang++", "-O1"]


def test_no_compiler_is_an_error_of_its_own(no_compiler):
    assert shutil.which("c++") is None
    with pytest.raises(CannotCompileError):
        compiler()


def test_the_source_belongs_to_the_package():
    names = {
        entry.name
        for entry in importlib.resources.files(module.__package__).joinpath("source").iterdir()
    }
    assert {
        "training.cpp",
        "vectors.h",
        "products.h",
        "draws.h",
        "network.h",
        "dense.h",
        "images.h",
        "planes.h",
        "patches.h",
        "tiles.h",
    } <= names


def test_bits_do_not_hang_on_threads_of_torch():
    assert torch.equal(results(Execution(workers=3)), results(Execution()))
