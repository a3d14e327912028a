"""Certified epsilons against closed formulas and dp_accounting; attacks never exceed them."""

import copy
import math

import dp_accounting as dp
import numpy as np
import pytest
from claim_examples import (
    BATCHES,
    DP_SGD,
    EVERYBODY,
    LOCAL_DP,
    attacked,
    certified,
    changed,
    verdict,
)
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import binom, norm

from fedpriv.claims.refutations import optimistic_epsilon
from fedpriv.claims.schema import WHO
from fedpriv.claims.verdicts import (
    HOLDS,
    HOLDS_ELSEWHERE,
    NO_CERTIFICATE,
    NOT_SUPPORTED,
)


def gaussian(gap, delta=1e-5):
    return dp.get_epsilon_gaussian(1 / gap, delta)


UNSAMPLED = changed(DP_SGD, releases__0__sampling={"rule": "everything"})


@given(
    times=st.integers(1, 5000),
    clip=st.floats(0.1, 10),
    tensors=st.integers(1, 20),
    weight=st.floats(0.1, 3),
    deviation=st.floats(5, 500),
    contributors=st.integers(1, 4),
    adjacency=st.sampled_from(["add/remove", "replace", "zero-out"]),
    unit=st.sampled_from(["record", "user"]),
)
def test_unsampled_gaussians_have_the_closed_formula(
    times, clip, tensors, weight, deviation, contributors, adjacency, unit
):
    data = copy.deepcopy(UNSAMPLED)
    data["releases"][0] |= {
        "times": times,
        "participation": times,
        "clip": clip,
        "tensors": tensors,
        "weight": weight,
    }
    data["releases"][0]["noise"]["deviation"] = deviation
    data["claims"][0] |= {"adjacency": adjacency, "unit": unit}
    data["population"] = {unit: {"contributors": contributors, "scopes": 1}}
    moved = clip * math.sqrt(tensors * times) * weight * contributors
    moved *= 2 if adjacency == "replace" else 1
    found = certified(data)
    assert found == pytest.approx(gaussian(moved / deviation), abs=1e-3, rel=1e-6)
    if contributors == 1:
        assert attacked(data) == pytest.approx(found)


@pytest.mark.parametrize("adjacency", ["add/remove", "zero-out"])
def test_poisson_samples_agree_with_dp_accounting(adjacency):
    data = changed(DP_SGD, claims__0__adjacency=adjacency)
    accountant = dp.pld.PLDAccountant()
    accountant.compose(dp.PoissonSampledDpEvent(0.05, dp.GaussianDpEvent(1.0)), 100)
    assert certified(data) == pytest.approx(accountant.get_epsilon(1e-5), abs=1e-3)


@pytest.mark.parametrize(("deviation", "loose"), [(1.0, 1.0), (5.0, 0.01)])
def test_fixed_batches_agree_with_dp_accounting(deviation, loose):
    accountant = dp.rdp.RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_ONE)
    batch = dp.SampledWithoutReplacementDpEvent(1000, 10, dp.GaussianDpEvent(deviation / 2))
    accountant.compose(batch, 100)
    expected = accountant.get_epsilon(1e-5) + 1e-3
    found = certified(changed(BATCHES, releases__0__noise__deviation=deviation))
    assert expected * (1 - loose) < found <= expected
    much = changed(BATCHES, releases__0__noise__deviation=20.0)
    assert certified(much) <= gaussian(math.sqrt(100) * 2 / 20) + 1e-9


LAPLACE = {
    "releases__0__times": 3,
    "releases__0__participation": 3,
    "releases__0__noise__mechanism": "laplace",
}


@pytest.mark.parametrize(("data", "rate", "distance"), [(DP_SGD, 0.05, 1), (BATCHES, 0.01, 2)])
def test_laplace_samples_have_the_formula_of_pure_guarantees(data, rate, distance):
    """Balle, Barthe, Gaboardi 2018, Theorems 8 and 11."""
    expected = 3 * math.log1p(rate * math.expm1(distance))
    assert certified(changed(data, **LAPLACE)) == pytest.approx(expected)


@pytest.mark.parametrize("adder", ["server", "trusted third party"])
def test_a_server_does_not_meet_its_own_noise(adder):
    data = changed(UNSAMPLED, releases__0__noise__added_by=adder)
    assert certified(data, observer="released model") == certified(UNSAMPLED)
    alone = adder == "server"
    assert certified(data) == (math.inf if alone else certified(UNSAMPLED))
    assert attacked(data) == (math.inf if alone else pytest.approx(certified(UNSAMPLED)))


def test_one_sample_for_all_releases_is_no_fresh_sample():
    fresh = certified(DP_SGD)
    once = certified(changed(DP_SGD, releases__0__sampling__drawn="once"))
    exact = math.log1p(0.05 * math.expm1(gaussian(10.0, 1e-5 / 0.05)))  # Balle et al. 2018, Thm 8
    assert once == pytest.approx(exact, abs=1e-3)
    assert once > 5 * fresh


def test_a_client_does_not_meet_its_own_share():
    shares = {"server": 1, "released model": 5, "client": 4}
    for observer, number in shares.items():
        expected = gaussian(math.sqrt(3 / number) / 4)
        assert certified(LOCAL_DP, observer=observer) == pytest.approx(expected, abs=1e-3)


def drawn(share, gap, times=1, delta=1e-5):
    """Epsilon if it is known in which releases the unit takes part: the mean of Balle and Wang's
    formula over the binomial number of releases."""
    numbers = np.arange(1, times + 1)
    gaps = gap * np.sqrt(numbers)

    def excess(epsilon):
        below = np.exp(epsilon + norm.logcdf(-gaps / 2 - epsilon / gaps))
        deltas = norm.cdf(gaps / 2 - epsilon / gaps) - below
        return binom.pmf(numbers, times, share) @ deltas - delta

    return brentq(excess, 0, 1000)


def twice(data, scopes=("all", "all"), **values):
    """The same release in two scopes."""
    releases = [changed(data["releases"][0], scope=scope) for scope in scopes]
    return changed(data, releases=releases, **values)


SHUFFLED = {"rule": "shuffled", "batch": 50, "of": 100, "hidden_from": []}
PASSES = changed(
    DP_SGD,
    claims__0__adjacency="zero-out",
    releases__0__sampling=SHUFFLED,
    releases__0__participation=50,
)
SPREAD = {"record": {"contributors": 1, "scopes": 1}}
INSIDE = {"claims__0__unit": "record", "claims__0__adjacency": "add/remove", "population": SPREAD}
ONE_SAMPLE = changed(DP_SGD, releases__0__sampling__drawn="once")
TOGETHER = changed(DP_SGD, releases__0__sampling__drawn="with another release")
COUNTED = changed(DP_SGD, claims__0__adjacency="zero-out", releases__0__denominator="counts")
TELLING = {**DP_SGD["releases"][0]["sampling"], "hidden_from": []}
SEEN = changed(DP_SGD, releases__0__sampling__hidden_from=["released model", "client"])
SCOPES = ("one", "two")
GAPS = {
    "two releases of one sample": (twice(ONE_SAMPLE), math.sqrt(200)),
    "the largest of two scopes": (twice(UNSAMPLED, SCOPES), 10.0),
    "a unit in two scopes": (
        twice(UNSAMPLED, SCOPES, population__record__scopes=2),
        math.sqrt(200),
    ),
    "a record inside a client moves it twice as far": (
        changed(LOCAL_DP, **INSIDE),
        2 * math.sqrt(3) / 4,
    ),
    "a loss and a gradient of one batch": (TOGETHER, 10.0),
    "a sample that the observer learns": (SEEN, 10.0),
    "a shuffled unit, once in every pass": (PASSES, math.sqrt(50)),
    "messages of a user's two clients": (
        changed(
            LOCAL_DP,
            claims__0__unit="user",
            population={"user": {"contributors": 2, "scopes": 1}},
        ),
        2 * math.sqrt(2 * 3) / 4,
    ),
    "a batch of all others": (
        changed(BATCHES, claims__0__adjacency="add/remove", releases__0__sampling__batch=1000),
        20.0,
    ),
    "a contributor that takes part at most 99 times": (
        changed(DP_SGD, releases__0__participation=99),
        math.sqrt(99),
    ),
}
"""How far the unit moves the releases, in deviations; no sample counts."""


@pytest.mark.parametrize(("data", "gap"), GAPS.values(), ids=GAPS)
def test_releases_have_the_epsilon_of_one_gaussian(data, gap):
    assert certified(data) == pytest.approx(gaussian(gap), abs=1e-3)
    assert attacked(data) <= certified(data) * (1 + 1e-6)


SAMPLED = {**DP_SGD["releases"][0]["sampling"], "hidden_from": EVERYBODY}
CLIENTS = changed(LOCAL_DP, releases__0__sampling=SAMPLED, claims__0__observer="released model")
HOLDERS = changed(
    CLIENTS,
    releases__0__noise=DP_SGD["releases"][0]["noise"],
    releases__0__sampling__rate=0.01,
    releases__0__times=1,
    releases__0__participation=1,
)
"""A client that is not drawn sends neither vector nor noise."""
REMOVED = changed(
    BATCHES,
    claims__0__adjacency="add/remove",
    releases__0__sampling__batch=5,
    releases__0__sampling__of=100,
)
CLIENT = {
    "claims__0__unit": "client",
    "claims__0__adjacency": "zero-out",
    "population": {"client": {"contributors": 1, "scopes": 1}},
    "releases__0__contributor": "client",
    "releases__0__noise__added_by": "trusted third party",
}
KNOWN = {
    "a client adds all noise": (HOLDERS, (0.01, 1.0)),
    "a hundred times": (
        changed(HOLDERS, releases__0__times=100, releases__0__participation=100),
        (0.01, 1.0, 100),
    ),
    "a client's share of noise": (CLIENTS, (0.05, 1 / math.sqrt(5) / 4, 3)),
    "a record in such a client": (changed(HOLDERS, **INSIDE), (0.01, 2.0)),
    "an average by counts": (COUNTED, (0.05, 1.0, 100)),
    "a batch of clients with a count": (
        changed(
            changed(BATCHES, **CLIENT),
            releases__0__noise__deviation=10.0,
            releases__0__times=1000,
            releases__0__participation=1000,
            releases__0__weights="counts",
        ),
        (0.01, 0.1, 1000),
    ),
    "coins that the observer learns": (
        changed(COUNTED, releases__0__sampling=TELLING, releases__0__denominator="fixed"),
        (0.05, 1.0, 100),
    ),
    "coins, if a record is replaced": (
        changed(DP_SGD, claims__0__adjacency="replace"),
        (0.05, 2.0, 100),
    ),
    "coins for messages": (
        changed(DP_SGD, releases__0__seen__server="messages"),
        (0.05, 1.0, 100),
    ),
    "a removed record's place in a batch": (REMOVED, (0.05, 2.0, 100)),
    "two contributors, of which any counts as both": (
        changed(COUNTED, population__record__contributors=2),
        (0.1, 2.0, 100),
    ),
    "coins of two copies that are replaced": (
        changed(DP_SGD, claims__0__adjacency="replace", population__record__contributors=2),
        (0.1, 4.0, 100),
    ),
    "one coin for all": (
        changed(COUNTED, releases__0__sampling__drawn="once"),
        (0.05, 10.0),
    ),
}
"""How often the unit is drawn, how far it then moves a release, and in how many."""


@pytest.mark.parametrize(("data", "sample"), KNOWN.values(), ids=KNOWN)
def test_a_sample_that_may_be_seen_counts_as_known(data, sample):
    found = certified(data)
    assert found == pytest.approx(drawn(*sample), rel=1e-5)
    assert found >= drawn(*sample)
    assert attacked(data) <= found


def test_a_client_that_is_not_drawn_is_silent():
    """The numbers of a release at deviation 1, rate 0.01 and delta 1e-5, by hand."""
    assert certified(HOLDERS) == pytest.approx(3.139, abs=5e-4)
    assert attacked(HOLDERS) == pytest.approx(3.139, abs=5e-4)
    laplace = {"releases__0__noise__mechanism": "laplace", "releases__0__noise__deviation": 0.5}
    truth = 2 + 2 * math.log1p(-1e-5 / 0.01)
    assert attacked(changed(HOLDERS, **laplace)) == pytest.approx(truth)
    assert truth < certified(changed(HOLDERS, **laplace)) <= 2


def test_known_samples_of_several_releases_compose():
    one = certified(COUNTED)
    assert certified(twice(COUNTED)) == pytest.approx(drawn(0.05, 1.0, 200), rel=0.01)
    assert certified(twice(COUNTED)) >= drawn(0.05, 1.0, 200)
    unsampled = twice(COUNTED)
    unsampled["releases"][1] |= {"sampling": {"rule": "everything"}, "denominator": "fixed"}
    assert certified(unsampled) > gaussian(math.hypot(10.0, 1.0))
    assert one < certified(unsampled) < gaussian(math.sqrt(200))


def test_a_removed_record_s_place_is_taken_by_its_opposite():
    """All others lie on the bound at the other side: a hidden sample with twice the distance."""
    accountant = dp.pld.PLDAccountant()
    accountant.compose(dp.PoissonSampledDpEvent(0.05, dp.GaussianDpEvent(0.5)), 100)
    assert certified(REMOVED) > accountant.get_epsilon(1e-5)


def test_coins_with_a_limit_are_no_coins_of_their_own():
    """One coin for 99 of 100 releases, another for the last: each is at the rate."""
    limited = changed(DP_SGD, releases__0__participation=99)
    assert certified(limited) > drawn(0.05, math.sqrt(99)) > 10 * certified(DP_SGD)


INFINITE = {
    "releases.0.noise.mechanism": {"releases__0__noise": {"mechanism": "none"}},
    "releases.0.clip": {"releases__0__clip": "none"},
    "releases.0.noise.generator": {"releases__0__noise__generator": "public seed"},
    "releases.0.noise.added_by": {"releases__0__noise__added_by": "server"},
    "releases.0.noise.added_by ": {"claims__0__unit": "client"},
    "releases.0.weights": {"releases__0__weights": "counts"},
    "releases.0.denominator": {"releases__0__denominator": "counts"},
    "complete": {"complete": False},
    "choices": {"choices": ["best round by training loss"]},
    "releases.0.sampling.rule": {
        "releases__0__sampling": {
            "rule": "shuffled",
            "batch": 10,
            "of": 100,
            "hidden_from": EVERYBODY,
        },
        "releases__0__participation": 10,
    },
}


@pytest.mark.parametrize("path", INFINITE)
def test_the_responsible_field_is_named(path):
    data = changed(DP_SGD, population__client=DP_SGD["population"]["record"])
    found = verdict(changed(data, claims__0__epsilon=1e6, **INFINITE[path]))
    assert found.certified.epsilon == math.inf
    assert found.verdict != HOLDS
    assert path.strip() in {reason.path for reason in found.certified.reasons}


@pytest.mark.parametrize("generator", ["public seed", "shared by clients", "reused over releases"])
@pytest.mark.parametrize("participation", [1, 3])
def test_noise_that_can_be_cancelled_is_refuted(generator, participation):
    data = changed(LOCAL_DP, releases__0__noise__generator=generator)
    data["releases"][0]["participation"] = participation
    found = verdict(data)
    assert found.attack.epsilon == math.inf
    assert found.verdict == NOT_SUPPORTED
    assert found.refuted
    assert found.responsible == ("releases.0.noise.generator",)
    assert found.change == "releases.0.noise.generator: independent"


def test_what_no_noise_hides_is_refuted():
    assert attacked(changed(DP_SGD, releases__0__clip="none")) == math.inf
    # A client's own noise is that of the others.
    data = changed(LOCAL_DP, releases__0__noise__generator="shared by clients")
    assert attacked(changed(data, claims__0__observer="client")) == math.inf
    assert attacked(changed(data, claims__0__observer="released model")) < math.inf


def test_the_same_noise_in_another_message_refutes_only_if_it_is_seen():
    data = changed(DP_SGD, releases__0__noise__generator="shared by clients")
    assert attacked(data) == 0
    data["releases"].append(copy.deepcopy(data["releases"][0]))
    data["releases"][0]["scope"], data["releases"][1]["scope"] = "one", "two"
    assert attacked(data) == math.inf
    data["releases"][1]["seen"] = dict.fromkeys(WHO, "nothing")
    assert attacked(data) == 0


def test_a_rare_unit_refutes_nothing():
    """With noise for nobody, a unit that never takes part is still hidden."""
    data = changed(DP_SGD, releases__0__noise={"mechanism": "none"})
    assert attacked(data) == math.inf
    rare = changed(data, releases__0__sampling__rate=1e-8)
    assert attacked(rare) == 0


def test_verdicts():
    found = verdict(changed(UNSAMPLED, claims__0__epsilon=100.0))
    assert (found.verdict, found.refuted) == (HOLDS, False)
    found = verdict(changed(UNSAMPLED, claims__0__epsilon=100.0, claims__0__adjacency="replace"))
    assert (found.verdict, found.elsewhere) == (HOLDS_ELSEWHERE, "add/remove of a record")
    found = verdict(changed(UNSAMPLED, claims__0__epsilon=10.0))
    assert (found.verdict, found.refuted) == (NOT_SUPPORTED, True)
    assert "releases.0.times: 4" in found.change
    found = verdict(changed(DP_SGD, complete=False))
    assert found.verdict == NO_CERTIFICATE
    assert found.responsible == ("complete",)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_the_smallest_change_makes_it_true(epsilon):
    data = changed(UNSAMPLED, claims__0__epsilon=epsilon)
    found = verdict(data)
    factor = float(found.change.split()[1])
    enough = changed(data, releases__0__noise__deviation=factor)
    assert verdict(enough).verdict == HOLDS
    less = changed(data, releases__0__noise__deviation=factor * 0.99)
    assert verdict(less).verdict == NOT_SUPPORTED


@pytest.mark.slow
def test_an_optimistic_curve_stays_below_the_certified_one():
    for rate in (0.001, 0.1, 0.9):
        for ratio in (0.6, 1.0, 5.0):
            for count in (1, 30, 1000):
                accountant = dp.pld.PLDAccountant()
                accountant.compose(dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(ratio)), count)
                low = optimistic_epsilon(rate, ratio, count, 1e-5)
                assert low <= accountant.get_epsilon(1e-5)


def test_a_huge_group_is_accounted_without_its_samples():
    data = changed(DP_SGD, population__record__contributors=10**9)
    assert certified(data) > 1e9


@pytest.mark.parametrize(
    "values",
    [
        INSIDE,
        {"releases__0__sampling": {**SAMPLED, "rate": 0.5}},
        {"releases__0__sampling": {**SAMPLED, "rate": 0.5}, "claims__0__adjacency": "add/remove"},
        {"claims__0__adjacency": "add/remove"},
    ],
)
def test_no_attack_is_claimed_where_more_than_one_vector_differs(values):
    """Training changes a larger contributor; a share of noise is missing."""
    shared = changed(LOCAL_DP, claims__0__observer="released model")
    assert attacked(shared) > 0 == attacked(changed(shared, **values))
