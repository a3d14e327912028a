"""One-token changes of a source file, of types that would break a privacy guarantee.

Positions come from `ast`, the change is made in the text, so that a mutant differs from its source
in nothing else. Texts that people read (docstrings, messages, annotations, decorators) are left
alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

SWAPPED_OPERATORS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "+"),
    ast.Pow: ("**", "*"),
    ast.MatMult: ("@", "+"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.BitXor: ("^", "&"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
}
SWAPPED_CALLS = {
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "math.ceil": "math.floor",
    "math.floor": "math.ceil",
    "math.sqrt": "float",
    "np.rint": "np.floor",
}
DROPPED_KEYWORDS = {
    "adjacency",
    "delta",
    "divisor",
    "encoding",
    "n_summed",
    "real",
    "scope",
    "sensitivity",
    "shares",
}
"""Arguments that say how much noise there is or what it hides; a call without one takes the
default."""


@dataclass(frozen=True)
class Mutant:
    """A changed file.

    `before` and `after` are the changed line, stripped. `after` is `pass` for a removed statement.
    """

    path: str
    scope: str
    line: int
    before: str
    after: str
    text: str

    @property
    def name(self) -> str:
        """Name in the list of accepted survivors. It has no line number, which any edit would
        change."""
        return f"{self.path} :: {self.scope} :: {self.before} -> {self.after}"

    @property
    def anywhere(self) -> str:
        """Common name of all mutants of the function."""
        return f"{self.path} :: {self.scope} :: *"


def mutants(path: str, text: str, *, guards: bool = False) -> list[Mutant]:
    """All mutants of the source `text` of the file `path`, in its order.

    guards: only mutants of guards.
    """
    source = text.encode()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found: dict[tuple[int, int, str], Mutant] = {}
    tree = ast.parse(text)
    changes = _Changes(source, starts)
    guarded = changes.guards(tree) if guards else [(0, len(source))]
    for scope, start, end, new in changes.of(tree):
        if not any(first <= start and end <= last for first, last in guarded):
            continue
        first = source.rfind(b"\n", 0, start) + 1
        mutated = source[:start] + new.encode() + source[end:]
        before = source[first:].split(b"\n", 1)[0]
        after = mutated[first:].split(b"\n", 1)[0]
        if end > first + len(before):  # a statement of several lines
            after = new.encode()
        place = source.count(b"\n", 0, start) + 1
        mutant = Mutant(
            path, scope, place, before.decode().strip(), after.decode().strip(), mutated.decode()
        )
        found.setdefault((start, end, new), mutant)
    return [found[place] for place in sorted(found)]


def _used_defaults(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.AST]:
    """Defaults of the arguments that the function looks at."""
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args][-len(arguments.defaults) or None :]
    pairs = [*zip(named, arguments.defaults), *zip(arguments.kwonlyargs, arguments.kw_defaults)]
    used = {
        node.id for part in function.body for node in ast.walk(part) if isinstance(node, ast.Name)
    }
    return [default for argument, default in pairs if default and argument.arg in used]


Change = tuple[str, int, int, str]
"""Scope, first and last byte, replacement."""


class _Changes:
    """Walks a syntax tree and yields possible changes."""

    def __init__(self, source: bytes, starts: list[int]) -> None:
        self.source = source
        self.starts = starts
        self.scope = "module"

    def of(self, tree: ast.AST) -> Iterator[Change]:
        for start, end, new in self._own(tree):
            yield self.scope, start, end, new
        outer = self.scope
        if isinstance(tree, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            self.scope = tree.name if outer == "module" else f"{outer}.{tree.name}"
        for child in self._children(tree):
            yield from self.of(child)
        self.scope = outer

    def guards(self, tree: ast.AST) -> list[tuple[int, int]]:
        """Spans of what refuses: the condition before a `raise`, `require`'s, and statements that
        are a call."""
        found = list[ast.AST]()
        for node in ast.walk(tree):
            match node:
                case ast.If() if any(
                    isinstance(part, ast.Raise) for part in (*node.body, *node.orelse)
                ):
                    found.append(node.test)
                case ast.Call(func=ast.Name(id="require")):
                    found += node.args[:1]
                case ast.Raise() | ast.Expr(value=ast.Call()):
                    found.append(node)
        return [self._span(node) for node in found]

    def _children(self, node: ast.AST) -> list[ast.AST]:
        match node:
            case (
                ast.Raise()
                | ast.JoinedStr()
                | ast.Assert()
                | ast.If(test=ast.Name(id="TYPE_CHECKING"))
            ):
                return []
            case ast.ClassDef():
                return list(node.body)
            case ast.FunctionDef(decorator_list=[ast.Name(id="abstractmethod")]):
                return []
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                return [*_used_defaults(node), *node.body]
            case ast.AnnAssign():
                return [node.value] if node.value else []
            case ast.Call(func=ast.Name(id="require")):
                return list(node.args[:1])
            case ast.BinOp(left=ast.Constant(value=2), op=ast.Pow()):
                return [node.right]  # 3**49 tells no more than 2**50
            case ast.Slice(step=ast.Constant()):
                return [part for part in (node.lower, node.upper) if part]
            case _:
                return list(ast.iter_child_nodes(node))

    def _own(self, node: ast.AST) -> Iterator[tuple[int, int, str]]:
        match node:
            case ast.Compare():
                for (left, right), operator in zip(
                    pairwise((node.left, *node.comparators)), node.ops
                ):
                    yield self._between(left, right, operator)
            case ast.BoolOp():
                yield self._between(node.values[0], node.values[1], node.op)
            case ast.BinOp() if not (
                self.scope == "module" and isinstance(node.op, ast.BitOr)
            ):  # that joins types
                yield self._between(node.left, node.right, node.op)
            case ast.UnaryOp(op=ast.USub() | ast.Not()):
                sign = "-" if isinstance(node.op, ast.USub) else "not "
                yield self._start(node), self._start(node) + len(sign), ""
            case ast.Constant(value=bool() as value):
                yield *self._span(node), str(not value)
            case ast.Constant(value=int() as value):
                yield *self._span(node), str(value + 1)
            case ast.Constant(value=float() as value):
                yield *self._span(node), repr(2 * value or 1.0)
            case ast.Call():
                yield from self._call(node)
            case ast.Raise() | ast.Expr(value=ast.Call()) | ast.Break() | ast.Continue():
                yield *self._span(node), "pass"
            case ast.AugAssign() | ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
                yield *self._span(node), "pass"
            case _:
                pass
        for condition in self._conditions(node):
            yield *self._span(condition), f"not ({self._text(condition)})"

    def _call(self, node: ast.Call) -> Iterator[tuple[int, int, str]]:
        if new := SWAPPED_CALLS.get(self._text(node.func)):
            yield *self._span(node.func), new
        before: list[ast.expr] = [*node.args, *(keyword.value for keyword in node.keywords)]
        for place, keyword in enumerate(node.keywords, len(node.args)):
            if keyword.arg in DROPPED_KEYWORDS and place:
                yield self._end(before[place - 1]), self._end(keyword), ""

    @staticmethod
    def _conditions(node: ast.AST) -> list[ast.expr]:
        """Nodes that are not changed inside."""
        match node:
            case ast.If() | ast.IfExp() | ast.While():
                tests = (
                    []
                    if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
                    else [node.test]
                )
            case ast.comprehension():
                tests = node.ifs
            case _:
                tests = []
        changed_within = ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Constant | ast.NamedExpr
        return [test for test in tests if not isinstance(test, changed_within)]

    def _between(self, left: ast.AST, right: ast.AST, operator: ast.AST) -> tuple[int, int, str]:
        old, new = SWAPPED_OPERATORS[type(operator)]
        start = self.source.index(old.encode(), self._end(left), self._start(right))
        return start, start + len(old), new

    def _start(self, node: ast.AST) -> int:
        return self._byte(node, "lineno", "col_offset")

    def _end(self, node: ast.AST) -> int:
        return self._byte(node, "end_lineno", "end_col_offset")

    def _byte(self, node: ast.AST, line: str, column: str) -> int:
        return self.starts[int(getattr(node, line)) - 1] + int(getattr(node, column))

    def _span(self, node: ast.AST) -> tuple[int, int]:
        return self._start(node), self._end(node)

    def _text(self, node: ast.AST) -> str:
        return self.source[slice(*self._span(node))].decode()
