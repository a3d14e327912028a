"""The edges of aggregations' settings: what is just allowed, and what is just not, with the key it
is about."""

import math

import pytest

from fedpriv.aggregation.admm.aggregation import Admm
from fedpriv.aggregation.admm.settings import LEAST_PENALTY
from fedpriv.aggregation.masked import Masked
from fedpriv.aggregation.private_weighting.aggregation import PrivateWeighting
from fedpriv.aggregation.secagg.aggregation import SecAgg
from fedpriv.aggregation.secagg.exact_noise import SecAggExactNoise
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
    (SecAgg, {"threshold": 1, "cohort": 1, "candidates": 1}),
    (SecAgg, {"neighbours": 2}),
    (SecAgg, {"neighbours": "auto"}),
    (SecAgg, {"dropouts": 0.0, "corrupt": 0.0}),
    (SecAgg, {"security_bits": 1, "correctness_bits": 1}),
    (SecAggExactNoise, {"colluding": 0}),
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
    (Admm, OWN | {"decay": -0.5}, "decay"),
    (Admm, OWN | {"decay": math.inf}, "decay"),
    (Admm, OWN | {"period": 0}, "period"),
    (Admm, LAST | {"decay": LEAST_PENALTY}, "decay"),
    (Admm, {"preset": None, "iterations": 90, "decay": 1e-3}, "decay"),
    (PrivateWeighting, {"key_bits": 255}, "key_bits"),
    (PrivateWeighting, {"n_max": 0}, "n_max"),
    (PrivateWeighting, {"variant": "fast"}, "variant"),
    (Masked, {"bits": 63}, "bits"),
    (Masked, {"range": 0.0}, "range"),
    (Masked, {"range": -1.0}, "range"),
    (SecAgg, {"bits": 8}, "bits"),
    (SecAgg, {"bits": "32"}, "bits"),
    (SecAgg, {"bits": "some"}, "bits"),
    (SecAgg, {"bits": None}, "bits"),
    (SecAgg, {"threshold": 0}, "threshold"),
    (SecAgg, {"cohort": 0}, "cohort"),
    (SecAgg, {"candidates": 0}, "candidates"),
    (SecAgg, {"threshold": 3, "cohort": 2}, "threshold"),
    (SecAgg, {"threshold": 3, "candidates": 2}, "threshold"),
    (SecAgg, {"cohort": 3, "candidates": 2}, "cohort"),
    (SecAgg, {"neighbours": 0}, "neighbours"),
    (SecAgg, {"neighbours": 3}, "neighbours"),
    (SecAgg, {"neighbours": "few"}, "neighbours"),
    (SecAgg, {"dropouts": -0.01}, "dropouts"),
    (SecAgg, {"dropouts": 1.0}, "dropouts"),
    (SecAgg, {"corrupt": -0.01}, "corrupt"),
    (SecAgg, {"corrupt": 1.0}, "corrupt"),
    (SecAgg, {"security_bits": 0}, "security_bits"),
    (SecAgg, {"correctness_bits": 0}, "correctness_bits"),
    (SecAggExactNoise, {"threshold": 0}, "threshold"),
    (SecAggExactNoise, {"colluding": -1}, "colluding"),
]
SPARSE = {"neighbours": 2, "security_bits": 1, "correctness_bits": 1}
SILOS = [
    (SecAgg, {"candidates": 5}, "candidates"),
    (SecAgg, {"cohort": 5}, "cohort"),
    (SecAgg, {"threshold": 4, "candidates": 4, "cohort": 3}, "threshold"),
    (SecAgg, {"threshold": 2}, "threshold"),
    (SecAgg, {"threshold": 2, "candidates": 4}, "threshold"),
    (SecAgg, {"cohort": 2}, "threshold"),
    (SecAgg, SPARSE | {"neighbours": 4, "dropouts": 0.0, "corrupt": 0.0}, "neighbours"),
    (SecAgg, SPARSE | {"dropouts": 0.5}, "dropouts"),
    (SecAgg, SPARSE | {"dropouts": 0.0, "cohort": 3}, "dropouts"),
    (SecAgg, SPARSE | {"dropouts": 0.0, "corrupt": 0.5}, "corrupt"),
    (SecAgg, SPARSE | {"dropouts": 0.0, "corrupt": 0.75}, "corrupt"),
]


@pytest.mark.parametrize(("kind", "settings"), ALLOWED)
def test_what_is_just_allowed(kind, settings):
    kind(**settings)


@pytest.mark.parametrize(("kind", "settings", "key"), REFUSED)
def test_what_is_just_not_names_its_key(kind, settings, key):
    with pytest.raises(ConfigError, match=rf"^aggregation\.{key}="):
        kind(**settings)


@pytest.mark.parametrize(("kind", "settings", "key"), SILOS)
def test_what_does_not_fit_four_silos_names_its_key(kind, settings, key):
    with pytest.raises(ConfigError, match=rf"^aggregation\.{key}="):
        kind(**settings).cohort_size(4)


def test_numbers_that_just_fit():
    assert SecAgg(candidates=4, cohort=4, threshold=3).cohort_size(4).least == 4
    assert SecAgg(cohort=3, threshold=3).cohort_size(4).least == 3
    assert (
        SecAgg(neighbours="auto", dropouts=0.25, corrupt=0.25, threshold=3).cohort_size(4).least
        == 4
    )


def test_as_many_records_as_no_silo_could_add_up_to_too_many():
    assert [
        PrivateWeighting(n_max=n_max, count_cap=None).count_limit(3) for n_max in (3, 5, 6, 11)
    ] == [1, 1, 2, 3]
    assert [PrivateWeighting(n_max=6, count_cap=cap).count_limit(3) for cap in (1, 2)] == [1, 2]
    with pytest.raises(ConfigError, match=r"^aggregation\.n_max=2"):
        PrivateWeighting(n_max=2, count_cap=None).count_limit(3)
    for cap in (0, 3):
        with pytest.raises(ConfigError, match=rf"^aggregation\.count_cap={cap}"):
            PrivateWeighting(n_max=6, count_cap=cap).count_limit(3)
