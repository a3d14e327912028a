"""Attacks on drawn releases: they stay below certificates, and find what is planted."""

import math

import pytest
from claim_examples import BATCHES, DP_SGD, LOCAL_DP, certified, changed

from fedpriv.claims.attack import simulate
from fedpriv.claims.reading import parse

UNSAMPLED = changed(DP_SGD, releases__0__sampling={"rule": "everything"})


def attacked(data, trials=4000):
    claim = parse(data)
    return simulate(claim, claim.statements[0], trials=trials)


@pytest.mark.parametrize(
    "data",
    [
        changed(UNSAMPLED, releases__0__noise__deviation=10.0),
        changed(UNSAMPLED, releases__0__noise__deviation=10.0, claims__0__adjacency="replace"),
        changed(DP_SGD, releases__0__sampling__rate=0.5),
        changed(DP_SGD, releases__0__sampling__drawn="once"),
        BATCHES,
        LOCAL_DP,
    ],
)
def test_a_true_certificate_survives(data):
    assert attacked(data).audited <= certified(data)


def test_the_attack_has_power():
    data = changed(UNSAMPLED, releases__0__noise__deviation=10.0)
    assert attacked(data).audited > 0.6 * certified(data)
    fresh = changed(DP_SGD, releases__0__noise__deviation=5.0)
    once = attacked(changed(fresh, releases__0__sampling__drawn="once"), trials=20_000)
    assert once.audited > 1.5 * certified(fresh) > 0


@pytest.mark.parametrize(
    ("planted", "honest"),
    [
        ({"releases__0__noise__generator": "shared by clients"}, {}),
        (
            {
                "releases__0__noise__generator": "reused over releases",
                "releases__0__participation": 1,
            },
            {"releases__0__participation": 1},
        ),
        ({"releases__0__tensors": 9}, {}),
    ],
)
def test_planted_faults_are_found(planted, honest):
    """Shared seeds, reused noise, and tensors that are clipped apart."""
    limit = certified(changed(LOCAL_DP, **honest))
    assert attacked(changed(LOCAL_DP, **planted)).audited > limit
    assert attacked(changed(LOCAL_DP, **honest)).audited <= limit


def test_what_cannot_be_drawn_is_no_attack():
    assert attacked(changed(DP_SGD, releases__0__noise={"mechanism": "none"})) is None
    inside = changed(LOCAL_DP, claims__0__unit="record")
    inside["population"] = {"record": {"contributors": 1, "scopes": 1}}
    assert attacked(inside) is None
    assert math.isfinite(certified(inside))
