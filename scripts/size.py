"""How large the project is: statements by room, words of pages, seconds of the last whole suite.

    python -m scripts.size

A statement counts once, with those inside it; docstrings do not count. A word has a letter or a
digit: signs of a table do not count. tests/conftest.py notes the suite's seconds.
"""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SECONDS = ROOT / ".pytest_cache" / "v" / "fedpriv" / "suite_seconds"


def statements(source: str) -> int:
    """How many statements a file of Python has, without docstrings."""
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt)]
    return sum(not _is_text(node) for node in nodes)


def _is_text(node: ast.stmt) -> bool:
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def words(text: str) -> int:
    """How many words a page has. Signs alone, such as those between the cells of a table, are
    none."""
    return sum(any(map(str.isalnum, word)) for word in text.split())


def by_room(folder: Path) -> Counter[str]:
    """Statements of each folder below `folder`; files that lie loose count together."""
    found: Counter[str] = Counter()
    for path in folder.rglob("*.py"):
        parts = path.relative_to(folder).parts
        found[parts[0] if len(parts) > 1 else "(loose files)"] += statements(path.read_text())
    return found


def lines() -> Iterator[str]:
    """What the script prints."""
    for name in ("fedpriv", "tests"):
        rooms = by_room(ROOT / name)
        yield f"{name}: {rooms.total():,} statements"
        yield from (f"  {room:<14}{count:>7,}" for room, count in rooms.most_common())
    native = [path for kind in ("*.cpp", "*.h") for path in (ROOT / "fedpriv").rglob(kind)]
    yield f"C++: {sum(len(path.read_text().splitlines()) for path in native):,} lines"
    pages = (ROOT / "docs").rglob("*.md")
    yield f"docs: {sum(words(path.read_text()) for path in pages):,} words"
    seconds = json.loads(SECONDS.read_text()) if SECONDS.exists() else None
    yield f"suite: {'not run here yet' if seconds is None else f'{seconds:,.0f} s'}"


if __name__ == "__main__":
    print("\n".join(lines()))
