"""The edges of aggregations' settings: what is just allowed, and what is just not, with the key it is about."""

import math

import pytest

from fedpriv.aggregation.admm.aggregation import LEAST_PENALTY, Admm
from fedpriv.aggregation.private_weighting.aggregation import PrivateWeighting
from fedpriv.aggregation.private_weighting.counts import count_limit
from fedpriv.errors import ConfigError

OWN = {"preset": None, "iterations": 2}
LAST = OWN | {"rho": 1.0}
ALLOWED = [
    (Admm, {"topology": "all"}),
    (Admm, {"topology": "groups"}),
    (Admm, {"group_size": 3}),
    (Admm, {"preset": None, "iterations": 1}),
    (Admm, {"tolerance": 1e-12}),
    (Admm, {"average": "records"}),
    (Admm, {"least_peers": 3}),
    (Admm, {"colluders": 1}),
    (Admm, {"smallest_width": 0.0}),
    (Admm, OWN | {"period": 1}),
    (Admm, LAST | {"decay": 1.001 * LEAST_PENALTY}),
    (PrivateWeighting, {"key_bits": 256}),
    (PrivateWeighting, {"n_max": 1}),
    (PrivateWeighting, {"workers": 1}),
]
REFUSED = [
    (Admm, {"topology": "ring"}, "topology"),
    (Admm, {"group_size": 2}, "group_size"),
    (Admm, {"groups": "paper"}, "groups"),
    (Admm, {"groups": "best"}, "groups"),
    (Admm, {"preset": "tuned_0"}, "preset"),
    (Admm, {"preset": "tuned_9"}, "preset"),
    (Admm, {"preset": None}, "iterations"),
    (Admm, {"preset": None, "iterations": 0}, "iterations"),
    (Admm, {"iterations": 2}, "iterations"),
    (Admm, {"tolerance": 0.0}, "tolerance"),
    (Admm, {"average": "median"}, "average"),
    (Admm, {"least_peers": 2}, "least_peers"),
    (Admm, {"colluders": 0}, "colluders"),
    (Admm, {"smallest_width": -1e-9}, "smallest_width"),
    (Admm, {"range": 0.0}, "range"),
    (Admm, OWN | {"rho": 0.0}, "rho"),
    (Admm, OWN | {"rho": math.inf}, "rho"),
    (Admm, OWN | {"decay": 0.0}, "decay"),
    (Admm, OWN | {"decay": math.inf}, "decay"),
    (Admm, OWN | {"period": 0}, "period"),
    (Admm, LAST | {"decay": LEAST_PENALTY}, "decay"),
    (Admm, {"preset": None, "iterations": 90, "decay": 1e-3}, "decay"),
    (PrivateWeighting, {"key_bits": 255}, "key_bits"),
    (PrivateWeighting, {"n_max": 0}, "n_max"),
    (PrivateWeighting, {"workers": 0}, "workers"),
    (PrivateWeighting, {"variant": "fast"}, "variant"),
]


@pytest.mark.parametrize(("kind", "settings"), ALLOWED)
def test_what_is_just_allowed(kind, settings):
    kind(**settings)


@pytest.mark.parametrize(("kind", "settings", "key"), REFUSED)
def test_what_is_just_not_names_its_key(kind, settings, key):
    with pytest.raises(ConfigError, match=rf"^aggregation\.{key}="):
        kind(**settings)


def test_as_many_records_as_no_silo_could_add_up_to_too_many():
    assert [count_limit(n_max, None, 3) for n_max in (3, 5, 6, 11)] == [1, 1, 2, 3]
    assert [count_limit(6, cap, 3) for cap in (1, 2)] == [1, 2]
    with pytest.raises(ConfigError, match=r"^aggregation\.n_max=2"):
        count_limit(2, None, 3)
    for cap in (0, 3):
        with pytest.raises(ConfigError, match=rf"^aggregation\.count_cap={cap}"):
            count_limit(6, cap, 3)
