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
BASES = {
    "fedpriv.accountants.base",
    "fedpriv.aggregation.base",
    "fedpriv.algorithms.base",
    "fedpriv.certificates.request",
    "fedpriv.data.allocate",
    "fedpriv.data.base",
    "fedpriv.data.stability",
    "fedpriv.encoding.base",
    "fedpriv.engines.base",
    "fedpriv.mechanisms.base",
    "fedpriv.models",
    "fedpriv.parties.messages",
    "fedpriv.parties.party",
    "fedpriv.parties.schema",
    "fedpriv.rounds.contributors",
    "fedpriv.trackers.base",
    "fedpriv.training.optimizers",
}
"""Modules of the bases that authors of components start from."""


def test_every_base_opens_with_an_example():
    assert set(MODULES) >= BASES


@pytest.mark.parametrize("name", MODULES)
def test_an_example_prints_what_it_shows(name):
    failed, attempted = doctest.testmod(import_module(name))
    assert attempted > 0
    assert failed == 0
