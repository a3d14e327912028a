"""What charges cost together that are chosen one after the other."""

import math
import random

import dp_accounting as dp
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import norm

from fedpriv.accountants.charges import Charge
from fedpriv.accountants.events import ADD_REMOVE, RELEASED_MODEL, REPLACE, SERVER, Event
from fedpriv.accountants.filters import ORDERS, Budget
from fedpriv.errors import ConfigError

GAUSSIAN = dp.GaussianDpEvent(2.5)
DELTA = 1e-5


def event(mechanism=GAUSSIAN, observer=RELEASED_MODEL, unit="user", adjacency=ADD_REMOVE, **about):
    return Event(observer, unit, adjacency, mechanism, None, **about)


def released(*events, run=""):
    return Charge(RELEASED_MODEL, events or (event(),), run)


def sampled(rate, noise):
    return released(event(dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(noise))))


def spent(*charges, near=3.0):
    return Budget(near, DELTA).spent({charge: charges.count(charge) for charge in charges})


def exact(*multipliers):
    """The closed form of dp_accounting (Balle and Wang 2018) at half of delta."""
    gap = math.sqrt(sum(1 / one**2 for one in multipliers))
    return pytest.approx(dp.get_epsilon_gaussian(1 / gap, DELTA / 2), rel=1e-9)


def test_gaussians_of_all_kinds_have_one_sum():
    """Of observers, adjacencies, groups of users and groups of records."""
    server = Charge(SERVER, (event(observer=SERVER),))
    others = [event(adjacency=REPLACE), event(group="strict")]
    assert spent(released()) == exact(2.5)
    for other in (server, *map(released, others)):
        assert spent(released(), other) == exact(2.5, 2.5)
    assert spent(released(), released(event(group_size=4))) == exact(2.5, 2.5 / 4)
    loud = released(event(dp.GaussianDpEvent(1.5)))
    assert spent(*[released()] * 3, loud, loud) == exact(2.5, 2.5, 2.5, 1.5, 1.5)


def test_no_budget_is_of_several_units():
    """A user may have many records, and one record absent replaces what its user sends."""
    with pytest.raises(ConfigError, match="units=user, record: answers that protect one unit"):
        spent(released(), released(event(unit="record")))


def test_silos_are_the_same_in_all_runs_and_batches_are_not():
    """A record is in one batch of a run; which one in another run, nobody knows."""
    silos = [event(scope="silo0"), event(scope="silo1")]
    assert spent(released(*silos), released(*silos)) == exact(2.5, 2.5)
    assert spent(released(silos[0]), released(silos[1])) == exact(2.5)
    one, two = event(scope="silo0/batch1"), event(scope="silo0/batch2")
    assert spent(released(one, run="a"), released(two, run="a")) == exact(2.5)
    assert spent(released(one, run="a"), released(two, run="b")) == exact(2.5, 2.5)
    assert spent(released(one, run="a"), *[released()] * 2) == exact(2.5, 2.5, 2.5)


def test_of_groups_of_users_the_costliest_counts():
    loud, quiet = event(dp.GaussianDpEvent(1.5), group="open"), event(group="strict")
    assert spent(released(loud, quiet)) == exact(1.5)
    assert spent(released(loud, quiet, event())) == exact(1.5, 2.5)


def test_a_certificate_for_one_adjacency_is_enough():
    nothing = event(dp.NonPrivateDpEvent(), adjacency=REPLACE)
    assert spent(released(nothing, event())) == exact(2.5)
    assert spent(released(event(dp.NonPrivateDpEvent(), unit="record"), event())) == exact(2.5)
    assert spent(released(nothing), released()) == math.inf


def test_what_shows_nothing_costs_nothing():
    assert spent() == spent(Charge(RELEASED_MODEL, ())) == 0.0
    assert spent(released(), Charge(SERVER, ())) == exact(2.5)


def test_what_no_curve_is_known_for_is_refused():
    mixture = dp.dp_event.MixtureOfGaussiansDpEvent(1.0, (0.0, 1.0), (0.5, 0.5))
    with pytest.raises(ConfigError, match="cannot account"):
        spent(released(event(mixture)))
    poisson = event(dp.PoissonSampledDpEvent(0.1, GAUSSIAN), adjacency=REPLACE, group_size=2)
    with pytest.raises(ConfigError, match="groups of 2"):
        spent(released(poisson))


def by_one_order(charges, delta):
    """Epsilon of dp_accounting's Renyi curves, summed, at `delta`."""
    accountant = dp.rdp.RdpAccountant([order for order in ORDERS if order in range(2, 65)])
    for charge, count in charges.items():
        accountant.compose(charge.events[0].certified, count)
    return accountant.get_epsilon(delta)


def by_convolution(charges):
    """Epsilon if all charges were fixed beforehand: a lower bound of any filter's."""
    accountant = PLDAccountant(value_discretization_interval=1e-3)
    for charge, count in charges.items():
        accountant.compose(charge.events[0].certified, count)
    return accountant.get_epsilon(DELTA)


def drawn(chance):
    """Charges of runs with a sample of users, or all."""
    charges = {}
    for _ in range(chance.randrange(1, 6)):
        noise = chance.uniform(1.0, 6.0)
        one = released(event(dp.GaussianDpEvent(noise)))
        if chance.random() < 0.7:
            one = sampled(chance.uniform(0.005, 0.3), noise)
        charges[one] = chance.randrange(1, 40)
    return charges


SEEDS = [*range(5), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(5, 50))]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_total_is_above_what_an_independent_accountant_adds_up(seed):
    """And at most what any order alone says with its weight of delta, at least 1/256."""
    charges = drawn(random.Random(seed))
    least = by_convolution(charges)
    found = Budget(least, DELTA).spent(charges)
    assert least <= found <= by_one_order(charges, DELTA / 256)


PRICES = {"loud": sampled(0.02, 1.0), "quiet": sampled(0.2, 4.0), "half": sampled(0.5, 3.0)}


@pytest.mark.parametrize("name", PRICES)
def test_what_choosing_afterwards_costs(name):
    """Near the budget 6 to 18 % above Renyi curves of runs that are fixed beforehand."""
    charges = {PRICES[name]: 200}
    beforehand = by_one_order(charges, DELTA)
    found = Budget(beforehand, DELTA).spent(charges)
    assert 1.03 * beforehand < found < 1.18 * beforehand


# -- an attack that chooses ------------------------------------------------------------------------


def chosen_by_results(budget, first, second):
    """delta at the budget's epsilon, by integration, of an analyst who sees one Gaussian release of
    gap `first`, and then asks for one of gap `second` if the loss so far is above a threshold, and
    for nothing otherwise: the worst threshold."""
    grid = np.linspace(-12, 12, 4001)
    weights = norm.pdf(grid) * (grid[1] - grid[0])
    losses = first * grid + first**2 / 2  # under the larger of the two

    def beyond(epsilon, gap):
        """Hockey-stick divergence of one release, for an array of epsilons."""
        high, low = norm.cdf(gap / 2 - epsilon / gap), norm.cdf(-gap / 2 - epsilon / gap)
        return high - np.exp(epsilon) * low

    def delta_at(threshold):
        more = losses > threshold
        ends = np.maximum(0, -np.expm1(budget.epsilon - losses))
        return float(weights @ np.where(more, beyond(budget.epsilon - losses, second), ends))

    return -minimize_scalar(lambda t: -delta_at(t), bounds=(-2, 8), method="bounded").fun


def test_who_chooses_by_results_stays_within_delta():
    """What is left is spent or not by the first result, up to the last charge that fits."""
    budget = Budget(2.0, DELTA)
    gap = brentq(lambda m: dp.get_epsilon_gaussian(1 / m, DELTA / 2) - 2.0, 0.1, 2.0)
    for share in (0.2, 0.5, 0.8):
        first, second = gap * math.sqrt(share), gap * math.sqrt(1 - share)
        both = [released(event(dp.GaussianDpEvent(1 / part))) for part in (first, second)]
        assert budget.spent(dict.fromkeys(both, 1)) == pytest.approx(2.0, rel=1e-6)
        assert 1e-7 < chosen_by_results(budget, first, second) <= DELTA
