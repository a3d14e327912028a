"""What a party has seen, over many random histograms, against the counts that it must not learn."""

import numpy as np
import pytest
from private_sums import World, small
from scipy.stats import ks_2samp, kstest, spearmanr

from fedpriv.aggregation.base import BROADCAST, SERVER
from fedpriv.aggregation.private_weighting.integers import blind
from fedpriv.aggregation.private_weighting.server import SEED
from fedpriv.aggregation.weighted import COUNTS, KEYS
from fedpriv.crypto.uniform_integers import from_bytes

TRIALS, SILOS, USERS, SIZE = 1000, 2, 2, 2
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
