"""The examples in docstrings of the test kit and of the audit run as printed."""

import doctest
import importlib

import pytest

MODULES = [
    "fedpriv.audit.families",
    "fedpriv.testing.algorithms",
    "fedpriv.testing.damage",
    "fedpriv.testing.experiments",
    "fedpriv.testing.fault_trials",
    "fedpriv.testing.faults",
]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run_as_printed(name):
    module = importlib.import_module(name)
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0
