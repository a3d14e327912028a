"""What the answers of a site cost together."""

import math

import dp_accounting as dp
import numpy as np
import pytest
from dp_accounting.dp_event import MixtureOfGaussiansDpEvent

from fedpriv.accountants.charges import Charge, site_epsilon
from fedpriv.accountants.events import ADD_REMOVE, RELEASED_MODEL, REPLACE, SERVER, Event
from fedpriv.accountants.pld import Pld
from fedpriv.accountants.rdp import Rdp
from fedpriv.errors import ConfigError

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
    assert found.kind == charge.kind


def test_what_an_epsilon_does_not_depend_on_is_not_written():
    told = Event(
        SERVER, "user", REPLACE, GAUSSIAN, GAUSSIAN, assumptions=("it rains",), authors=("Mine",)
    )
    assert Charge.read(Charge(SERVER, (told,)).text).events == (
        event(GAUSSIAN, SERVER, adjacency=REPLACE),
    )


def epsilon(*charges, accountant=None):
    return site_epsilon(accountant or Pld(), dict.fromkeys(charges, 1))


def released(*events, run=""):
    return Charge(RELEASED_MODEL, events or (event(),), run)


def exact(*multipliers, delta=1e-5):
    """The closed form of dp_accounting (Balle and Wang 2018)."""
    gap = math.sqrt(sum(1 / one**2 for one in multipliers))
    return pytest.approx(dp.get_epsilon_gaussian(1 / gap, delta), rel=1e-9)


HALF = dp.get_epsilon_gaussian(2.5, 5e-6)
"""One release at noise multiplier 2.5 and half of delta."""


@pytest.mark.parametrize(
    "other",
    [
        event(unit="record"),
        event(adjacency=REPLACE),
        event(group="strict"),
    ],
    ids=str,
)
def test_epsilons_of_other_kinds_add_up(other):
    assert epsilon(released(), released(other)) == pytest.approx(2 * HALF, rel=1e-9)


def test_epsilons_against_other_observers_add_up():
    server = Charge(SERVER, (event(observer=SERVER),))
    assert epsilon(released(), server) == pytest.approx(2 * HALF, rel=1e-9)


def test_answers_of_one_kind_compose():
    loud = released(event(dp.GaussianDpEvent(1.5)))
    assert epsilon(released(), released(), loud) == exact(2.5, 2.5, 1.5)
    assert site_epsilon(Pld(), {released(): 3, loud: 2}) == exact(2.5, 2.5, 2.5, 1.5, 1.5)


def test_silos_are_the_same_in_all_runs_and_batches_are_not():
    """A record is in one batch of a run; which one in another run, nobody knows."""
    silos = [event(scope="silo0"), event(scope="silo1")]
    assert epsilon(released(*silos), released(*silos)) == exact(2.5, 2.5)
    assert epsilon(released(silos[0]), released(silos[1])) == exact(2.5)
    one, two = event(scope="silo0/batch1"), event(scope="silo0/batch2")
    assert epsilon(released(one, run="a"), released(two, run="a")) == exact(2.5)
    summed = epsilon(released(one, run="a"), released(two, run="b"))
    assert summed == pytest.approx(2 * HALF, rel=1e-9)


def test_what_shows_nothing_costs_nothing():
    assert epsilon() == epsilon(Charge(RELEASED_MODEL, ())) == 0.0
    assert epsilon(released(), Charge(SERVER, ())) == exact(2.5)


def test_an_accountant_that_knows_no_bound_says_so():
    batch = dp.SampledWithoutReplacementDpEvent(100, 7, GAUSSIAN)
    mixed = [released(event(adjacency=REPLACE)), released(event(batch, adjacency=REPLACE))]
    assert 0 < epsilon(*mixed, accountant=Rdp()) < math.inf
    with pytest.raises(ConfigError, match="cannot account"):
        epsilon(*mixed)
    assert epsilon(released(event(dp.NonPrivateDpEvent())), released()) == math.inf
