"""Every line of the pages about trust names tests, and these exist."""

import ast
import re
from functools import cache

import pytest
from page_blocks import ROOT

PAGES = ROOT / "docs" / "trust"
AGGREGATIONS = sorted(path.stem for path in (ROOT / "conf" / "aggregation").glob("*.yaml"))


@cache
def functions(file):
    tree = ast.parse((ROOT / "tests" / file).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("page", ["README", "files", *AGGREGATIONS])
def test_every_line_is_shown_by_tests_that_exist(page):
    """Lines are what each party learns, and the rows of tables whose last column is for tests."""
    text = (PAGES / f"{page}.md").read_text()
    tables = re.findall(r"^\| who .*shown by \|\n\| [- |]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    lines = re.findall(r"^- .+", text, re.MULTILINE) + "".join(tables).splitlines()
    assert len(lines) >= 5
    for line in lines:
        named = re.findall(r"`([\w/]+\.py)::(\w+)`", line)
        assert named, f"no test shows: {line}"
        assert line.count("::") == len(named), line
        for file, test in named:
            assert test in functions(file), f"{file} has no {test}"


@pytest.mark.parametrize("page", AGGREGATIONS)
def test_an_aggregation_has_its_line_and_a_page_that_opens_with_what_each_party_learns(page):
    assert f"| [{page}]({page}.md) |" in (PAGES / "README.md").read_text()
    opening = (PAGES / f"{page}.md").read_text().partition("## Who may do what")[0]
    assert "## What each party learns\n\n- " in opening
