"""Examples in docstrings print what they show."""

import doctest
from importlib import import_module

import pytest
from page_blocks import ROOT

MODULES = sorted(
    ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for file in (ROOT / "fedpriv").rglob("*.py")
    if ">>> " in file.read_text()
)


@pytest.mark.parametrize("name", MODULES)
def test_an_example_prints_what_it_shows(name):
    assert doctest.testmod(import_module(name)).failed == 0
