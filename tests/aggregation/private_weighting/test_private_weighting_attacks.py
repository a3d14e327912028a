"""What the protocol as published gives to its server, and this one does not: every attack here must
succeed against variant=paper, so that its failure against variant=sound says something. The server
uses what it has: the key, the silos' messages, and the total that it decrypts."""

import math
from contextlib import suppress

import numpy as np
import pytest
from gmpy2 import next_prime
from parties_of_generators import changed, noting, run
from private_sums import World, random_world, small
from scipy.stats import kstest

from fedpriv.aggregation.base import SERVER
from fedpriv.aggregation.private_weighting import silo as silo_module
from fedpriv.aggregation.private_weighting.silo import blind
from fedpriv.aggregation.private_weighting.weighted_product import multiply
from fedpriv.aggregation.weighted import KEYS
from fedpriv.crypto.paillier.keys import DecryptionKey
from fedpriv.crypto.uniform_integers import from_bytes
from fedpriv.errors import AggregationAbortedError

SIZE = 300


def fractions(world, round=1):
    """The total's fractional parts, which no multiple of C_LCM changes, as integers 0..C_LCM-1."""
    world.run(round)
    layout, key = world.encoding.layout, world.key
    totals = [key.decrypt(c) for c in multiply(key.public, list(world.messages().values()))]
    size = world.noise.shape[1]
    values = layout.unpack(totals, key.public.n, size)
    return [value % layout.lcm for value in values], layout.lcm


def membership_world(variant, records_elsewhere):
    """One user with a record in silo 0, and so many more in silo 1; another user to keep them
    company."""
    rng = np.random.default_rng(records_elsewhere)
    vectors = rng.uniform(-0.05, 0.05, (2, 2, SIZE))
    counts = np.array([[1, 1], [records_elsewhere, 0]])
    return World(small(variant=variant), counts, vectors, 5 * rng.normal(size=(2, SIZE))).ready()


@pytest.mark.parametrize("total", [1, 3, 7])
def test_noise_that_is_a_multiple_of_the_lcm_tells_a_users_count(total):
    parts, lcm = fractions(membership_world("paper", total - 1))
    denominators = [d for d in range(1, 21) if all(d * part % lcm == 0 for part in parts)]
    assert denominators[0] == total


@pytest.mark.parametrize("total", [1, 3, 7])
def test_dithered_totals_have_uniform_fractions_whatever_the_counts(total):
    parts, lcm = fractions(membership_world("sound", total - 1))
    assert kstest([part / lcm for part in parts], "uniform").pvalue > 1e-6
    assert not any(all(d * part % lcm == 0 for part in parts) for d in range(1, 21))


def modulo_n(world, silo, round, noise=None):
    world.run(round, noise=noise)
    n = world.key.public.modulus
    return [int(c % n) for c in world.messages()[silo]]


def attack_world(variant):
    """One parameter a ciphertext, coarse coordinates, one user in silo 0."""
    world = random_world(silos=2, users=3, size=8, n_max=170, precision=8, variant=variant)
    world.counts[0] = [4, 0, 0]
    world.counts[1] = [1, 2, 3]
    assert world.encoding.layout.slots == 1
    return world


def readable(variant):
    """Whether ciphertexts modulo n stay the same when noise, masks and round change."""
    world = random_world(size=20, variant=variant).ready()
    first = modulo_n(world, "silo0", 1)
    return [a == b for a, b in zip(first, modulo_n(world, "silo0", 2, noise=world.noise + 1))]


def test_without_fresh_residues_noise_and_masks_do_not_touch_ciphertexts_modulo_n(monkeypatch):
    # The same residue in every encryption of the server: a server may well choose so.
    monkeypatch.setattr(
        DecryptionKey, "residue", lambda self: pow(7, self.p * self.q, (self.p * self.q) ** 2)
    )
    assert all(readable("paper"))
    assert not any(readable("sound"))


@pytest.mark.parametrize(("variant", "visible"), [("paper", True), ("sound", False)])
def test_zeros_equal_parameters_and_ratios_show_only_without_fresh_residues(variant, visible):
    world = attack_world(variant)
    world.vectors[0, 0] = np.array([0, 64, 128, 64, 0, -128, 51, -119]) / 256
    seen, n = modulo_n(world.ready(), "silo0", 1), world.key.public.n
    assert (seen[0] == seen[4] == 1) == visible
    assert (seen[1] == seen[3]) == visible
    assert (seen[2] * seen[5] % n == 1) == visible
    # first^x = second^y modulo n exactly when x * 51 = y * -119 (up to the order of the base).
    powers = {pow(seen[6], x, n): x for x in range(1, 257)}
    ratios = [(powers[v], y) for y in range(-256, 257) if y and (v := pow(seen[7], y, n)) in powers]
    assert bool(ratios) == visible
    assert not visible or ratios[0][0] * 51 == ratios[0][1] * -119


def test_server_and_one_silo_together_learn_every_count():
    """The limit of the trust that is asked for, and a check that counts are there to be hidden."""
    world = random_world(users=5).ready()
    n, seed = world.key.public.n, world.protocols["silo1"].common_seed
    totals = [
        pow(inverse * blind(n, seed, user), -1, n)
        for user, inverse in enumerate(world.server.inverses)
    ]
    assert totals == world.counts.sum(axis=0).tolist()


def odd_modulus(bits=512):
    """A power of the product of small odd primes times a prime, with so many bits."""
    n = 1
    while n.bit_length() < bits - 64:
        n *= 3 * 5 * 7 * 11 * 13 * 17 * 19
    n *= int(next_prime(2 ** (bits - n.bit_length())))
    while n.bit_length() > bits:
        n //= 3
    return n


def set_up_with(n, world):
    """A set-up in which the server sends this modulus, and what silos answer to it."""
    seen = {name: [] for name in world.silos}

    def changed_key(sent):
        raw = n.to_bytes(64, "little")
        return {name: (raw, proof, keys) for name, (_, proof, keys) in sent.items()}

    setup = world.setup()
    setup[SERVER] = changed(setup[SERVER], KEYS, changed_key, name=SERVER)
    return setup | {name: noting(setup[name], seen[name]) for name in seen}, seen


def odd_part(number):
    return number // (number & -number)


@pytest.mark.parametrize("seed", range(2))
def test_a_modulus_of_small_odd_factors_would_tell_the_odd_part_of_every_count(seed, monkeypatch):
    """What the check of the modulus is for: without it, each blinded total has the count's own
    factors in common with the modulus."""
    n = odd_modulus()
    assert n.bit_length() == 512
    world = random_world(silos=3, users=4, n_max=20, seed=seed)
    setup, _ = set_up_with(n, world)
    with pytest.raises(AggregationAbortedError, match="server is refused: a modulus with a small"):
        run(setup)

    monkeypatch.setattr(silo_module, "check_modulus", lambda *args, **more: None)
    setup, seen = set_up_with(n, world)
    with suppress(AggregationAbortedError, ZeroDivisionError):
        run(setup)
    totals = [0] * 4
    for said in seen.values():
        numbers = from_bytes(said[-1][SERVER], n, 4)
        totals = [(total + number) % n for total, number in zip(totals, numbers)]
    counts = world.counts.sum(axis=0).tolist()
    assert [math.gcd(total, n) for total in totals] == [odd_part(count) for count in counts]


@pytest.mark.parametrize("power", [1, 2])
def test_prime_and_square_moduli_are_refused(power):
    p = int(next_prime(2**511 if power == 1 else 3 << 254))
    setup, _ = set_up_with(p**power, random_world(silos=2, users=2))
    with pytest.raises(AggregationAbortedError, match="server is refused: a modulus that is a pri"):
        run(setup)
