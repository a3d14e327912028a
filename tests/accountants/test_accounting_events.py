"""Events: flattening, checks, and what must not be imported."""

from __future__ import annotations

import math
import subprocess
import sys

import dp_accounting as dp
import pytest
from dp_accounting.dp_event import MixtureOfGaussiansDpEvent

from fedpriv.accountants.events import leaves
from fedpriv.errors import ConfigError

GAUSSIAN = dp.GaussianDpEvent(5.0)
SAMPLED = dp.PoissonSampledDpEvent(0.1, GAUSSIAN)


def test_importing_accountants_loads_neither_torch_nor_dp_accounting():
    names = ["base", "calibrate", "events", "group", "ledger", "pld", "rdp"]
    code = f"import sys\nfor n in {names}: __import__('fedpriv.accountants.' + n)\n"
    code += "print(sorted({'torch', 'dp_accounting', 'scipy', 'rich'} & set(sys.modules)))"
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert shown.strip() == "[]"


def test_leaves_unrolls_compositions_and_adds_equal_events():
    nested = dp.ComposedDpEvent(
        (GAUSSIAN, dp.SelfComposedDpEvent(dp.ComposedDpEvent((GAUSSIAN, SAMPLED)), 3))
    )
    assert leaves([(nested, 2), (SAMPLED, 1)]) == {GAUSSIAN: 8, SAMPLED: 7}


def test_leaves_knows_what_reveals_nothing():
    nothing = [
        dp.NoOpDpEvent(),
        dp.PoissonSampledDpEvent(0.0, GAUSSIAN),
        dp.GaussianDpEvent(math.inf),
        MixtureOfGaussiansDpEvent(1.0, (0.0, 1.0), (1.0, 0.0)),
    ]
    never = [(dp.NonPrivateDpEvent(), 0), (GAUSSIAN, 0)]
    empty = dp.SampledWithoutReplacementDpEvent(10, 0, GAUSSIAN)
    assert leaves([(event, 9) for event in nothing] + [*never, (empty, 1)]) == {}


def test_leaves_keeps_whatever_reveals_something():
    """Little noise, sampling by halves, and a mixture of which one part moves, once each."""
    something = [
        dp.GaussianDpEvent(0.5),
        dp.GaussianDpEvent(1.0),
        dp.PoissonSampledDpEvent(0.5, GAUSSIAN),
        dp.SampledWithoutReplacementDpEvent(10, 5, GAUSSIAN),
        MixtureOfGaussiansDpEvent(1.0, (0.0, 1.0), (0.5, 0.5)),
    ]
    assert leaves([(event, 1) for event in something]) == dict.fromkeys(something, 1)


@pytest.mark.parametrize(
    "event",
    [
        dp.NonPrivateDpEvent(),
        dp.GaussianDpEvent(0.0),
        dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(0.0)),
    ],
)
def test_leaves_knows_what_is_not_private(event):
    assert leaves([(GAUSSIAN, 1), (dp.SelfComposedDpEvent(event, 2), 1)]) is None


def test_sampling_everything_is_no_sampling():
    whole = dp.SampledWithoutReplacementDpEvent(10, 10, GAUSSIAN)
    assert leaves([(whole, 1), (dp.PoissonSampledDpEvent(1.0, GAUSSIAN), 1)]) == {GAUSSIAN: 2}


@pytest.mark.parametrize(
    "event",
    [
        dp.GaussianDpEvent(-1.0),
        dp.GaussianDpEvent(math.nan),
        dp.PoissonSampledDpEvent(1.5, GAUSSIAN),
        dp.SampledWithoutReplacementDpEvent(10, 11, GAUSSIAN),
    ],
)
def test_impossible_mechanisms_end_in_one_line(event):
    with pytest.raises(ConfigError, match=r"^[^\n]+$"):
        leaves([(event, 1)])
