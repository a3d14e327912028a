"""Certificates against a judge that executes claims and shares no code with them."""

import math
from collections import Counter
from functools import cache

import pytest
from claim_examples import DP_SGD, EVERYBODY, changed
from executed_claims import lower_bound
from random_claims import draw_claim
from two_points import (
    NOTHING,
    Gaussian,
    LaplaceSum,
    Largest,
    Pair,
    composed,
    epsilon,
    gaussian_epsilon,
    hidden_coin,
    shifted,
    told_apart,
)

from fedpriv.claims.certificates import certify
from fedpriv.claims.reading import parse
from fedpriv.claims.refutations import attack_bound
from fedpriv.errors import ConfigError

ERROR = 1e-6
"""Relative error of two closed formulas in floating point; the judge rounds down otherwise."""
LOOSE = 1.1


def sampled(rate, noise):
    return shifted(noise, {1.0: rate, 0.0: 1 - rate}, {0.0: 1.0})


def one(noise):
    return shifted(noise, {1.0: 1.0}, {0.0: 1.0})


def coin(rate, noise):
    return told_apart([(rate, rate, one(noise)), (1 - rate, 1 - rate, NOTHING)])


def amplified(rate, value):
    """Epsilon of one release with a hidden coin (Balle, Barthe and Gaboardi 2018, Theorem 8)."""
    return math.log1p(rate * math.expm1(value))


# Gaussian: bisection of Balle and Wang (2018), Theorem 8. Sampled: connect-the-dots PLD (Doroshenko
# et al. 2022), confirmed by Opacus's PRV accountant. Laplace: delta = 1 - exp((epsilon - 1/b) / 2).
# A coin that is seen: `rate` times the curve. At delta 1e-5.
GOLDEN = [
    (one(Gaussian(5.0)), 1, 0.72552),
    (one(Gaussian(5.0)), 200, 15.45616),
    (Pair(one(Gaussian(5.0)).p, one(Gaussian(5.0)).q), 100, 9.99726),
    (sampled(0.1, Gaussian(5.0)), 100, 0.7583),
    (sampled(0.3, Gaussian(5.0)), 200, 3.7233),
    (sampled(0.7, Gaussian(5.0)), 100, 6.5912),
    (coin(0.01, Gaussian(1.0)), 1, gaussian_epsilon(1.0, 1e-3)),
    (coin(0.01, LaplaceSum(0.5)), 1, 2 + 2 * math.log1p(-1e-3)),
    (one(LaplaceSum(0.5)), 1, 2 + 2 * math.log1p(-1e-5)),
    (sampled(0.3, Gaussian(1.0)), 1, amplified(0.3, gaussian_epsilon(1.0, 1e-5 / 0.3))),
    (
        hidden_coin(composed(one(Gaussian(2.0)), 4, 1e-5), 0.3),
        1,
        amplified(0.3, gaussian_epsilon(1.0, 1e-5 / 0.3)),
    ),
    (one(Largest(Gaussian(2.0), 1)), 1, gaussian_epsilon(0.5, 1e-5)),
]


@pytest.mark.parametrize(("pair", "times", "expected"), GOLDEN)
def test_the_judge_is_just_below_golden_numbers(pair, times, expected):
    found = epsilon([(pair, times)], 1e-5)
    assert expected * 0.995 < found < expected * 1.0001


@pytest.mark.parametrize(
    ("law", "shift", "x", "above"),
    [  # by the characteristic function (mpmath); as a product
        (LaplaceSum(1.0, 3), 0.0, 3.0, 0.0995741),
        (LaplaceSum(1.0, 3), 0.0, -1.0, 0.6781055),
        (Largest(Gaussian(1.0), 7), 2.0, 2.0, 1 - 0.5 * 0.9772499**6),
    ],
)
def test_noise_of_sums(law, shift, x, above):
    assert math.exp(law.log_sf(x, shift)) == pytest.approx(above, abs=1e-6)


ABSENT = changed(
    DP_SGD,
    claims__0__unit="client",
    claims__0__adjacency="zero-out",
    population={"client": {"contributors": 1, "scopes": 1}},
    releases__0__contributor="client",
    releases__0__times=1,
    releases__0__participation=1,
    releases__0__sampling__rate=0.01,
)
"""A client that was not drawn sends neither vector nor noise."""
NOISE = ABSENT["releases"][0]["noise"]
BATCH = {"batch": 90, "of": 100, "drawn": "each time", "hidden_from": EVERYBODY}
BATCH = changed(
    DP_SGD,
    releases__0__times=1,
    releases__0__participation=1,
    releases__0__sampling={"rule": "without replacement", **BATCH},
)
FAULTS = [  # claims that were once certified below what they release
    (ABSENT, 3.139),
    (changed(ABSENT, releases__0__noise=NOISE | {"mechanism": "laplace", "deviation": 0.5}), 1.998),
    (changed(ABSENT, claims__0__adjacency="add/remove"), math.inf),
    (BATCH, amplified(0.9, gaussian_epsilon(2.0, 1e-5 / 0.9))),
    (  # one more contributor, of whom a batch leaves one out
        changed(BATCH, releases__0__sampling__of=90),
        amplified(90 / 91, gaussian_epsilon(2.0, 1e-5 / (90 / 91))),
    ),
    (
        changed(
            DP_SGD,
            claims__0__adjacency="replace",
            population__record__contributors=2,
            releases__0__denominator="counts",
        ),
        math.inf,
    ),
]


@pytest.mark.parametrize(("claim", "expected"), FAULTS)
def test_claims_that_were_certified_too_small(claim, expected):
    assert lower_bound(claim) == pytest.approx(expected, rel=5e-3)
    assert certified(claim) >= lower_bound(claim) * (1 - ERROR)


def certified(claim):
    """The certified epsilon; infinite for a file that is refused or asked about."""
    try:
        parsed = parse(claim)
    except ConfigError:
        return math.inf
    known = not parsed.questions and all((*parsed.statements, *parsed.releases))
    return certify(parsed, parsed.statements[0]).epsilon if known else math.inf


UNITS = ("record", "user", "client")


def why_loose(claim):
    """The first reason for which a certificate may be well above the judge; empty without one."""
    statement = claim["claims"][0]
    observer, unit = statement["observer"], statement["unit"]
    seen = [each for each in claim["releases"] if each["seen"][observer] != "nothing"]
    spread = claim["population"][unit]
    for each in seen:
        sampling, rule = each["sampling"], each["sampling"]["rule"]
        known = observer not in sampling.get("hidden_from", ())
        stays = UNITS.index(unit) < UNITS.index(each["contributor"])
        reasons = {
            "Laplace: pure guarantees or zCDP": each["noise"]["mechanism"] == "laplace",
            "shuffled: one release a pass, wherever in it": rule == "shuffled",
            "batch: unsampled, or Renyi divergences": rule == "without replacement",
            "fewer participations than releases": each["participation"] < each["times"],
            "sample with another release": sampling.get("drawn") == "with another release",
            "Poisson, messages seen: unsampled": each["seen"][observer] == "messages",
            "Poisson, sample known: unsampled": known,
            "one sample for all, several contributors": sampling.get("drawn") == "once"
            and spread["contributors"] > 1,
            "Poisson, counts seen: unsampled": "counts" in (each["weights"], each["denominator"]),
            "Poisson, clients with noise of their own": each["contributor"] == "client",
            "Poisson, replace or a part of a contributor: unsampled": stays
            or statement["adjacency"] == "replace",
        }
        apart = each["contributor"] == "client" and spread["contributors"] > 1
        if rule == "everything":
            first = "Laplace: pure guarantees or zCDP"
            messages = each["seen"][observer] == "messages" and apart
            reasons = {first: reasons[first], "messages with noise of their own": messages}
        for reason, holds in reasons.items():
            if holds:
                return reason
    return ""


def attacked(claim):
    """The epsilon of our own attack; zero for a file that is refused."""
    try:
        parsed = parse(claim)
    except ConfigError:
        return 0.0
    return attack_bound(parsed, parsed.statements[0]).epsilon


@cache
def both(seed):
    """What is certified for a drawn claim, and what the judge finds."""
    claim = draw_claim(seed)
    return certified(claim), lower_bound(claim)


def compare(seeds):
    """Claims by outcome; seeds that are certified below the judge or an attack of ours, or above
    the judge without reason."""
    outcomes, low, unexplained = Counter(), {}, {}
    for seed in seeds:
        claim, (ours, theirs) = draw_claim(seed), both(seed)
        least = max(theirs, attacked(claim))
        if ours < least * (1 - ERROR) - ERROR:
            low[seed] = (ours, least)
        elif math.isinf(ours):
            outcomes["none" if math.isinf(theirs) else "none, finite for the judge"] += 1
        elif ours > theirs * LOOSE + 0.01:
            outcomes["above: " + why_loose(claim)] += 1
            if not why_loose(claim):
                unexplained[seed] = (ours, theirs)
        else:
            outcomes["within a tenth" if theirs else "nothing is seen"] += 1
    return outcomes, low, unexplained


@pytest.mark.parametrize(
    ("claims", "near"), [(80, 10), pytest.param(2000, 300, marks=pytest.mark.slow)]
)
def test_no_certificate_of_a_drawn_claim_is_below_the_judge(claims, near):
    outcomes, low, unexplained = compare(range(claims))
    assert (low, unexplained) == ({}, {})
    assert outcomes["within a tenth"] >= near


def test_the_judge_sees_certificates_that_are_a_tenth_too_small():
    pairs = [both(seed) for seed in range(80)]
    assert sum(0.9 * ours < theirs < math.inf for ours, theirs in pairs) >= 10
