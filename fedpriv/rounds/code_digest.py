"""A digest of the code that a class runs.

It covers the modules of the class and of its bases, the silo, the mechanisms, and all that these
modules import, directly or not, at the top or within a function. Only fedpriv and the
packages of the class and its bases count. Comments, docstrings, layout and imports for type
checkers do not.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import os
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
ALWAYS = ("runtime/silo.py", "mechanisms/*.py")
"""Files behind every class: a silo runs it, and its query brings a mechanism."""
IGNORED = ("builtins", "abc", "typing")
"""Modules of bases without code of interest."""


def code_digest(cls: type) -> str | None:
    """SHA-256, hexadecimal, of the code that `cls` runs. None for a class without a file, such as
    one typed at a prompt, or with a file that cannot be read."""
    folders = {"fedpriv": PACKAGE.parent}
    files = {_name(file): file for pattern in ALWAYS for file in PACKAGE.glob(pattern)}
    try:
        for base in cls.__mro__:
            if base.__module__ in IGNORED:
                continue
            file = Path(inspect.getfile(base)).resolve()
            files[base.__module__] = file
            top = base.__module__.partition(".")[0]
            folders[top] = file.parents[base.__module__.count(".") + (file.stem == "__init__")]
        return _digest(files, folders)
    except (TypeError, OSError, SyntaxError, IndexError):
        return None


State = tuple[int, ...]

_KNOWN: dict[tuple[object, ...], tuple[str, dict[str, State]]] = {}
"""Digests by the files and folders that they start from, each with the state of all that was read
or looked into. A sweep or a test asks hundreds of times, and looking is ten times as fast as
following every import again."""


def _digest(files: dict[str, Path], folders: dict[str, Path]) -> str:
    """The digest of modules and of all that they import. Raises as `_closure` does."""
    key = (*sorted(files.items()), *sorted(folders.items()))
    if key in _KNOWN:
        digest, states = _KNOWN[key]
        with suppress(OSError):
            if all(_state(path) == then for path, then in states.items()):
                return digest
    closure, looked_into = _closure(files, folders)
    states = {path: _state(path) for path in {*map(str, closure.values()), *looked_into}}
    found = hashlib.sha256()
    for name, file in sorted(closure.items()):
        found.update(f"{name}={_file_digest(file, states[str(file)])}\n".encode())
    _KNOWN[key] = found.hexdigest(), states
    return found.hexdigest()


def _name(file: Path) -> str:
    """The module of one of fedpriv's files."""
    path = file.relative_to(PACKAGE.parent).with_suffix("")
    return ".".join(part for part in path.parts if part != "__init__")


def _closure(files: dict[str, Path], folders: dict[str, Path]) -> tuple[dict[str, Path], set[str]]:
    """The files of modules and of all that they import, by module, and the folders in which a new
    file could change them.

    folders: the folder that contains each package that counts.
    """
    found: dict[str, Path] = {}
    looked_into = set[str]()
    todo = dict(files)
    seen = set(files)
    while todo:
        name, file = todo.popitem()
        found[name] = file
        new = _file_imports(name, *_version(file)) - seen  # many files import the same names
        seen |= new
        for imported in new:
            top = imported.partition(".")[0]
            if top not in folders:
                continue
            looked_into |= _folders_that_decide(folders[top], imported)
            path = _module_file(folders[top], imported)
            if path is not None:
                todo[imported] = path
    return found, looked_into


def _folders_that_decide(folder: Path, name: str) -> set[str]:
    """The folders whose entries decide which file a module is: its own, if there is one, and the
    nearest that exists around it."""
    path = os.path.join(folder, *name.split("."))
    around = os.path.dirname(path)
    while not os.path.isdir(around):
        around = os.path.dirname(around)
    return {around, path} if os.path.isdir(path) else {around}


def _module_file(folder: Path, name: str) -> Path | None:
    """The file of a module below a folder; None for a name that is none, such as a class."""
    path = os.path.join(folder, *name.split("."))  # five times as fast as with Path
    for file in (os.path.join(path, "__init__.py"), f"{path}.py"):  # as Python looks for them
        if os.path.isfile(file):
            return Path(file)
    return None


def _version(file: Path) -> tuple[Path, State]:
    """A file with what tells its versions apart within a process."""
    return file, _state(str(file))


def _state(path: str) -> State:
    """What changes with a file, or with the names in a folder."""
    status = os.stat(path)
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


@cache
def _tree(file: Path, state: State) -> ast.Module:
    """The code of a file, without what does not run."""
    return _Running().visit(ast.parse(file.read_bytes()))  # type: ignore[no-any-return]


@cache
def _file_digest(file: Path, state: State) -> str:
    return hashlib.sha256(_text(_tree(file, state)).encode()).hexdigest()


def _text(node: object) -> str:
    """The code of a tree as text, alike in every version of Python. `ast.dump` is not: versions add
    fields, and differ in which empty ones they write."""
    if isinstance(node, list):
        return f"[{','.join(map(_text, node))}]"
    if isinstance(node, ast.JoinedStr):  # some versions put empty texts between its parts
        return _text([part for part in node.values if _text(part) != "''"])
    if isinstance(node, ast.Constant):
        return repr(node.value)
    if not isinstance(node, ast.AST):
        return repr(node)
    parts = [
        f"{name}={_text(value)}"
        for name, value in ast.iter_fields(node)
        if value is not None and value != []
    ]
    return f"{type(node).__name__}({','.join(parts)})"


@cache
def _file_imports(name: str, file: Path, state: State) -> frozenset[str]:
    """The names that a module's code imports, and the packages they are in."""
    package = name if file.stem == "__init__" else name.rpartition(".")[0]
    found = set[str]()
    for node in ast.walk(_tree(file, state)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")
            above = parents[: len(parents) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            found.add(base)
            found.update(f"{base}.{alias.name}" for alias in node.names)
    return frozenset(part for one in found for part in _with_parents(one))


def _with_parents(name: str) -> Iterator[str]:
    parts = name.split(".")
    return (".".join(parts[: count + 1]) for count in range(len(parts)))


class _Running(ast.NodeTransformer):
    """Removes docstrings, and imports for type checkers."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if text else node

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return node.orelse
        return self.generic_visit(node)
