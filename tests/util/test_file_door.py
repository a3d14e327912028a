"""Whatever opens a file that may be somebody else's goes through `fedpriv.util.untrusted_files`."""

import ast
from pathlib import Path

import pytest

import fedpriv

ROOT = Path(fedpriv.__file__).parent
DOOR = "util/untrusted_files.py"
OWN = {
    "util/durable_files.py": "files and folders that this process has just written",
    "util/source_commit.py": "source code of the running program",
    "util/locked_lines.py": "journals, which no link leads away: require_regular follows",
    "runs/checkpoint.py": "safetensors reads by the path: require_regular comes first",
    "settings/words.py": "fedpriv's configuration",
    "settings/keys.py": "fedpriv's configuration",
    "projects/files.py": "templates of the package",
    "topology/design.py": "a table of the package",
    "training/trainers/compiled/build_folder.py": "source code of the package",
    "training/trainers/compiled/library.py": "a library that this user has compiled",
    "training/trainers/device/nvrtc.py": "a program that this user has compiled",
    "claims/command.py": "the schema of the package",
    "reports/assessment/contents.py": "source code of the package",
    "data/embedded.py": "a table of scikit-learn",
    "crypto/keys_command.py": "a folder, to lock it",
    "papers/experiments.py": "a file of the package",
    "papers/ledger/entries.py": "files of the package",
    "papers/ledger/results.py": "results of the repository",
}
"""Modules that read files without the door: which files."""
READERS = {
    *("open", "read_text", "read_bytes", "load", "loadtxt", "genfromtxt", "fromfile", "memmap"),
    *("read_csv", "read_table", "read_parquet", "read_json", "read_excel", "read_pickle"),
    *("ZipFile", "safe_open", "load_file", "loadmat"),
}
LIBRARIES = {"np", "numpy", "pd", "pandas", "json", "torch", "pickle", "yaml", "parquet", "tarfile"}
LIBRARIES |= {"gzip", "bz2", "lzma", "zipfile", "os", "io", "codecs", "csv", "shelve", "pq"}


def called(call):
    """(what it is an attribute of, name) of a call; the first is None for a plain name."""
    if isinstance(call.func, ast.Name):
        return None, call.func.id
    if isinstance(call.func, ast.Attribute):
        owner = call.func.value
        return (owner.id if isinstance(owner, ast.Name) else "..."), call.func.attr
    return None, ""


def reads(call):
    """Whether a call reads a file by its path."""
    owner, name = called(call)
    if name not in READERS or any("BytesIO" in ast.dump(one) for one in call.args):
        return False
    if name == "open":
        given = [*call.args, *(word.value for word in call.keywords if word.arg == "mode")]
        modes = [one.value for one in given if isinstance(one, ast.Constant)]
        if any(isinstance(mode, str) and set(mode) & set("wax+") for mode in modes):
            return False
        writes = "WRONLY" in ast.dump(call)
        return owner is None or (owner in LIBRARIES and not writes)
    if name in ("read_text", "read_bytes"):
        return owner is not None
    return owner in LIBRARIES or (owner is None and name in ("ZipFile", "safe_open", "load_file"))


def readers(source):
    """The lines of a module that read a file by its path, outside `with opened(...)`."""
    tree = ast.parse(source)
    inside = set()
    for block in (node for node in ast.walk(tree) if isinstance(node, ast.With)):
        if any("opened" in ast.dump(item.context_expr) for item in block.items):
            inside |= {id(node) for node in ast.walk(block)}
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return [call.lineno for call in calls if id(call) not in inside and reads(call)]


def test_files_of_strangers_are_opened_at_one_door():
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        name = str(path.relative_to(ROOT))
        if name != DOOR and (lines := readers(path.read_text())):
            found[name] = lines
    assert {name: lines for name, lines in found.items() if name not in OWN} == {}
    assert sorted(OWN.keys() - found.keys()) == [], "listed, and reads no file"


@pytest.mark.parametrize(
    ("line", "lines"),
    [
        ("open(path)", [1]),
        ("open(path, 'rb')", [1]),
        ("open(path, mode='r')", [1]),
        ("open(path, 'ab')", []),
        ("os.open(path, os.O_RDONLY)", [1]),
        ("Path(path).read_text()", [1]),
        ("(folder / name).read_bytes()", [1]),
        ("read_bytes(path, 64)", []),
        ("pd.read_csv(path)", [1]),
        ("np.load(path)", [1]),
        ("gzip.open(io.BytesIO(raw))", []),
        ("tarfile.open(path)", [1]),
        ("with opened(path, 64) as file:\n    np.load(file)", []),
        ("parties.open(spec)", []),
        ("parquet.read_table(path)", [1]),
        ("json.load(open(path))", [1, 1]),
    ],
)
def test_readers_are_seen(line, lines):
    assert readers(line) == lines
