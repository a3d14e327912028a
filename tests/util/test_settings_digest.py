"""Equal settings have equal digests in every process, and each difference shows."""

import subprocess
import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.runtime.run_settings import RunSettings, settings_digest
from fedpriv.testing import experiment

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def distinct(value):
    """A key that tells 1, 1.0 and True apart."""
    if isinstance(value, dict):
        return "dict", tuple(sorted((key, repr(distinct(own))) for key, own in value.items()))
    return tuple(map(distinct, value)) if isinstance(value, list) else repr(value)


@given(values, values)
def test_digests_are_equal_where_the_values_are(one, two):
    assert (settings_digest(one) == settings_digest(two)) == (distinct(one) == distinct(two))


def test_arrays_count_with_their_type_shape_and_numbers():
    base = np.arange(4.0)
    seen = {
        settings_digest(array)
        for array in (base, base.reshape(2, 2), base + 1, base.astype(np.float32), base.tolist())
    }
    assert len(seen) == 5


@dataclass(frozen=True)
class One:
    x: int


@dataclass(frozen=True)
class Two:
    x: int


def test_classes_count():
    assert settings_digest(One(1)) != settings_digest(Two(1))
    assert settings_digest(One(1)) != settings_digest(One(2))


COMMAND = """
from fedpriv.runtime.run_settings import RunSettings
from fedpriv.testing import experiment
exp = experiment("algo=uldp_avg", "aggregation=secagg")
plan = exp.planner.plan(exp.federation)
settings = RunSettings(exp.algo, exp.aggregation, plan, 3, exp.accountant)
print(settings.digest.hex())
"""


def of(*words):
    exp = experiment(*words)
    plan = exp.planner.plan(exp.federation)
    return RunSettings(exp.algo, exp.aggregation, plan, 3, exp.accountant)


def test_another_process_computes_the_same_digest():
    printed = subprocess.run(
        [sys.executable, "-c", COMMAND], capture_output=True, text=True, check=True
    ).stdout.strip()
    settings = of("algo=uldp_avg", "aggregation=secagg")
    assert printed == settings.digest.hex()
    assert replace(settings, rounds=9).digest == settings.digest  # rounds may be added


@pytest.mark.parametrize(
    "word", ["algo.clip=0.7", "algo.local_epochs=9", "seed=4", "aggregation.threshold=2"]
)
def test_each_setting_that_changes_an_answer_changes_the_digest(word):
    words = ("algo=uldp_avg", "aggregation=secagg")
    assert of(*words, word).digest != of(*words).digest
