import numpy as np
import pytest
from private_sums import random_world, small
from scipy.stats import binomtest, chisquare, fisher_exact, ks_2samp

from fedpriv.aggregation.base import SERVER
from fedpriv.aggregation.private_weighting_integers import from_bytes
from fedpriv.aggregation.private_weighting_sampling import Options, as_options, choices, orders
from fedpriv.algorithms.base import Plan
from fedpriv.errors import ConfigError
from fedpriv.streams import Streams

SEED = bytes(range(32))
SMALL_SAFE_PRIME = 2**255 + 196479


def plan(round, streams=Streams(0, system=True)):  # noqa: B008
    return Plan(round, (), None, (), 0, None, streams)


def samples(options, users, rounds, streams=Streams(0, system=True)):  # noqa: B008
    """Who is sampled in each round, (rounds, users)."""
    rows = []
    for round in range(1, rounds + 1):
        order = orders(options, users, plan(round, streams))
        rows.append(order[np.arange(users), choices(options, users, plan(round, streams), SEED)])
    return np.array(rows)


@pytest.mark.parametrize(
    ("rate", "fraction"), [(0.1, (1, 10)), (0.3, (3, 10)), (1 / 3, (1, 3)), (0.99, (99, 100)), (1.0, (1, 1))]
)
def test_rates_are_fractions(rate, fraction):
    assert as_options(rate) == Options(*fraction)


@pytest.mark.parametrize("rate", [0.123, 0.005, 0.30000001])
def test_other_rates_are_refused(rate):
    with pytest.raises(ConfigError, match=r"algo\.user_rate=.* a fraction a / b"):
        as_options(rate)


@pytest.mark.parametrize("streams", [Streams(0, system=True), Streams(1)])
def test_every_user_is_sampled_at_the_rate_and_independently(streams):
    sampled = samples(Options(3, 10), 40, 500, streams)
    assert binomtest(int(sampled.sum()), sampled.size, 0.3).pvalue > 1e-6
    sizes = np.bincount(np.minimum(np.abs(sampled.sum(axis=1) - 12), 6), minlength=7)
    law = np.array([abs_law(k) for k in range(7)])
    assert chisquare(sizes, law * 500).pvalue > 1e-6
    first, second = sampled[:, 0], sampled[:, 1]
    table = [[(first & second).sum(), (first & ~second).sum()], [(~first & second).sum(), (~first & ~second).sum()]]
    assert fisher_exact(table).pvalue > 1e-6


def abs_law(distance):
    """Probability that a binomial of 40 draws at 0.3 is so far from 12, or at least 6 away."""
    from scipy.stats import binom

    if distance == 6:
        return 1 - sum(abs_law(k) for k in range(6))
    return sum(binom.pmf(k, 40, 0.3) for k in {12 - distance, 12 + distance})


def test_places_and_orders_are_uniform():
    order = np.concatenate([orders(Options(1, 4), 500, plan(round)) for round in (1, 2)])
    assert (order.sum(axis=1) == 1).all()
    assert chisquare(order.sum(axis=0)).pvalue > 1e-6
    places = [place for round in range(1, 5) for place in choices(Options(1, 4), 500, plan(round), SEED)]
    assert chisquare(np.bincount(places, minlength=4)).pvalue > 1e-6


def test_a_seeded_sample_repeats_and_a_private_one_depends_on_the_silos_seed():
    options = Options(1, 2)
    assert np.array_equal(samples(options, 50, 3, Streams(5)), samples(options, 50, 3, Streams(5)))
    assert choices(options, 50, plan(1), SEED) == choices(options, 50, plan(1), SEED)
    assert choices(options, 50, plan(1), SEED) != choices(options, 50, plan(1), bytes(32))
    assert choices(options, 50, plan(1), SEED) != choices(options, 50, plan(2), SEED)


@pytest.fixture
def small_group(monkeypatch):
    """Transfers in a group of 256 bits instead of 3072, for tests of many."""
    monkeypatch.setattr("fedpriv.aggregation.private_weighting_transfer.prime", lambda: SMALL_SAFE_PRIME)


def one_hot_world(users=12, **changes):
    """User u alone moves parameter u, and there is no noise: the total shows the sample."""
    world = random_world(silos=3, users=users, size=users, oblivious=True, **changes)
    world.vectors[:] = np.eye(users)
    world.noise[:] = 0
    return world.ready()


def sampled_of(total):
    values = np.round(total.vector, 3)
    assert set(values) <= {0.0, 1.0}  # never half a user: all silos chose the same place
    return values == 1


def test_all_silos_take_the_same_users_and_no_others(small_group):
    world = one_hot_world()
    seen = np.array([sampled_of(world.run(round, rate=0.25)) for round in range(1, 11)])
    assert binomtest(int(seen.sum()), seen.size, 0.25).pvalue > 1e-6
    assert len({row.tobytes() for row in seen}) > 1


def test_what_the_server_sees_tells_nothing_about_the_sample(small_group):
    # The server's own order fixes who would be sampled for each place; the requests must not tell the place.
    world, p = one_hot_world(users=8, streams=Streams(6, system=True)), SMALL_SAFE_PRIME
    parts, chosen = [], []
    for round in range(1, 26):
        world.said.transcript.clear()
        sampled = sampled_of(world.run(round, rate=0.5))
        requests = [x.message for x in world.said.transcript if x.receiver == SERVER and x.step == 1]
        assert len(requests) == 3
        parts += [from_bytes(raw, p, 8) for raw in requests]
        chosen += [sampled] * 3
    parts, chosen = np.array(parts, dtype=object).ravel() / p, np.array(chosen).ravel()
    assert ks_2samp(parts[chosen].astype(float), parts[~chosen].astype(float)).pvalue > 1e-6


def test_a_rate_of_one_needs_no_transfer():
    world = one_hot_world(users=4)
    assert sampled_of(world.run(1, rate=1.0)).all()
    assert {letter.step for letter in world.said.transcript[-7:]} >= {0, 1}


def test_a_seeded_oblivious_run_repeats():
    one, two = (one_hot_world(users=6, streams=Streams(8)).run(1, rate=0.5).vector.tolist() for _ in range(2))
    assert one == two


def test_the_plan_of_an_oblivious_run_holds_no_sample():
    from fedpriv.algorithms.base import Federation
    from fedpriv.algorithms.uldp import UldpSgd
    from fedpriv.mechanisms.gaussian import Gaussian

    algo = UldpSgd(clip=1.0, noise_multiplier=5.0, user_rate=0.5, weighting="records", global_lr=1.0)
    for oblivious in (False, True):
        made = algo.plan(1, Federation(9, 2, 3), Gaussian(1.0, 5.0), small(oblivious=oblivious), Streams(0))
        assert (made.users is None) == oblivious
        assert made.user_rate == 0.5
