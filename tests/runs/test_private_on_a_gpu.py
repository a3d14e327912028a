"""On a GPU a certificate that takes equal rounding for granted makes no run valid."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from runs import experiment

from fedpriv.accountants.events import RELEASED_MODEL
from fedpriv.accountants.ledger import EpsilonRow
from fedpriv.certificates.derive import ROUNDED_ALIKE
from fedpriv.runs.loop import _is_private

ROW = EpsilonRow(1, RELEASED_MODEL, "record", "add or remove", "pld", 1.0, None)


@pytest.mark.parametrize("device", ["cpu", "cuda", "cuda:1"])
def test_rounding_counts_on_a_gpu_alone(device):
    exp = experiment("randomness=system")
    mechanism = SimpleNamespace(clips=True)
    plan = SimpleNamespace(query_parameters={"": SimpleNamespace(mechanism=mechanism)})
    prepared = SimpleNamespace(device=device, plan=plan)
    rounded = replace(ROW, assumptions=(ROUNDED_ALIKE,))
    assert _is_private(exp, prepared, [ROW])
    assert _is_private(exp, prepared, [rounded]) == (device == "cpu")
    assert _is_private(exp, prepared, [rounded, ROW])
