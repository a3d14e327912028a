"""Calls and constants of Python files, by their syntax trees. No line of them is executed.

A value counts only where it cannot be another one: a literal, a key that is looked up in
`run_config`, or a name that the file binds once, at the top of the file or of a function, to one of
these.
"""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedpriv.claims.importers.draft import parsed
from fedpriv.errors import DataError

SKIPPED = {".git", ".venv", "venv", "node_modules", "__pycache__", "site-packages"}
MOST_FILES = 2000
_SEVERAL = (
    *(ast.If, ast.IfExp, ast.BoolOp, ast.Match, ast.Try, ast.For, ast.AsyncFor, ast.While),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
)


@dataclass(frozen=True)
class FoundCall:
    """A call in a source file.

    name: the called name, without what stands before its last dot.
    args: values of the positional arguments; None for one that is not known.
    keywords: values of the named ones; None likewise.
    given: names of all named arguments, known or not.
    starred: whether it unpacks arguments, which are then unknown.
    place: file and line.
    branched: whether it stands in a branch or loop, so that it may not run, or several times.
    """

    name: str
    args: tuple[Any, ...]
    keywords: Mapping[str, Any]
    given: frozenset[str]
    starred: bool
    place: str
    branched: bool = False

    def value(self, name: str, position: int | None = None) -> Any:
        """The value of an argument, or None."""
        if self.starred:
            return None
        if name in self.keywords:
            return self.keywords[name]
        place = position if position is not None else len(self.args)
        return self.args[place] if place < len(self.args) else None

    def has(self, name: str) -> bool:
        """Whether an argument may be given by this name."""
        return self.starred or name in self.given


def sources(path: Path) -> tuple[list[Path], list[str]]:
    """The Python sources of a project, or of the one file; and a line for each link and other file
    of a folder that is left out."""
    if path.is_file():
        return [path], []
    found, left_out = [], []
    for file in sorted(path.rglob("*")):
        source = file.suffix in (".py", ".ipynb") and not SKIPPED & set(file.parts)
        if file.is_symlink() or (source and not file.is_file()):
            left_out.append(f"{file}: not read: a link, or no regular file")
        elif source:
            found.append(file)
    if len(found) > MOST_FILES:
        raise DataError(f"{path}: more than {MOST_FILES} source files; name a folder in it")
    return found, left_out


def calls(file: Path, config: Mapping[str, Any], unread: list[str]) -> Iterator[FoundCall]:
    """All calls of a file, in the order of its text.

    config: values of keys that the code looks up by a literal, such as a run configuration's.
    unread: takes a line if the file cannot be read.
    """
    try:
        tree = parsed(file, _notebook if file.suffix == ".ipynb" else ast.parse)
    except DataError as error:
        unread.append(str(error))
        return
    known = _constants(tree, config)
    branched = _branched(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (name := _name(node.func)):
            named = {item.arg: item.value for item in node.keywords if item.arg}
            yield FoundCall(
                name,
                tuple(_value(arg, known, config) for arg in node.args),
                {key: _value(value, known, config) for key, value in named.items()},
                frozenset(named),
                any(isinstance(arg, ast.Starred) for arg in node.args)
                or any(item.arg is None for item in node.keywords),
                f"{file}:{node.lineno}",
                node in branched,
            )


def _branched(tree: ast.Module) -> set[ast.AST]:
    """Nodes that may not run, or run several times, once their function is called."""
    found: set[ast.AST] = set()
    for node in ast.walk(tree):
        if node not in found and isinstance(node, _SEVERAL) and not _is_main(node):
            found.update(ast.walk(node))
    return found


def _is_main(node: ast.AST) -> bool:
    """Whether this is `if __name__ == "__main__"`."""
    test = node.test if isinstance(node, ast.If) else None
    left = test.left if isinstance(test, ast.Compare) else None
    return isinstance(left, ast.Name) and left.id == "__name__"


def _notebook(text: str) -> ast.Module:
    """The code cells of a notebook, without its magic lines."""
    book = json.loads(text)
    try:
        cells = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
        lines = "\n".join("".join(cell["source"]) for cell in cells).splitlines()
    except (KeyError, TypeError) as error:
        raise ValueError("no list of cells") from error
    return ast.parse("\n".join(line for line in lines if not line.lstrip().startswith(("%", "!"))))


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _constants(tree: ast.Module, config: Mapping[str, Any]) -> dict[str, Any]:
    """Names that the file binds exactly once, at the top of a body, to a known value."""
    bound: Counter[str] = Counter()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            bound.update(node.names * 2)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            bound[node.id] += 1
        elif not isinstance(node, ast.keyword):  # definitions, arguments, imports, patterns
            names = (getattr(node, key, None) for key in ("name", "arg", "asname", "rest"))
            bound.update(name.partition(".")[0] for name in names if isinstance(name, str))
    if bound["*"]:
        return {}
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    bodies = [tree.body, *(function.body for function in functions)]
    found: dict[str, Any] = {}
    for statement in (statement for body in bodies for statement in body):
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target, bound_to = statement.targets[0], statement.value
        elif isinstance(statement, ast.AnnAssign) and statement.value:
            target, bound_to = statement.target, statement.value
        else:
            continue
        if isinstance(target, ast.Name) and bound[target.id] == 1:
            value = _value(bound_to, {}, config)
            if value is not None:
                found[target.id] = value
    return found


def _value(node: ast.expr, known: Mapping[str, Any], config: Mapping[str, Any]) -> Any:
    """The value of a literal, a known name, a looked-up key, or a number made of these."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, (int, float, str, bool)) else None
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        lookup = isinstance(node.value, ast.Attribute) and node.value.attr == "run_config"
        return config.get(str(node.slice.value)) if lookup else None
    if isinstance(node, ast.Call) and _name(node.func) in ("float", "int") and len(node.args) == 1:
        inner = _value(node.args[0], known, config)
        whole = isinstance(inner, (int, float)) and (
            inner == int(inner) or _name(node.func) == "float"
        )
        return inner if whole else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _value(node.operand, known, config)
        return -inner if isinstance(inner, (int, float)) else None
    return None
