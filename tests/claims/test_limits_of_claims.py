"""What a claim leaves open is counted for the unit, and never for an attack."""

import math
import time

import dp_accounting as dp
import pytest
from claim_examples import BATCHES, DP_SGD, EVERYBODY, attacked, certified, changed, verdict

from fedpriv.claims.reading import parse
from fedpriv.claims.refutations import optimistic_epsilon
from fedpriv.claims.verdicts import MOST_SEARCHED, NOT_SUPPORTED
from fedpriv.errors import ConfigError

TIMES = ("releases__0__times", "releases__0__participation")


ONE_OF_TWO = {
    "claims__0__observer": "client",
    "releases__0__noise__added_by": "trusted third party",
    "releases__0__noise__deviation": 3.0,
    "releases__0__times": 1,
    "releases__0__participation": 1,
    "releases__0__sampling__batch": 1,
    "releases__0__sampling__of": 2,
}
"""One contributor of two is chosen: the other one, whenever it is not the observer's own."""


CHOSEN = changed(BATCHES, **ONE_OF_TWO)
CLIENT = {
    "claims__0__unit": "client",
    "population": {"client": {"contributors": 1, "scopes": 1}},
    "releases__0__contributor": "client",
}
HOSPITALS = {"releases__0__scope": "some hospitals"}
OF_ONE = HOSPITALS | {"releases__0__noise__added_by": "holder of the data"}


@pytest.mark.parametrize(
    ("values", "learned"), [(CLIENT, True), ({}, True), (HOSPITALS, True), (OF_ONE, False)]
)
def test_a_client_that_was_not_chosen_learns_who_was(values, learned):
    """It sees the other's vector with chance 1/2, and knows that it does. A scope with one holder
    has no record of another client. Others can be several clients."""
    known = dp.get_epsilon_gaussian(3 / 2, 2e-5)
    assert (certified(changed(CHOSEN, **values)) >= known) == learned


@pytest.mark.parametrize("observer", EVERYBODY)
def test_a_client_s_place_in_a_batch_depends_on_who_is_there(observer):
    """Nine of ten are chosen. Without one contributor, the other nine always are: an observer that
    was not chosen knows that it is there."""
    values = {
        "claims__0__adjacency": "add/remove",
        "claims__0__observer": observer,
        "releases__0__sampling__batch": 9,
        "releases__0__sampling__of": 10,
    }
    assert (certified(changed(BATCHES, **values)) == math.inf) == (observer == "client")


PASS = {"rule": "shuffled", "batch": 10, "of": 100, "hidden_from": EVERYBODY}


@pytest.mark.parametrize(
    "values",
    [
        {"releases__0__denominator": "counts"},
        {"releases__0__sampling": PASS, "releases__0__participation": 10},
        {"releases__0__sampling__hidden_from": []},
    ],
)
def test_who_replaces_a_record_may_have_fewer_copies(values):
    """Counts, passes and the places of others in a batch then show it."""
    alone = changed(BATCHES, **values)
    assert certified(alone) < math.inf
    assert certified(changed(alone, population__record__contributors=2)) == math.inf


@pytest.mark.parametrize("rule", ["poisson", "without replacement"])
def test_a_removed_client_is_never_named(rule):
    data = DP_SGD if rule == "poisson" else BATCHES
    values = {
        "claims__0__unit": "client",
        "claims__0__adjacency": "add/remove",
        "population": {"client": {"contributors": 1, "scopes": 1}},
        "releases__0__contributor": "client",
        "releases__0__noise__added_by": "trusted third party",
    }
    assert certified(changed(data, **values)) < math.inf
    values["releases__0__sampling__hidden_from"] = ["released model", "client"]
    assert certified(changed(data, **values)) == math.inf


def test_a_removed_contributor_leaves_places_in_later_batches():
    """Two contributors, one a batch: without the first, the other one comes first."""
    values = {
        "claims__0__adjacency": "add/remove",
        "releases__0__times": 2,
        "releases__0__participation": 1,
        "releases__0__sampling__batch": 1,
        "releases__0__sampling__of": 2,
        "releases__0__sampling__drawn": "with another release",
    }
    assert certified(changed(BATCHES, **values)) == math.inf
    assert certified(changed(BATCHES, **{**values, "releases__0__times": 1})) < math.inf


@pytest.mark.parametrize("unit", ["user", "client"])
@pytest.mark.parametrize("field", ["weights", "denominator"])
def test_who_replaces_a_client_may_have_another_number_of_records(unit, field):
    values = {
        "claims__0__unit": unit,
        "claims__0__adjacency": "replace",
        "population": {unit: {"contributors": 1, "scopes": 1}},
        "releases__0__contributor": unit,
        "releases__0__noise__added_by": "trusted third party",
    }
    assert certified(changed(DP_SGD, **values)) < math.inf
    assert certified(changed(DP_SGD, **values, **{f"releases__0__{field}": "counts"})) == math.inf


@pytest.mark.parametrize("size", ["clip", "weight", "noise__deviation", "sampling__rate"])
@pytest.mark.parametrize("value", [1e-200, 5e-324])
def test_sizes_whose_ratios_leave_the_floats_are_refused(size, value):
    with pytest.raises(ConfigError, match="at least 1e-30"):
        parse(changed(DP_SGD, **{f"releases__0__{size}": value}))


def test_the_smallest_noise_has_a_number():
    # The curves of samples of such noise do not fit into memory.
    assert 1e50 < certified(changed(DP_SGD, releases__0__noise__deviation=1e-30)) < math.inf


def test_a_pass_that_leaves_a_unit_out_is_no_attack():
    # Batches of 6 of 10: without a last batch, two passes miss a unit with chance 0.16.
    values = {
        "claims__0__adjacency": "zero-out",
        "claims__0__delta": 0.95,
        "releases__0__times": 2,
        "releases__0__participation": 2,
        "releases__0__noise__deviation": 0.1,
    }
    sampling = {"rule": "shuffled", "batch": 6, "of": 10, "hidden_from": []}
    assert attacked(changed(DP_SGD, **values, releases__0__sampling=sampling)) == 0
    whole = values | {"releases__0__sampling": {**sampling, "batch": 5}, TIMES[1]: 1}
    assert attacked(changed(DP_SGD, **whole)) > 1


def test_a_sample_of_another_release_may_be_one_for_all_times():
    # One sample at rate 0.05 misses the unit too often for this delta.
    sample = {"claims__0__delta": 0.1, "releases__0__sampling__drawn": "with another release"}
    assert attacked(changed(DP_SGD, **sample)) == 0
    assert attacked(changed(DP_SGD, **sample, releases__0__clip="none")) == 0
    sample["releases__0__sampling__drawn"] = "each time"
    assert attacked(changed(DP_SGD, **sample)) > 0


@pytest.mark.parametrize(
    ("releases", "delta"), [(10**5, 1e-12), (10**6, 1e-9), (10**6, 1e-12), (10**6, 1e-14)]
)
def test_the_rounding_of_many_releases_lowers_no_certificate(releases, delta):
    """Everybody takes part in all releases, but for a chance of one in a million."""
    values = {
        "claims__0__delta": delta,
        "releases__0__times": releases,
        "releases__0__participation": releases,
        "releases__0__sampling__rate": 1 - 1e-12,
        "releases__0__noise__deviation": math.sqrt(releases) / 3,
    }
    truth = dp.get_epsilon_gaussian(1 / 3, delta * math.exp(releases * 1e-12))
    assert certified(changed(DP_SGD, **values)) >= truth * (1 - 1e-9)
    assert optimistic_epsilon(1 - 1e-12, math.sqrt(releases) / 3, releases, delta) <= truth


HUGE = [
    {"releases__0__noise__deviation": 1e-2},
    {"releases__0__noise__deviation": 1e5, "releases__0__sampling__rate": 1e-3},
    {"releases__0__noise__deviation": 1e4, "releases__0__sampling__rate": 0.99},
    {"population__record__contributors": 2, "releases__0__noise__deviation": 0.02},
    {"population__record__contributors": 100, "releases__0__noise__deviation": 1e4},
]


@pytest.mark.parametrize("values", HUGE)
def test_a_billion_releases_take_no_minutes(values):
    data = changed(DP_SGD, **values, **dict.fromkeys(TIMES, 10**9))
    started = time.process_time()
    finding = verdict(data)
    assert 0 < finding.certified.epsilon < math.inf
    assert finding.attack.epsilon <= finding.certified.epsilon
    assert time.process_time() - started < 30


def test_statements_times_releases_are_limited():
    data = changed(DP_SGD, claims=DP_SGD["claims"] * 4, releases=DP_SGD["releases"] * 151)
    with pytest.raises(ConfigError, match="claims=4 x 151"):
        parse(data)


def test_no_change_is_searched_for_among_many_sampled_releases():
    data = changed(DP_SGD, claims__0__epsilon=0.1, releases__0__contributor="user")
    rows = [
        changed(data["releases"][0], sampling__rate=0.01 + number / 1000)
        for number in range(MOST_SEARCHED + 1)
    ]
    found = verdict(changed(data, releases=rows))
    assert (found.verdict, found.change) == (NOT_SUPPORTED, "")
    assert verdict(changed(data, releases=rows[:2])).change
