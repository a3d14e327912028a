"""What a claim leaves open is counted for the unit, and never for an attack."""

import math

import dp_accounting as dp
import pytest
from claim_examples import BATCHES, DP_SGD, changed

from fedpriv.claims.certificates import certify
from fedpriv.claims.reading import parse
from fedpriv.claims.refutations import attack_bound
from fedpriv.errors import ConfigError


def certified(data):
    claim = parse(data)
    return certify(claim, claim.statements[0]).epsilon


def attacked(data):
    claim = parse(data)
    return attack_bound(claim, claim.statements[0]).epsilon


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


def test_a_client_that_was_not_chosen_learns_who_was():
    values = ONE_OF_TWO | {
        "claims__0__unit": "client",
        "population": {"client": {"contributors": 1, "scopes": 1}},
        "releases__0__contributor": "client",
    }
    # It sees the other's update with chance 1/2, and knows that it does.
    assert certified(changed(BATCHES, **values)) > dp.get_epsilon_gaussian(3 / 2, 2e-5)


def test_a_client_whose_records_were_not_chosen_learns_who_was():
    among = certified(changed(BATCHES, **ONE_OF_TWO, releases__0__scope="all"))
    apart = certified(changed(BATCHES, **ONE_OF_TWO, releases__0__scope="another client"))
    assert among > dp.get_epsilon_gaussian(3 / 2, 2e-5)
    assert apart < among


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
    whole = {**sampling, "batch": 5}
    assert attacked(changed(DP_SGD, **values, releases__0__sampling=whole)) > 1


def test_a_sample_of_another_release_may_be_one_for_all_times():
    # One sample at rate 0.05 misses the unit too often for this delta.
    sample = {"claims__0__delta": 0.1, "releases__0__sampling__drawn": "with another release"}
    assert attacked(changed(DP_SGD, **sample)) == 0
    assert attacked(changed(DP_SGD, **sample, releases__0__clip="none")) == 0
    sample["releases__0__sampling__drawn"] = "each time"
    assert attacked(changed(DP_SGD, **sample)) > 0
