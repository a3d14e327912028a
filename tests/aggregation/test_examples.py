"""The examples in docstrings run."""

import doctest
from importlib import import_module

import pytest

MODULES = [
    "fedpriv.aggregation.base",
    "fedpriv.engines.base",
    "fedpriv.encoding.base",
    "fedpriv.parties.messages",
    "fedpriv.parties.party",
    "fedpriv.parties.schema",
]


@pytest.mark.parametrize("module", MODULES)
def test_examples_run(module):
    failed, run = doctest.testmod(import_module(module))
    assert run > 0
    assert failed == 0
