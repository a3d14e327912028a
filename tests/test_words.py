"""Private words are gone: from code identifiers, configuration keys, messages, help and pages.

A name that only the authors understand costs every reader. The lists below are words that stood for
a term of the field, each with the term that replaced it. Words that are ordinary English (done,
keep, behind, begun) are looked for in names only.
"""

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest
import yaml
from page_blocks import PAGES, ROOT

from fedpriv.settings.help import TEXT

NAMES = {
    "begun": "journal, attempts",
    "behind": "background writer",
    "deployment": "plan",
    "dotted": "flatten",
    "tally": "contribution stats",
}
"""Parts of a name, such as `begun` in `rounds_begun` or `Tally` in `MyTally`."""
PHRASES = {
    r"cannot be given beside": "cannot be changed",
    r"Deployment\b": "plan",
    r"goes on with (its|\w+ \d)": "resumes with",
    r"hides nothing from who": "is NOT private",
    r"[Ss]tacked": "batched, side by side",
    r"Tally\b": "contribution stats",
    r"[Yy]ardstick": "non-private baseline",
    r"told apart": "significant difference",
    r"knows not": "does not support",
    r"a test holds": "a test checks",
    r"(?<!rounds_)\bbegun\.csv": "rounds_begun.csv",
    r"whose every epsilon is": "with a proven epsilon beside every claimed one",
}
"""Patterns in help, messages, configuration files and pages."""
KEYS = {*NAMES, "ahead", "behind", "cell", "kind", "stacked", "told"}

PACKAGE = sorted((ROOT / "fedpriv").rglob("*.py"))
CODE = [
    *PACKAGE,
    *sorted(
        path
        for folder in ("scripts", "benchmarks", "tests")
        for path in (ROOT / folder).rglob("*.py")
    ),
]
CONFIGS = sorted((ROOT / "conf").rglob("*.yaml"))


def names(path: Path) -> set[str]:
    """The identifiers of a Python file."""
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
    return {token.string for token in tokens if token.type == tokenize.NAME}


def parts(name: str) -> set[str]:
    """The words of an identifier, in small letters."""
    return {part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


def texts(path: Path) -> list[str]:
    """The string literals of a Python file, without docstrings. Parts of an f-string are joined by
    an ellipsis."""
    tree = ast.parse(path.read_text())
    statements = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]
    docstrings = {id(node) for node in statements if isinstance(node, ast.Constant)}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            literals = [part.value for part in node.values if isinstance(part, ast.Constant)]
            found.append("…".join(map(str, literals)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found += [] if id(node) in docstrings else [node.value]
    return found


def keys(tree: object) -> set[str]:
    """All keys of nested mappings."""
    if not isinstance(tree, dict):
        return set()
    return {str(key) for key in tree}.union(*map(keys, tree.values()))


def test_identifiers():
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in CODE
        for name in names(path)
        if parts(name) & NAMES.keys() and not name.startswith("test_")
    }
    assert not found


@pytest.fixture(scope="module")
def sources():
    """What a reader may read, by file, in one line."""
    found = {path: path.read_text() for path in [*PAGES, *CONFIGS]}
    found |= {path: "\n".join(texts(path)) for path in PACKAGE}
    found[Path("help")] = TEXT
    return {path: " ".join(text.split()) for path, text in found.items()}


@pytest.mark.parametrize("pattern", PHRASES)
def test_phrases(pattern, sources):
    found = {
        str(path): match[0] for path, text in sources.items() if (match := re.search(pattern, text))
    }
    assert not found, f"say {PHRASES[pattern]}"


def test_configuration_keys():
    found = {
        f"{path.relative_to(ROOT)}: {key}"
        for path in CONFIGS
        for key in keys(yaml.safe_load(path.read_text()))
        if parts(key) & KEYS
    }
    assert not found
