import importlib
import inspect
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from fedpriv.errors import FedprivError
from fedpriv.rounds import code_digest
from fedpriv.rounds import conformance_record as checked

FILES = {
    "based.py": "class Base: ...",
    "house/__init__.py": "",
    "house/methodic.py": """
from typing import TYPE_CHECKING
from based import Base
if TYPE_CHECKING:
    from house import hints
class Method(Base):
    def train(self):
        from .noise import draw
class Other(Base): ...
""",
    "house/noise.py": "from house import deep\ndef draw(): ...",
    "house/deep.py": '"""How deep."""\nHERE = 1',
    "house/beside.py": "",
    "house/hints.py": "",
}


@pytest.fixture
def world(tmp_path, monkeypatch):
    """The folder of a package with a method, a base outside of it, and a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "house").mkdir()
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    importlib.invalidate_caches()
    yield tmp_path
    for name in [name for name in sys.modules if name.split(".")[0] in ("based", "house")]:
        del sys.modules[name]


def method():
    return importlib.import_module("house.methodic").Method


@pytest.mark.parametrize(
    ("file", "text", "stands"),
    [
        ("house/methodic.py", "\nx = 1\n", False),
        ("based.py", "\nx = 1\n", False),
        ("house/noise.py", "\nx = 1\n", False),
        ("house/deep.py", "\nx = 1\n", False),  # imported by what is imported within a function
        ("house/beside.py", "\nx = 1\n", True),
        ("house/hints.py", "\nx = 1\n", True),
        ("house/deep.py", "\n# a comment\n", True),
        ("house/methodic.py", "\n\n# a comment\n", True),
    ],
)
def test_a_record_ends_when_code_changes_that_the_class_runs(world, file, text, stands):
    assert not checked.has_passed(method())
    checked.note_passed(method(), checked.cached())
    assert checked.has_passed(method())
    with open(world / file, "a") as source:
        source.write(text)
    assert checked.has_passed(method()) == stands


LOADED = {
    "a literal": ("methodic", 'import importlib\nimportlib.import_module("house.beside")'),
    "by keyword": ("methodic", 'import importlib\nimportlib.import_module(name="house.beside")'),
    "one of two": (
        "methodic",
        'import importlib as i\ni.import_module("house.deep" if i else "house.beside")',
    ),
    "a relative name": (
        "methodic",
        'from importlib import import_module as load\nload(".beside", __package__)',
    ),
    "relative to another": (
        "methodic",
        'from importlib import import_module\nimport_module("..beside", "house.deep")',
    ),
    "by the old function": ("methodic", '__import__("house.beside")'),
    "from a list": ("methodic", '__import__("house", fromlist=["beside"])'),
    "when it is asked for": (
        "__init__",
        "import importlib\ndef __getattr__(name):\n"
        '    return importlib.import_module(".beside", __name__)',
    ),
    "with all": ("__init__", '__all__ = ["beside"]'),
    "with more": ("__init__", '__all__ = []\n__all__ += ["beside"]'),
}


@pytest.mark.parametrize("name", LOADED)
def test_a_record_ends_when_a_module_changes_that_is_loaded_by_a_literal_name(world, name):
    file, text = LOADED[name]
    with open(world / f"house/{file}.py", "a") as source:
        source.write(f"\n{text}\n")
    checked.note_passed(method(), checked.cached())
    (world / "house/beside.py").write_text("x = 1\n")
    assert not checked.has_passed(method())


@pytest.mark.parametrize(
    ("link", "file"),
    [
        ("house/later.py", "later.py"),
        ("house/later", "later/__init__.py"),
        ("house/noise/__init__.py", "later.py"),
        ("house/later", "later/deeper.py"),
    ],
)
def test_a_file_that_appears_behind_a_link_ends_the_record(world, link, file):
    """The link's folder does not change."""
    (world / "house/noise").mkdir()
    with open(world / "house/deep.py", "a") as source:
        source.write("\ntry: import house.later.deeper\nexcept ImportError: pass\n")
    elsewhere = world / "elsewhere"
    elsewhere.mkdir()
    target = elsewhere / (file.split("/")[0] if "." not in Path(link).name else file)
    (world / link).symlink_to(target)
    checked.note_passed(method(), checked.cached())
    assert checked.has_passed(method())
    (elsewhere / file).parent.mkdir(exist_ok=True)
    (elsewhere / file).write_text("x = 1\n")
    assert checked.code_digest(method()) == _fresh_digest()
    assert not checked.has_passed(method())


def test_a_docstring_is_no_code(world):
    checked.note_passed(method(), checked.cached())
    path = world / "house/deep.py"
    path.write_text(path.read_text().replace("How deep.", "How very deep."))
    assert checked.has_passed(method())


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("training/noisy_sgd.py", "current -= recipe.lr * drawn", "pass"),
        ("mechanisms/gaussian.py", "own *= deviation", "own *= 0.0"),
        ("runtime/silo.py", "= self._noise(job, query)", "= np.zeros(query.size), None"),
    ],
)
def test_noise_deleted_in_another_file_ends_the_record(tmp_path, monkeypatch, file, old, new):
    """The copy is read, and not run."""
    from fedpriv.algorithms.cdp_fedavg import CdpFedAvg

    copy = shutil.copytree(code_digest.PACKAGE, tmp_path / "fedpriv")
    here = inspect.getfile
    moved = {str(code_digest.PACKAGE): str(copy)}
    [(old_root, new_root)] = moved.items()
    monkeypatch.setattr(inspect, "getfile", lambda cls: here(cls).replace(old_root, new_root))
    monkeypatch.setattr(code_digest, "PACKAGE", copy)
    before = code_digest.code_digest(CdpFedAvg)
    assert before is not None
    path = copy / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    assert code_digest.code_digest(CdpFedAvg) != before


def test_records_hold_one_class_each_and_add_up(world):
    other = importlib.import_module("house.methodic").Other
    checked.note_passed(method(), checked.cached())
    assert not checked.has_passed(other)
    checked.note_passed(other, checked.cached())
    assert checked.has_passed(other)
    assert set(
        json.loads((world / "cache" / "fedpriv" / "conformance_records.json").read_text())
    ) == {
        "house.methodic.Method",
        "house.methodic.Other",
    }


@pytest.mark.parametrize(
    "file",
    [
        "house/noise/__init__.py",  # the package goes before the module
        "house/noise/draw.py",  # what was a function of it
        "house/deep/HERE.py",
        "based/__init__.py",
    ],
)
def test_a_file_that_appears_in_the_place_of_another_ends_the_record(world, file):
    (world / "house/noise.py").write_text("from house.deep import HERE\ndef draw(): ...")
    (world / "house/deep").mkdir()
    (world / "house/deep.py").rename(world / "house/deep/__init__.py")
    checked.note_passed(method(), checked.cached())
    assert checked.has_passed(method())
    (world / file).parent.mkdir(exist_ok=True)
    (world / file).write_text("x = 1")
    fresh = _fresh_digest()
    assert checked.code_digest(method()) == fresh


def test_a_package_beside_a_module_counts_as_python_reads_it(world):
    checked.note_passed(method(), checked.cached())
    (world / "house/noise").mkdir()
    (world / "house/noise/__init__.py").write_text("def draw(): return 0\n")
    assert not checked.has_passed(method())


def test_a_file_of_the_same_length_and_time_ends_the_record(world):
    file = world / "house/noise.py"
    checked.note_passed(method(), checked.cached())
    then = file.stat()
    file.write_text(file.read_text().replace("...", "1+1"))
    os.utime(file, ns=(then.st_atime_ns, then.st_mtime_ns))
    assert file.stat().st_size == then.st_size
    assert not checked.has_passed(method())


def _fresh_digest():
    """The digest as a process computes it that knows none."""
    known, code_digest._KNOWN = code_digest._KNOWN, {}
    try:
        return code_digest.code_digest(method())
    finally:
        code_digest._KNOWN = known


@pytest.mark.parametrize("text", ["", "{", "[1]", "null"])
def test_a_damaged_record_vouches_for_nobody(world, text):
    checked.note_passed(method(), checked.cached())
    checked.cached().write_text(text)
    assert not checked.has_passed(method())


def test_a_class_without_a_file_cannot_be_recorded(world):
    scope = {"Base": method().__mro__[1], "__name__": "typed_at_a_prompt"}
    exec("class Typed(Base): ...", scope)
    assert not checked.has_passed(scope["Typed"])
    with pytest.raises(FedprivError, match=r"typed_at_a_prompt\.Typed has no source file"):
        checked.note_passed(scope["Typed"], checked.cached())


def test_the_record_of_our_own_classes_is_there():
    assert json.loads(checked.SHIPPED.read_text())


def test_a_module_that_many_files_import_is_looked_up_once(monkeypatch):
    from fedpriv.algorithms.cdp_fedavg import CdpFedAvg

    looked_up = []
    find = code_digest._module_file

    def counted(folder, name):
        looked_up.append(name)
        return find(folder, name)

    monkeypatch.setattr(code_digest, "_module_file", counted)
    monkeypatch.setattr(code_digest, "_KNOWN", {})
    assert code_digest.code_digest(CdpFedAvg)
    assert len(looked_up) == len(set(looked_up)) > 100


EVERY_KIND = """
from typing import TYPE_CHECKING
@wraps
async def f(a, /, b: int = 1, *c, d=None, **e) -> None:
    return f"{a!r:>{b}}" + f"x{f'{d:.3g}'}" + "" + b"y".decode() + u"z"
class Base(metaclass=type):
    x: int = ...
match x:
    case {"a": [1, *rest]} if rest: pass
lambda *a: (yield)
[x for x in y if x if y]
try: pass
except* (A, B) as e: raise
"""


def test_the_digest_of_code_is_alike_in_every_version_of_python(tmp_path):
    """The value was the same on 3.11.7, 3.12.1 and 3.13.0; that of `ast.dump` was not."""
    file = tmp_path / "every.py"
    file.write_text(EVERY_KIND)
    found = code_digest._file_digest(*code_digest._version(file))
    assert found == "232c91c12a0829fbbe71c82745eb233070956b58965682f78993b7f8964207db"
    file.write_text(EVERY_KIND.replace("x if y", "x if z"))
    assert code_digest._file_digest(*code_digest._version(file)) != found
