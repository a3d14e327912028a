"""Faults of noise and bounds that look right coordinate by coordinate, and errors of exactly the
size that checks say they find."""

import math
from functools import partial

import numpy as np
import pytest
from planted_bugs import bounds, shares
from scipy.special import ndtr

from fedpriv.audit.audit import subjects
from fedpriv.audit.premises import run_noise
from fedpriv.mechanisms.base import clipped_rows
from fedpriv.testing import ConformanceError, check_algorithm, experiment
from fedpriv.testing.experiments import SMALL
from fedpriv.testing.noise import noise_premises
from fedpriv.testing.noise_tests import Noise, Place, independence_tests, scale_tests
from fedpriv.testing.premise import power_lines, sharing_level, too_often

WORDS = ("algo=uldp_sgd", "algo.noise_multiplier=1")


def deviation(query):
    return query.mechanism.share_deviation(query.n_summed, query.sensitivity)


def uniform(work, query, share):
    own = deviation(query)
    return math.sqrt(3) * own * (2 * ndtr(share / own) - 1) if own else share


def cut(work, query, share):
    return np.clip(share, -2 * deviation(query), 2 * deviation(query))


def far_pairs(work, query, share):
    return share[np.arange(len(share)) % (-(-len(share) // 2))]


def shuffled_pairs(work, query, share):
    order = np.random.default_rng(1).permutation(len(share))
    return far_pairs(work, query, share)[order]


def mirrored(work, query, share):
    half = share[: -(-len(share) // 2)]
    return np.concatenate([half, half[: len(share) - len(half)][::-1]])


def without_its_mean(work, query, share):
    return (share - share.mean()) * math.sqrt(len(share) / (len(share) - 1))


def on_a_sphere(work, query, share):
    length = float(np.linalg.norm(share))
    return share * (deviation(query) * math.sqrt(len(share)) / length if length else 0.0)


FAULTS = {
    "noise of one length": on_a_sphere,
    "noise 3 % too small": lambda work, query, share: 0.97 * share,
    "noise 10 % too small": lambda work, query, share: 0.9 * share,
    "uniform noise of equal variance": uniform,
    "noise cut at two deviations": cut,
    "neighbouring coordinates share a draw": lambda work, query, share: np.repeat(share, 2)[::2][
        np.arange(len(share)) // 2
    ],
    "far coordinates share a draw": far_pairs,
    "any two coordinates share a draw": shuffled_pairs,
    "noise mirrored at the middle": mirrored,
    "noise with a period": lambda work, query, share: np.resize(share[:17], len(share)),
    "noise that adds up to zero": without_its_mean,
    "no finite noise": lambda work, query, share: np.full_like(share, math.nan),
    "no noise in one round of one silo": lambda work, query, share: (
        share * ((query.round, work.participant.silo.index) != (2, 1))
    ),
}


@pytest.fixture
def planted(request, monkeypatch):
    shares(monkeypatch, FAULTS[request.param])


FAST = {"no finite noise", "noise 3 % too small", "any two coordinates share a draw"}


@pytest.mark.parametrize(
    "planted",
    [one if one in FAST else pytest.param(one, marks=pytest.mark.slow) for one in FAULTS],
    indirect=True,
)
def test_a_fault_of_noise_fails_the_check_of_its_author(planted):
    with pytest.raises(ConformanceError, match=r"noise|has no sum"):
        check_algorithm(experiment(*SMALL, *WORDS).algo)


@pytest.mark.slow
@pytest.mark.parametrize("planted", FAULTS, indirect=True)
def test_a_fault_of_noise_alarms_the_audit(planted):
    exp = experiment(*WORDS, "rounds=3")
    plan = subjects(exp, 1)[0].plan
    found = run_noise(exp, plan, colluding=1, seconds=math.inf, values=60_000)
    assert any(premise.alarm for premise in sharing_level(found))


@pytest.mark.parametrize("method", ["uldp_avg", "uldp_naive"])
def test_a_bound_that_is_two_percent_too_large_is_found(method, monkeypatch):
    bounds(monkeypatch, lambda self, vectors: clipped_rows(vectors, 1.02 * self.clip)[0])
    with pytest.raises(ConformanceError, match=r"measured 1\.02"):
        check_algorithm(experiment(*SMALL, f"algo={method}").algo)


def test_the_check_prints_what_it_would_have_found():
    report = str(check_algorithm(experiment(*SMALL, *WORDS, "algo.user_rate=0.5").algo))
    for kind, most in (("noise", 1.0), ("bounds", 0.1), ("rate", 20.0)):
        [line] = [one for one in report.splitlines() if f"smallest error of {kind}" in one]
        assert float(line.split("found: ")[1].split("%")[0]) <= most


KINDS = ["correlation", "frequency", "lengths", "noise", "rank", "shape", "tails"]
SHAPE = (60, 500)
PLACES = [Place("update", 1 + at % 6) for at in range(SHAPE[0])]


def noise(x):
    return Noise("noise", x, np.arange(SHAPE[0]) // 6, PLACES, [0, 400, 500])


def draw(seed):
    return np.random.default_rng(seed).standard_normal(SHAPE)


def too_small(error, seed):
    return sharing_level(scale_tests(noise((1 - error) * draw(seed))))


def at_distance_three(error, seed):
    """Each coordinate and the one three places on have this correlation."""
    a = (math.sqrt(1 + 2 * error) - math.sqrt(1 - 2 * error)) / 2
    x = draw(seed)
    return sharing_level(
        independence_tests(noise(math.sqrt(1 - a * a) * x + a * np.roll(x, 3, axis=1)))
    )


def drawn_too_often(error, seed):
    hits = np.random.default_rng(seed).binomial(3000, 0.2 * (1 + error))
    return sharing_level([too_often("", "rate", int(hits), 3000, 0.2)])


@pytest.mark.parametrize(
    ("plant", "start"),
    [(too_small, "noise"), (at_distance_three, "correlation of coordinates of noise at distance"),
     (drawn_too_often, "rate")],
)  # fmt: skip
def test_an_error_of_the_stated_size_is_found_nine_times_in_ten(plant, start):
    """The planted one is a tenth larger: at the stated size itself, chance would often find 35."""
    error = next(one.smallest for one in plant(0.0, 0) if one.name.startswith(start))
    assert 0 < error < 0.5
    found = [
        any(one.alarm for one in plant(1.1 * error, seed) if one.name.startswith(start))
        for seed in range(40)
    ]
    assert np.mean(found) >= 0.9
    assert not any(one.alarm for seed in range(20) for one in plant(0.0, seed))


def test_a_run_of_one_round_is_measured():
    found = sharing_level(
        noise_premises(experiment(*SMALL, *WORDS, "rounds=1"), rounds=1, values=2000)
    )
    assert not any(one.alarm for one in found)
    assert [line.split()[3] for line in power_lines(found)] == KINDS


@pytest.mark.slow
def test_two_hundred_clean_runs_raise_no_alarm():
    """Noise of the operating system differs from run to run. One alarm is expected in fifty times
    of this test; two or more refute it."""
    exp = experiment(*SMALL, *WORDS, "rounds=3", "randomness=system", "algo.user_rate=0.5")
    measure = partial(noise_premises, exp, rounds=3, values=5000)
    alarms = [one for _ in range(200) for one in sharing_level(measure()) if one.alarm]
    assert len(alarms) <= 1, alarms


def test_the_lines_of_power_have_the_best_test_of_each_kind():
    lines = power_lines(too_small(0.0, 0))
    assert len(lines) == 1
    assert lines[0].startswith("smallest error of noise that would have been found: ")
