"""Every line of the pages about trust names tests, and these exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "trust"
AGGREGATIONS = sorted(path.stem for path in (ROOT / "conf" / "aggregation").glob("*.yaml"))


def lines(page):
    """The claims of a page: what each party learns, and the rows of tables whose last column is for
    tests, without heads."""
    text = (PAGES / f"{page}.md").read_text()
    claims = re.findall(r"^- .+", text, flags=re.MULTILINE)
    tables = re.findall(
        r"^\| who .*shown by \|\n\| [- |]+\n((?:\|.*\n)+)", text, flags=re.MULTILINE
    )
    return claims + [row for table in tables for row in table.splitlines()]


@cache
def functions(file):
    path = ROOT / "tests" / file
    assert path.exists(), path
    return {
        node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)
    }


@pytest.mark.parametrize("page", ["README", "files", *AGGREGATIONS])
def test_every_line_is_shown_by_tests_that_exist(page):
    rows = lines(page)
    assert len(rows) >= 5
    for row in rows:
        named = re.findall(r"`([\w/]+\.py)::(\w+)`", row)
        assert named, f"no test shows: {row}"
        assert row.count("::") == len(named), row
        for file, test in named:
            assert test in functions(file), f"{file} has no {test}"


def test_every_aggregation_has_its_page_and_its_line():
    index = (PAGES / "README.md").read_text()
    for aggregation in AGGREGATIONS:
        assert f"| [{aggregation}]({aggregation}.md) |" in index


@pytest.mark.parametrize("page", AGGREGATIONS)
def test_a_page_opens_with_what_each_party_learns(page):
    opening = (PAGES / f"{page}.md").read_text().partition("## Who may do what")[0]
    assert "## What each party learns\n\n- " in opening
