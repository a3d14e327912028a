"""Charges as lines of text."""

import math

import dp_accounting as dp
import numpy as np
import pytest
from dp_accounting.dp_event import MixtureOfGaussiansDpEvent

from fedpriv.accountants.charges import Charge
from fedpriv.accountants.events import ADD_REMOVE, RELEASED_MODEL, REPLACE, SERVER, Event

GAUSSIAN = dp.GaussianDpEvent(2.5)
MECHANISMS = (
    GAUSSIAN,
    dp.GaussianDpEvent(np.float64(0.1) + np.float64(0.2)),
    dp.PoissonSampledDpEvent(0.5, GAUSSIAN),
    dp.SampledWithoutReplacementDpEvent(100, np.int64(7), GAUSSIAN),
    MixtureOfGaussiansDpEvent(3.0, (0.0, 1.0, math.inf), (0.5, 0.25, 0.25)),
    dp.ComposedDpEvent((dp.SelfComposedDpEvent(GAUSSIAN, 3), dp.NoOpDpEvent())),
    dp.ZCDpEvent(0.125),
    dp.NonPrivateDpEvent(),
)


def event(mechanism=GAUSSIAN, observer=RELEASED_MODEL, unit="user", adjacency=ADD_REMOVE, **about):
    return Event(observer, unit, adjacency, mechanism, None, **about)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
def test_a_charge_comes_back_from_its_line(mechanism):
    first = event(mechanism, scope="silo0", group_size=3, group="strict", one_noise=True)
    second = event(mechanism, SERVER, "record", REPLACE, together=mechanism)
    charge = Charge(RELEASED_MODEL, (first, second), "run")
    assert "\n" not in charge.text
    found = Charge.read(charge.text)
    assert (found.observer, found.events, found.run) == (charge.observer, charge.events, "run")


def test_what_an_epsilon_does_not_depend_on_is_not_written():
    told = Event(
        SERVER, "user", REPLACE, GAUSSIAN, GAUSSIAN, assumptions=("it rains",), authors=("Mine",)
    )
    assert Charge.read(Charge(SERVER, (told,)).text).events == (
        event(GAUSSIAN, SERVER, adjacency=REPLACE),
    )
