"""A digest of the code that a class runs.

It covers the modules of the class and of its bases, the silo, the mechanisms, and all that these
modules import, directly or not, at the top or within a function, by an import statement, by
`import_module` or `__import__` with a literal name, or as a literal name of a package's `__all__`.
Only fedpriv and the packages of the class and its bases count. Comments, docstrings, layout and
imports for type checkers do not.

Not covered, since reading the code does not show it: a name that is computed, a loader that is
assigned to another name, a file that is loaded by its path or run as text, data and compiled
libraries, and what `sys.path` or `sys.modules` are changed to. Nor is what fedpriv's own `__init__`
loads for its callers.
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


BLOCKS = "body", "handlers", "cases", "orelse", "finalbody"
"""Fields of a syntax tree that hold statements, or parts with statements."""
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
        if all(_state_now(path) == then for path, then in states.items()):
            return digest
    closure, looked_into = _closure(files, folders)
    states = {path: _state_now(path) for path in {*map(str, closure.values()), *looked_into}}
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
    """The files of modules and of all that they import, by module, and the folders and links in
    which a new file could change them.

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
    nearest that exists around it. Links to nothing decide as well: their folder does not change
    when what they point to appears."""
    path = os.path.join(folder, *name.split("."))
    asked = [path, f"{path}.py", os.path.join(path, "__init__.py")]
    around = os.path.dirname(path)
    while not os.path.isdir(around):
        asked.append(around)
        around = os.path.dirname(around)
    decisive = {around, path} if os.path.isdir(path) else {around}
    return decisive | {each for each in asked if os.path.islink(each) and not os.path.exists(each)}


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


def _state_now(path: str) -> State:
    """As `_state`; empty for what does not exist."""
    with suppress(OSError):
        return _state(path)
    return ()


@cache
def _source(file: Path, state: State) -> bytes:
    return file.read_bytes()


@cache
def _tree(file: Path, state: State) -> ast.Module:
    """The code of a file, without what does not run."""
    return _Running().visit(ast.parse(_source(file, state)))  # type: ignore[no-any-return]


@cache
def _file_digest(file: Path, state: State) -> str:
    return hashlib.sha256(_text(_tree(file, state)).encode()).hexdigest()


def _text(node: object) -> str:
    """The code of a tree as text, alike in every version of Python. `ast.dump` is not: versions add
    fields, and differ in which empty ones they write."""
    if isinstance(node, ast.Constant):
        return repr(node.value)
    if isinstance(node, ast.JoinedStr):  # some versions put empty texts between its parts
        return _text([part for part in node.values if _text(part) != "''"])
    if isinstance(node, ast.AST):
        parts = [
            f"{name}={_text(value)}"
            for name in node._fields
            if (value := getattr(node, name, None)) is not None and value != []
        ]
        return f"{type(node).__name__}({','.join(parts)})"
    if isinstance(node, list):
        return f"[{','.join(map(_text, node))}]"
    return repr(node)


@cache
def _file_imports(name: str, file: Path, state: State) -> frozenset[str]:
    """The names that a module's code imports, and the packages they are in."""
    is_package = file.stem == "__init__"
    package = name if is_package else name.rpartition(".")[0]
    tree = _tree(file, state)
    text = _source(file, state)
    loaders = {"import_module", "__import__"} if file != PACKAGE / "__init__.py" else set()
    if not any(loader.encode() in text for loader in loaders):
        loaders = set()  # most files load no module by name, and looking at all calls takes long
    found = set[str]()
    for node in _statements(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(package, node.level, node.module or "")
            found.add(base)
            found.update(f"{base}.{alias.name}" for alias in node.names)
            loaders |= {a.asname for a in node.names if a.asname and a.name in loaders}
    if loaders:
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _called(node) in loaders:
                found.update(_loaded(node, package))
    if is_package and b"__all__" in text:
        found.update(f"{package}.{public}" for public in _all_names(tree))
    return frozenset(part for one in found for part in _with_parents(one))


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """All statements below a node, and the parts that hold them."""
    for field in BLOCKS:
        own = getattr(tree, field, None)
        for statement in own if isinstance(own, list) else ():
            yield statement
            yield from _statements(statement)


def _absolute(package: str, level: int, name: str) -> str:
    """The full name of what a module of `package` imports with `level` dots before the name."""
    parents = package.split(".")
    above = parents[: len(parents) - level + 1] if level else []
    return ".".join([*above, *([name] if name else [])])


def _called(call: ast.Call) -> str:
    """The last name of the function that is called."""
    function = call.func
    return getattr(function, "attr", "") or getattr(function, "id", "")


def _loaded(call: ast.Call, package: str) -> Iterator[str]:
    """The modules that `import_module` or `__import__` may load by the literal strings of a call:
    names, what `fromlist` asks of them, and the package of a relative name."""
    texts = _texts(call)
    for text in texts:
        name = text.lstrip(".")
        level = len(text) - len(name)
        for home in (package, *texts) if level else (package,):
            base = _absolute(home, level, name)
            yield from (base, *(f"{base}.{asked}" for asked in texts))


def _all_names(tree: ast.Module) -> Iterator[str]:
    """The literal names of `__all__`; `from package import *` imports modules among them."""
    for statement in tree.body:
        if any(getattr(node, "id", "") == "__all__" for node in ast.walk(statement)):
            yield from _texts(statement)


def _texts(tree: ast.AST) -> list[str]:
    """The literal strings below a node, in the order of the code."""
    values = (getattr(node, "value", None) for node in ast.walk(tree))
    return [value for value in values if isinstance(value, str) and value]


def _with_parents(name: str) -> Iterator[str]:
    parts = name.split(".")
    return (".".join(parts[: count + 1]) for count in range(len(parts)))


class _Running(ast.NodeTransformer):
    """Removes docstrings, and imports for type checkers."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Visit statements alone: none is in an expression."""
        for field in BLOCKS:
            own = getattr(node, field, None)
            if isinstance(own, list):
                kept: list[ast.AST] = []
                for statement in own:
                    found = self.visit(statement)
                    kept += found if isinstance(found, list) else [found] if found else []
                setattr(node, field, kept)
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if text else node

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return node.orelse
        return self.generic_visit(node)
