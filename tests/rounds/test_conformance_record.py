import importlib
import json

import pytest

from fedpriv.errors import FedprivError
from fedpriv.rounds import conformance_record as checked


@pytest.fixture
def world(tmp_path, monkeypatch):
    """The folder of a package with a root class, a base and a method, and a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, text in {
        "rooted": "class Root: ...",
        "based": "from rooted import Root\nclass Base(Root): ...",
        "methodic": "from based import Base\nclass Method(Base): ...\nclass Other(Base): ...",
    }.items():
        (tmp_path / f"{name}.py").write_text(text)
    yield tmp_path
    for name in ("rooted", "based", "methodic"):
        importlib.sys.modules.pop(name, None)


def classes():
    module = importlib.import_module("methodic")
    return module.Method, importlib.import_module("rooted").Root


@pytest.mark.parametrize(
    ("file", "stands"), [("methodic", False), ("based", False), ("rooted", True)]
)
def test_a_record_ends_when_the_source_of_the_class_or_of_its_bases_changes(world, file, stands):
    method, root = classes()
    assert not checked.has_passed(method, root)
    checked.note_passed(method, root, checked.cached())
    assert checked.has_passed(method, root)
    with open(world / f"{file}.py", "a") as source:
        source.write("\n# other\n")
    assert checked.has_passed(method, root) == stands


def test_records_hold_one_class_each_and_add_up(world):
    method, root = classes()
    other = importlib.import_module("methodic").Other
    checked.note_passed(method, root, checked.cached())
    assert not checked.has_passed(other, root)
    checked.note_passed(other, root, checked.cached())
    assert checked.has_passed(other, root)
    assert set(
        json.loads((world / "cache" / "fedpriv" / "conformance_records.json").read_text())
    ) == {
        "methodic.Method",
        "methodic.Other",
    }


@pytest.mark.parametrize("text", ["", "{", "[1]", "null"])
def test_a_damaged_record_vouches_for_nobody(world, text):
    method, root = classes()
    checked.note_passed(method, root, checked.cached())
    checked.cached().write_text(text)
    assert not checked.has_passed(method, root)


def test_a_class_without_a_file_cannot_be_recorded(world):
    _, root = classes()
    scope = {"Root": root, "__name__": "typed_at_a_prompt"}
    exec("class Typed(Root): ...", scope)
    assert not checked.has_passed(scope["Typed"], root)
    with pytest.raises(FedprivError, match=r"typed_at_a_prompt\.Typed has no source file"):
        checked.note_passed(scope["Typed"], root, checked.cached())


def test_the_record_of_our_own_classes_is_there():
    assert json.loads(checked.SHIPPED.read_text())
