"""Laplace noise: its distribution, what it costs, how far it reaches, and who may not have it."""

import math
from itertools import product

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, LaplaceDpEvent, NonPrivateDpEvent
from dp_accounting.pld import PLDAccountant
from scipy import stats

from fedpriv.accountants.charges import Charge
from fedpriv.accountants.events import ADD_REMOVE, RELEASED_MODEL, Event
from fedpriv.accountants.filters import Budget
from fedpriv.accountants.pld import pld_epsilon
from fedpriv.accountants.rdp import rdp_epsilon
from fedpriv.encoding.fixed_point import FixedPoint
from fedpriv.encoding.slot_layout import SlotLayout
from fedpriv.encoding.slots import SlotEncoding
from fedpriv.errors import ConfigError
from fedpriv.mechanisms.discrete_sampling import MOST_SCALE, discrete_laplace
from fedpriv.mechanisms.laplace import Laplace
from fedpriv.testing.experiments import experiment
from fedpriv.util.streams import Streams, SystemGenerator

ENCODING = FixedPoint(64, 100.0, 4)
DELTA = 1e-5


def seeded():
    return Streams(0).generator("laplace")


def likely(scale, reach):
    """Probabilities of the discrete Laplace distribution on -reach .. reach."""
    weights = np.exp(-np.abs(np.arange(-reach, reach + 1)) / scale)
    return weights / weights.sum()


@pytest.mark.parametrize(("scale", "rng"), [(1, seeded()), (3, seeded()), (5, SystemGenerator())])
def test_samples_have_the_discrete_laplace_distribution(scale, rng):
    samples = discrete_laplace(scale, 10_000, rng)
    k = np.arange(-4 * scale, 4 * scale + 1)
    expected = likely(scale, 60 * scale)[56 * scale : -56 * scale] * len(samples)
    found = np.array([(samples == one).sum() for one in k])
    rest = len(samples) - np.array([found.sum(), expected.sum()])
    tested = stats.chisquare(np.append(found, rest[0]), np.append(expected, rest[1]))
    assert tested.pvalue > 1e-6


def test_the_low_digits_of_large_samples_are_uniform():
    samples = discrete_laplace(3**29, 5_000, seeded())
    for modulus in (2, 3, 64):
        assert stats.chisquare(np.bincount(samples % modulus, minlength=modulus)).pvalue > 1e-6


@pytest.mark.parametrize("scale", [0, MOST_SCALE + 1])
def test_no_other_scale_is_sampled(scale):
    with pytest.raises(ValueError, match=f"scale={scale}: an integer from 1 to"):
        discrete_laplace(scale, 1, seeded())


@pytest.mark.parametrize("silos", [1, 3])
@pytest.mark.parametrize("rng", [seeded(), SystemGenerator()], ids=["seeded", "system"])
def test_every_silo_adds_the_whole_noise_in_steps(silos, rng):
    """A sum of n Laplace numbers is the difference of two Gamma(n) numbers."""
    mechanism, size = Laplace(0.5, 4.0), 3_000
    shares = [mechanism.noise_share(size, silos, rng, encoding=ENCODING) for _ in range(silos)]
    for share in shares:
        assert (share / ENCODING.unit == np.rint(share / ENCODING.unit)).all()
        assert stats.kstest(share, "laplace", (0, 2.0)).pvalue > 1e-6
    other = np.random.default_rng(1)
    gammas = other.gamma(silos, 2.0, size=(2, 100_000))
    assert stats.ks_2samp(sum(shares), gammas[0] - gammas[1]).pvalue > 1e-6
    inside = np.abs(sum(shares)) <= mechanism.spread(silos)
    assert inside.mean() > 0.95 - 4 * math.sqrt(0.95 * 0.05 / size)


def hockey_stick(p, q, epsilon):
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def declared(moved, scale, epsilon):
    """Delta of Laplace noise on a number that moves so far (dp_accounting's closed form)."""
    return max(0.0, -math.expm1((epsilon - moved / scale) / 2))


@pytest.mark.parametrize("scale", [1, 2, 8])
@pytest.mark.parametrize("moved", [(1,), (5,), (1, 1), (3, -7), (2, 0)])
def test_no_test_tells_a_vector_apart_better_than_the_number_that_is_charged(moved, scale):
    line = likely(scale, 40 * scale)
    noise, there = line, np.roll(line, moved[0])
    if len(moved) == 2:
        noise, there = np.outer(noise, line), np.outer(there, np.roll(line, moved[1]))
    most = sum(map(abs, moved)) + len(moved) / 4
    for epsilon in np.linspace(0, most / scale, 41):
        for exact in (hockey_stick(there, noise, epsilon), hockey_stick(noise, there, epsilon)):
            assert exact <= declared(most, scale, epsilon) + 1e-12


def test_without_the_quarter_of_a_step_some_test_would():
    line = likely(2, 80)
    epsilons = np.linspace(0, 0.5, 41)
    exact = [hockey_stick(np.roll(line, 1), line, one) for one in epsilons]
    assert any(one > declared(1, 2, epsilon) + 1e-3 for one, epsilon in zip(exact, epsilons))


def test_rounding_and_the_quarters_are_charged_in_every_silo_and_coordinate():
    # 4 silos, 50 coordinates, 1.25 steps
    charged = Laplace(0.5, 4.0).rounding(ENCODING, 50) * 0.5
    assert charged == pytest.approx(4 * 50 * 1.25 * ENCODING.unit, rel=1e-12)


@pytest.mark.parametrize("noise", [0.2, 1.0, 3.7])
def test_epsilon_is_dp_accountings_and_pure_at_delta_0(noise):
    once = [(Laplace(1.0, noise).event(), 1)]
    accountant = PLDAccountant().compose(LaplaceDpEvent(noise))
    for delta in (1e-10, DELTA, 0.1):
        exact = accountant.get_epsilon(delta)
        assert pld_epsilon(once, ADD_REMOVE, delta) == pytest.approx(exact, abs=2e-4)
    assert pld_epsilon(once, ADD_REMOVE, 1e-300) == pytest.approx(1 / noise, rel=1e-15)
    assert 1 / noise + 2 * math.log1p(-DELTA) <= rdp_epsilon(once, ADD_REMOVE, DELTA)


def test_several_releases_cost_at_most_the_sum_and_no_less_than_they_do():
    events = [(LaplaceDpEvent(2.0), 2), (LaplaceDpEvent(4.0), 1)]
    accountant = PLDAccountant()
    for event, count in events:
        accountant.compose(event, count)
    found = pld_epsilon(events, ADD_REMOVE, DELTA)
    assert accountant.get_epsilon(DELTA) - 1e-3 <= found <= 1.25
    with pytest.raises(ConfigError, match="LaplaceDpEvent"):
        pld_epsilon([*events, (GaussianDpEvent(1.0), 1)], ADD_REMOVE, DELTA)


def test_a_ledger_charges_it():
    event = Event(RELEASED_MODEL, "user", ADD_REMOVE, LaplaceDpEvent(2.0), None)
    charge = Charge.read(Charge(RELEASED_MODEL, (event,)).text)
    assert charge.events == (event,)
    spent = [Budget(3.0, DELTA).spent({charge: count}) for count in (1, 2, 4)]
    exact = [PLDAccountant().compose(LaplaceDpEvent(2.0), n).get_epsilon(DELTA) for n in (1, 2, 4)]
    assert all(one <= found <= 3.5 * one for one, found in zip(exact, spent))
    assert spent == sorted(spent)


def test_events_follow_sensitivity_and_need_one_unknown_silo():
    mechanism = Laplace(1.0, 5.0)
    assert mechanism.event(sensitivity=2) == LaplaceDpEvent(2.5)
    assert mechanism.event(shares=0.25) == mechanism.event() == LaplaceDpEvent(5.0)
    assert mechanism.event(shares=0) == Laplace(1.0, 0.0).event() == NonPrivateDpEvent()


def test_vectors_are_cut_to_their_l1_norm():
    import torch

    rows, lengths = Laplace(2.0, 1.0).bound(torch.tensor([[3.0, -1.0], [0.5, -1.0], [0.0, 0.0]]))
    assert lengths.tolist() == [4.0, 1.5, 0.0]
    assert rows.tolist() == [[1.5, -0.5], [0.5, -1.0], [0.0, 0.0]]


def beyond(weights, distance):
    """The chance that a weighted sum of Laplace numbers of scale 1 is beyond a distance, by partial
    fractions; squares of weights differ."""
    squares = np.square(weights)
    parts = [np.prod([one / (one - other) for other in squares if other != one]) for one in squares]
    return float(np.dot(parts, np.exp(-distance / np.abs(weights))))


def test_no_weighted_sum_reaches_further_than_is_said():
    reached = Laplace(1.0, 1.0).spread(1)
    assert beyond([1.0], reached) == pytest.approx(0.05, rel=1e-12)
    for shares in product(np.linspace(0.013, 1, 12), np.linspace(0.021, 1, 12), [0.0, 0.4, 0.97]):
        weights = np.sqrt([one for one in (1.0, *shares) if one])
        weights *= 1 + 1e-3 * np.arange(len(weights))  # no two are equal
        assert beyond(weights / np.linalg.norm(weights), reached) <= 0.05


TRAIN = [
    "algo=uldp_avg",
    "algo=uldp_sgd",
    "algo=uldp_naive",
    "algo=minibatch_sgd",
    "algo=uldp_group_2",
    "algo=dp_sgd",
]


@pytest.mark.parametrize("algo", TRAIN)
def test_methods_that_train_refuse_it(algo):
    with pytest.raises(ConfigError, match=r"^mechanism=laplace: gaussian: [^\n]+$"):
        experiment(algo, "mechanism=laplace")


def test_a_grid_that_does_not_fit_is_refused():
    layout = SlotLayout(512, 20, 20, users=5, silos=2, bound=0.1, noise=10.0)
    refused = [
        (FixedPoint(32, 1e7, 5), r"aggregation\.bits=32: .* grid steps"),
        (FixedPoint(64, 1e-12, 1), r"aggregation\.range=1e-12"),
        (SlotEncoding(layout), "mechanism=laplace: gaussian"),
        (None, "mechanism=laplace: gaussian"),
    ]
    for encoding, line in refused:
        with pytest.raises(ConfigError, match=line):
            Laplace(0.1, 1.0).check_encoding(5, encoding)
    with pytest.raises(ValueError, match="needs the grid"):
        Laplace(1.0, 1.0).noise_share(3, 1, seeded())
    assert not Laplace(1.0, 0.0).noise_share(3, 1, seeded(), encoding=ENCODING).any()
