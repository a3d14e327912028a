"""An author's aggregation cannot take an observer out of the certificate."""

import math
from dataclasses import dataclass, replace

import pytest

from fedpriv.accountants.events import CHEATING_SERVER, ENFORCED, OBSERVERS
from fedpriv.aggregation.masked import Masked
from fedpriv.aggregation.plain import Plain
from fedpriv.aggregation.planner import ALONE, OWN_NOISE, complete
from fedpriv.aggregation.shuffle import Shuffle
from fedpriv.rounds.plan import Observer
from fedpriv.runs.epsilon_forecast import EpsilonForecast
from fedpriv.testing import experiment


@dataclass(frozen=True)
class Forgetful(Plain):
    """Names some of its observers.

    named: their names.
    own_shares: what a silo is declared to know of the noise.
    """

    named: tuple[str, ...] = OBSERVERS
    own_shares: int = 1

    def threat_model(self):
        observers = tuple(
            Observer(name, own_shares=self.own_shares * (name == "silo")) for name in self.named
        )
        return replace(super().threat_model(), observers=observers)


def rows(aggregation, *words):
    exp = experiment("algo=uldp_avg", "algo.noise_multiplier=5", "rounds=2", *words)
    forecast = EpsilonForecast.of(replace(exp, aggregation=aggregation))
    return {row.observer: row for row in forecast.rows_at([2])}


@pytest.mark.parametrize("left_out", OBSERVERS)
def test_an_observer_that_is_left_out_has_no_certificate(left_out):
    found = rows(Forgetful(tuple(name for name in OBSERVERS if name != left_out)))
    cheating = set() if left_out == "server" else {CHEATING_SERVER}
    assert set(found) == set(OBSERVERS) | cheating
    assert found[left_out].certified == math.inf
    why = f"FAILS: Forgetful does not declare what the {left_out} sees"
    assert why in found[left_out].assumptions
    assert all(math.isfinite(found[name].certified) for name in OBSERVERS if name != left_out)


def test_a_helper_is_an_observer():
    @dataclass(frozen=True)
    class Silent(Shuffle):
        def threat_model(self):
            model = super().threat_model()
            return replace(model, observers=model.observers[:-1])

    names = [observer.name for observer in complete(Shuffle(), 2).observers]
    assert [observer.name for observer in complete(Silent(), 2).observers] == names
    [*_, told, cheating] = complete(Shuffle(), 2).observers
    [*_, silent, _] = complete(Silent(), 2).observers
    assert not told.why_uncertified
    assert "shuffler" in silent.why_uncertified
    assert (cheating.name, cheating.cheats) == (CHEATING_SERVER, True)


def test_a_silo_without_others_is_no_observer():
    alone, both = (rows(Plain(), f"allocator.n_silos={number}") for number in (1, 2))
    assert both.keys() - alone.keys() == {"silo"}
    assert all(ALONE in row.assumptions for row in alone.values())
    assert not any(ALONE in row.assumptions for row in both.values())


def test_a_silo_knows_its_own_noise():
    found = rows(Forgetful(own_shares=0))
    assert found["silo"].certified == math.inf
    assert f"FAILS: {OWN_NOISE}" in found["silo"].assumptions


def test_what_another_aggregation_shows_is_declared():
    assert {row.status for row in rows(Masked()).values()} == {ENFORCED}
    assert {row.status for row in rows(Forgetful()).values()} == {"declared by Forgetful"}
