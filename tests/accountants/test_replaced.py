"""Replacement as two steps of add/remove."""

import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent

from fedpriv.accountants.events import ADD_REMOVE, REPLACE, Event
from fedpriv.accountants.group import replaced
from fedpriv.accountants.ledger import Ledger
from fedpriv.accountants.pld import Pld, gaussian_epsilon
from fedpriv.errors import ConfigError


def epsilon(event, times=1):
    ledger = Ledger(Pld(1e-5))
    ledger.record([event], times)
    [row] = ledger.rows(1)
    return row.certified


def seen(release, adjacency=ADD_REMOVE, **more):
    return Event("released model", "user", adjacency, release, None, **more)


def test_a_gaussian_release_moves_twice_as_far():
    """A sum of vectors clipped to C moves by C without one of them, and by 2 C with another in its
    place."""
    assert epsilon(replaced(seen(GaussianDpEvent(8.0))), 9) == pytest.approx(
        gaussian_epsilon(2 * 3 / 8, 1e-5), rel=1e-4
    )


def test_a_user_of_k_records_is_a_group_of_two_k():
    owned = replaced(seen(GaussianDpEvent(40.0), group_size=4))
    assert epsilon(owned) == pytest.approx(gaussian_epsilon(8 / 40, 1e-5), rel=1e-3)


def test_sampled_units_are_refused():
    sampled = seen(PoissonSampledDpEvent(0.1, GaussianDpEvent(3.0)))
    with pytest.raises(ConfigError, match="Gaussian releases without sampling, for groups of 2"):
        replaced(sampled)
    assert (
        replaced(seen(PoissonSampledDpEvent(1.0, GaussianDpEvent(3.0)))).group_size == 2
    )  # takes everybody


def test_what_holds_for_replacement_stays_as_it_is():
    event = seen(GaussianDpEvent(3.0), REPLACE)
    assert replaced(event) is event
