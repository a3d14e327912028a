from fractions import Fraction

import numpy as np
import pytest
from private_sums import World, random_world, small
from queries import SYSTEM, query_for
from scipy.stats import binom, binomtest, chisquare, fisher_exact, ks_2samp, kstest, spearmanr

from fedpriv.aggregation.base import BROADCAST, SERVER
from fedpriv.aggregation.planner import Planner
from fedpriv.aggregation.private_weighting.sampling import (
    as_options,
    choices,
    options_to_hide,
    orders,
    transfer_session,
)
from fedpriv.aggregation.private_weighting.server import REQUESTS, SEED
from fedpriv.aggregation.private_weighting.silo import blind
from fedpriv.aggregation.weighted import COUNTS, KEYS
from fedpriv.algorithms.uldp import UldpSgd
from fedpriv.crypto.uniform_integers import from_bytes
from fedpriv.errors import ConfigError
from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.rounds.plan import Federation
from fedpriv.training.optimizers import Sgd
from fedpriv.util.streams import Streams

SECRET = bytes(range(32))


def query(round, streams=SYSTEM, place=0):
    return query_for(small(), 3, round, place=place, streams=streams)


def samples(options, users, rounds, streams=SYSTEM):
    """Who is sampled in each round, (rounds, users)."""
    rows = []
    for round in range(1, rounds + 1):
        order = orders(options, users, query(round, streams))
        rows.append(
            order[np.arange(users), choices(options, users, query(round, streams), seed=SECRET)]
        )
    return np.array(rows)


@pytest.mark.parametrize(
    ("rate", "fraction"),
    [(0.1, (1, 10)), (0.3, (3, 10)), (1 / 3, (1, 3)), (0.99, (99, 100)), (1.0, (1, 1))],
)
def test_rates_are_fractions(rate, fraction):
    assert as_options(rate) == Fraction(*fraction)


@pytest.mark.parametrize("rate", [0.123, 0.005, 0.30000001])
def test_other_rates_are_refused(rate):
    with pytest.raises(ConfigError, match=r"algo\.user_rate=.* a fraction a / b"):
        as_options(rate)


@pytest.mark.parametrize("streams", [Streams(0, system=True), Streams(1)])
def test_every_user_is_sampled_at_the_rate_and_independently(streams):
    sampled = samples(Fraction(3, 10), 40, 500, streams)
    assert binomtest(int(sampled.sum()), sampled.size, 0.3).pvalue > 1e-6
    # How far from 12 of 40 the samples' sizes are, and at least 6 away.
    far, sizes = np.minimum(np.abs(np.arange(41) - 12), 6), sampled.sum(axis=1)
    law = np.bincount(far, weights=binom.pmf(np.arange(41), 40, 0.3))
    assert chisquare(np.bincount(far[sizes], minlength=7), law * 500).pvalue > 1e-6
    first, second = sampled[:, 0], sampled[:, 1]
    table = [
        [(first & second).sum(), (first & ~second).sum()],
        [(~first & second).sum(), (~first & ~second).sum()],
    ]
    assert fisher_exact(table).pvalue > 1e-6


def test_places_and_orders_are_uniform():
    order = np.concatenate([orders(Fraction(1, 4), 500, query(round)) for round in (1, 2)])
    assert (order.sum(axis=1) == 1).all()
    assert chisquare(order.sum(axis=0)).pvalue > 1e-6
    places = [
        place
        for round in range(1, 5)
        for place in choices(Fraction(1, 4), 500, query(round), seed=SECRET)
    ]
    assert chisquare(np.bincount(places, minlength=4)).pvalue > 1e-6


def test_a_seeded_sample_repeats_and_a_private_one_depends_on_the_silos_seed():
    options = Fraction(1, 2)
    assert np.array_equal(samples(options, 50, 3, Streams(5)), samples(options, 50, 3, Streams(5)))
    assert choices(options, 50, query(1), seed=SECRET) == choices(
        options, 50, query(1), seed=SECRET
    )
    assert choices(options, 50, query(1), seed=SECRET) != choices(
        options, 50, query(1), seed=bytes(32)
    )
    assert choices(options, 50, query(1), seed=SECRET) != choices(
        options, 50, query(2), seed=SECRET
    )


@pytest.mark.parametrize("streams", [SYSTEM, Streams(1)])
def test_the_queries_of_a_round_draw_samples_of_their_own(streams):
    options, asked = Fraction(1, 2), [query(3, streams, place) for place in (0, 1)]
    one, two = (choices(options, 60, each, seed=SECRET) for each in asked)
    assert one != two
    one, two = (orders(options, 60, each) for each in asked)
    assert not np.array_equal(one, two)


def test_transfers_of_different_silos_and_queries_never_share_a_session():
    asked = [query(round, place=place) for round in (1, 2) for place in (0, 1)]
    assert len({transfer_session(name, each) for name in ("silo0", "silo1") for each in asked}) == 8


def test_there_is_something_to_hide_only_from_a_server_that_samples():
    assert options_to_hide(0.25, oblivious=True) == Fraction(1, 4)
    assert options_to_hide(0.25, oblivious=False) is None
    assert options_to_hide(0.123, oblivious=False) is None
    assert options_to_hide(1.0, oblivious=True) is None


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
    # The server's own order fixes who would be sampled for each place; the requests must not tell
    # the place.
    world, p = one_hot_world(users=8, streams=Streams(6, system=True)), small_group
    parts, chosen = [], []
    for round in range(1, 26):
        world.said.transcript.clear()
        sampled = sampled_of(world.run(round, rate=0.5))
        requests = [content for _, _, content in world.heard(REQUESTS)]
        assert len(requests) == 3
        parts += [from_bytes(raw, p, 8) for raw in requests]
        chosen += [sampled] * 3
    parts, chosen = np.array(parts, dtype=object).ravel() / p, np.array(chosen).ravel()
    assert ks_2samp(parts[chosen].astype(float), parts[~chosen].astype(float)).pvalue > 1e-6


def test_the_query_of_an_oblivious_run_holds_no_sample():
    algo = UldpSgd(
        clip=1.0, noise_multiplier=5.0, user_rate=0.5, weighting="records", global_lr=1.0
    )
    for oblivious in (False, True):
        planner = Planner(algo, small(oblivious=oblivious), Gaussian(1.0, 5.0), Sgd(), Streams(0))
        [made] = algo.queries(1, planner.draft(Federation(9, 2, 3)))
        assert (made.sampled is None) == oblivious
        assert made.user_rate == 0.5


# -- what a party has seen, over many random histograms ------------------------------------------


TRIALS, SILOS, USERS, SIZE = 200, 2, 2, 2
LIMIT = 5.5 / np.sqrt(TRIALS)
"""Correlations of independent columns stay below with probability 1 - 1e-7."""


@pytest.fixture(scope="module")
def histories():
    """For each trial: the counts, what the server saw, what silo 0 saw, all as fractions of their
    modulus."""
    rng, rows = np.random.default_rng(0), []
    for _ in range(TRIALS):
        counts = rng.integers(1, 11, (SILOS, USERS))
        # Each user's contributions are alike in all silos: the sum then does not depend on the
        # weights.
        vectors = np.broadcast_to(np.full((USERS, SIZE), 0.5), (SILOS, USERS, SIZE))
        world = World(small(key_bits=256), counts, vectors, rng.normal(size=(SILOS, SIZE))).ready()
        world.run()
        rows.append((counts, server_sees(world), silo_sees(world), with_a_silo(world)))
    counts, server, silo, together = (np.array(column) for column in zip(*rows))
    return counts.reshape(TRIALS, -1), server, silo, together


def server_sees(world):
    n, key, layout = world.key.public.n, world.key, world.encoding.layout
    blinded = [from_bytes(content, n, USERS) for _, _, content in world.heard(COUNTS)]
    assert len(blinded) == SILOS
    messages = list(world.messages().values())
    totals = layout.unpack(
        [key.decrypt(a * b % key.public.square) for a, b in zip(*messages)], n, SIZE
    )
    return [
        *(value / n for silo in blinded for value in silo),
        *(sum(column) % n / n for column in zip(*blinded)),
        *(inverse / n for inverse in world.server.inverses),
        *(key.decrypt(c) / n for message in messages for c in message),
        *(int(c % n) / n for message in messages for c in message),
        *(total % layout.lcm / layout.lcm for total in totals),
    ]


def silo_sees(world):
    public = world.key.public
    [(_, said)] = [
        content for _, receiver, content in world.heard(BROADCAST) if receiver == "silo0"
    ]
    heard = [x for x in world.said.transcript if (x.sender, x.receiver) == (SERVER, "silo1")]
    assert [x.message.phase for x in heard] == [
        KEYS,
        SEED,
        BROADCAST,
    ]  # keys, the sealed seed, and `said`
    inverses = public.from_bytes(said, USERS)
    # Also after taking off the blinds, which a silo knows.
    factors = [blind(public.n, world.protocols["silo0"].common_seed, user) for user in range(USERS)]
    unblinded = [pow(c, f, public.square) for c, f in zip(inverses, factors)]
    return [int(c) / public.n**2 for c in inverses + unblinded] + [
        int(c % public.n) / public.n for c in inverses
    ]


def with_a_silo(world):
    n = world.key.public.n
    factors = [blind(n, world.protocols["silo0"].common_seed, user) for user in range(USERS)]
    return [pow(i * f, -1, n) for i, f in zip(world.server.inverses, factors)]


def dependence(seen, secrets):
    """The largest rank correlation of any column seen with any secret."""
    return max(
        abs(spearmanr(column, secret).statistic) for column in seen.T for secret in secrets.T
    )


def with_totals(counts):
    """The counts, and each user's total."""
    return np.column_stack([counts, counts.reshape(TRIALS, SILOS, USERS).sum(axis=1)])


def test_a_dependence_would_be_seen(histories):
    counts, _, _, together = histories
    assert dependence(together, with_totals(counts)) > 0.99


def test_nothing_that_the_server_sees_depends_on_counts(histories):
    counts, server, _, _ = histories
    assert dependence(server, with_totals(counts)) < LIMIT
    many = counts.sum(axis=1) > np.median(counts.sum(axis=1))
    for column in server.T:
        assert kstest(column, "uniform").pvalue > 1e-7
        assert ks_2samp(column[many], column[~many]).pvalue > 1e-7


def test_nothing_that_a_silo_sees_depends_on_the_counts_of_others(histories):
    counts, _, silo, _ = histories
    secrets = counts[:, USERS:]
    assert dependence(silo, secrets) < LIMIT
    many = secrets.sum(axis=1) > np.median(secrets.sum(axis=1))
    for column in silo.T:
        assert ks_2samp(column[many], column[~many]).pvalue > 1e-7
