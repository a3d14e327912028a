from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from parties_of_generators import SIGNERS, changed, run
from private_sums import World, random_world, small

from fedpriv.aggregation.base import BROADCAST, MESSAGE, SERVER
from fedpriv.aggregation.private_weighting import silo as silo_module
from fedpriv.aggregation.private_weighting.server import SEED
from fedpriv.aggregation.private_weighting.settings import CountsRefusedError
from fedpriv.aggregation.weighted import COUNTS, KEY, KEYS
from fedpriv.encoding.fixed_point import OutOfRangeError
from fedpriv.encoding.slot_layout import SlotOverflowError
from fedpriv.engines.inprocess import InProcess
from fedpriv.errors import AggregationAbortedError, ConfigError, SilenceError
from fedpriv.parties.traffic import Traffic
from fedpriv.testing.faults import Faulty, drop
from fedpriv.util.streams import Streams


@st.composite
def worlds(draw):
    silos, users = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    n_max = draw(st.sampled_from([10, 100]))
    clip = draw(st.sampled_from([0.1, 1.0, 3.0]))
    aggregation = small(n_max=n_max)
    blank = World(
        aggregation,
        np.ones((silos, users), int),
        np.zeros((silos, users, 1)),
        np.zeros((silos, 1)),
        clip,
    )
    slots = blank.encoding.layout.slots
    size = draw(
        st.sampled_from([1, slots - 1, slots, slots + 1, 2 * slots + 1]).filter(
            lambda size: size > 0
        )
    )
    counts = draw(arrays(np.int64, (silos, users), elements=st.integers(0, n_max // silos)))
    counts[draw(st.integers(0, silos - 1)), counts.sum(axis=0) == 0] = 1
    bound = clip / np.sqrt(size)
    values = st.one_of(st.just(0.0), st.just(bound), st.just(-bound), st.floats(-bound, bound))
    vectors = draw(arrays(np.float64, (silos, users, size), elements=values))
    noise = draw(arrays(np.float64, (silos, size), elements=st.floats(-5 * clip, 5 * clip)))
    return World(
        aggregation, counts, vectors, noise, clip, streams=Streams(draw(st.integers(0, 9)))
    )


@settings(max_examples=20)
@given(worlds())
def test_the_total_is_the_weighted_sum_exact_in_integers_and_near_in_reals(world):
    total = world.ready().run()
    layout = world.encoding.layout
    assert total.vector.tolist() == layout.decode(world.exact()).tolist()
    most = 2.0**-layout.precision * (world.counts.shape[1] + len(world.silos))
    np.testing.assert_allclose(total.vector, world.weighted(), rtol=1e-12, atol=most)
    assert world.encoding.rounding == most
    assert set(total.silos) == set(world.silos)


def test_the_papers_cap_of_2000_records_with_a_long_key():
    world = random_world(
        silos=2, users=2, size=3, most=999, n_max=2000, key_bits=3072, streams=Streams(1)
    )
    assert world.encoding.layout.lcm.bit_length() == 2878  # log2 lcm(1..2000) = 2877.385


def test_powers_serve_for_all_rounds_in_which_everybody_takes_part(monkeypatch):
    raised, raise_to_factors = [], silo_module.raise_to_factors

    def counting(public, ciphertexts, *arguments, **details):
        raised.append(len(ciphertexts))
        return raise_to_factors(public, ciphertexts, *arguments, **details)

    monkeypatch.setattr(silo_module, "raise_to_factors", counting)
    world = random_world(streams=Streams(6)).ready()
    for round in (1, 2, 3):
        assert (
            world.run(round).vector.tolist()
            == world.encoding.layout.decode(world.exact(round)).tolist()
        )
    assert len(raised) == len(world.silos)
    # A sample has ciphertexts of its own, and so has what follows it.
    everybody = np.ones(world.counts.shape[1], dtype=bool)
    world.run(4, everybody, 0.5)
    assert len(raised) == 2 * len(world.silos)
    assert world.run(5).vector.tolist() == world.encoding.layout.decode(world.exact(5)).tolist()


def test_users_outside_the_sample_count_nothing_and_silos_are_not_told():
    world = random_world(users=6, streams=Streams(2)).ready()
    sampled = np.array([True, False, True, False, False, True])
    assert (
        world.run(1, sampled, 0.5).vector.tolist()
        == world.encoding.layout.decode(world.exact(1, sampled)).tolist()
    )
    nobody = np.zeros(6, dtype=bool)
    np.testing.assert_allclose(
        world.run(2, nobody, 0.5).vector, world.noise.sum(0), atol=world.encoding.rounding
    )
    broadcasts, inverses = zip(*[content for _, _, content in world.heard(BROADCAST)])
    assert len(broadcasts) == 6
    assert all(broadcast.sampled is None for broadcast in broadcasts)
    assert len({len(raw) for raw in inverses}) == 1


@pytest.mark.parametrize(
    ("one", "other", "rate"),
    [
        ({}, {}, 1.0),
        ({"oblivious": True}, {"oblivious": True}, 0.5),
    ],
    ids=["whatever the keys", "with a hidden sample"],
)
def test_a_seeded_run_repeats_to_the_bit(one, other, rate, small_group):
    first, second = (
        random_world(streams=Streams(4), **own).ready().run(rate=rate).vector.tolist()
        for own in (one, other)
    )
    assert first == second
    assert random_world(**one).ready().run(rate=rate).vector.tolist() != first


def test_cut_counts_make_the_weights():
    world = random_world(most=15, n_max=20, count_cap=4)
    total = world.ready().run().vector
    world.counts = np.minimum(world.counts, 4)
    np.testing.assert_allclose(total, world.weighted(), atol=world.encoding.rounding)
    assert all(world.protocols[name].counts.max() <= 4 for name in world.silos)


def test_too_many_records_are_refused_by_their_silo_before_it_sends_anything():
    # N_u > N_max would decode to garbage without bound.
    world = random_world(silos=2, n_max=20)
    world.counts[1, 2] = 11
    with pytest.raises(
        CountsRefusedError, match=r"silo1 has a user with more than 10 records.*count_cap"
    ) as refusal:
        world.ready()
    assert "11" not in str(refusal.value)
    assert "silo1" not in {letter.sender for letter in world.said.transcript}


def test_a_user_without_records_is_refused_by_the_server_and_named():
    world = random_world(users=14)
    world.counts[:, [2, 5]] = 0
    with pytest.raises(CountsRefusedError, match=r"no silo has a record of user 2, 5:"):
        world.ready()
    assert world.server.key is None
    assert not world.server.inverses
    world.counts[:, 1:] = 0
    with pytest.raises(CountsRefusedError, match="and others"):
        world.ready()


def letters(exchange):
    """Step, sender and receiver of each letter that somebody counts on. The server's word to the
    leader that the others have their seed is only a turn."""
    traffic = Traffic(keep=True)
    exchange(traffic, InProcess())
    return [
        (letter.step, letter.sender, letter.receiver)
        for letter in traffic.transcript
        if letter.message.content is not None
    ]


def each_ends(exchange):
    """Whichever letter is lost: somebody says whom it waits for in vain, and nothing is made up in
    its place."""
    found = letters(exchange)
    assert {sender for _, sender, _ in found} == {SERVER, "silo0", "silo1", "silo2"}
    for step, sender, receiver in found:
        with pytest.raises(SilenceError, match=r"^no message from "):
            exchange(
                None, Faulty(InProcess(), (drop(step=step, sender=sender, receiver=receiver),))
            )


def test_whichever_letter_of_a_set_up_is_lost_ends_it():
    each_ends(lambda traffic, engine: run(random_world().setup(), traffic, engine))


@pytest.mark.parametrize("rate", [1.0, 0.25])
def test_whichever_letter_of_a_query_is_lost_ends_it(rate, small_group):
    world, rounds = random_world(users=2, oblivious=True).ready(), count(1)
    each_ends(lambda traffic, engine: run(world.parties(next(rounds), rate=rate), traffic, engine))


def test_what_is_not_installed_is_told_first(monkeypatch):
    monkeypatch.setattr(
        "fedpriv.aggregation.private_weighting.settings.find_spec",
        lambda name: None if name == "phe" else name,
    )
    with pytest.raises(ConfigError, match=r"^aggregation=private_weighting: needs gmpy2 and phe"):
        small()


def test_no_mask_serves_twice():
    world = random_world().ready()
    world.run(2)
    for round in (1, 2):
        with pytest.raises(RuntimeError, match="already"):
            world.run(round)
    assert world.run(3) is not None


def test_the_queries_of_a_round_have_masks_and_dithers_of_their_own():
    world = random_world(streams=Streams(7)).ready()
    for place, purpose in ((0, "dither"), (1, "update dither")):
        assert (
            world.run(2, place=place).vector.tolist()
            == world.encoding.layout.decode(world.exact(2, purpose=purpose)).tolist()
        )
    for place in (1, 0):
        with pytest.raises(RuntimeError, match="already"):
            world.run(2, place=place)
    alike = random_world(
        variant="paper"
    ).ready()  # without a dither the masks alone make two messages differ
    hidden = []
    for place in (0, 1):
        assert (
            alike.run(place=place).vector.tolist()
            == alike.encoding.layout.decode(alike.exact(dithered=False)).tolist()
        )
        hidden.append([alike.key.decrypt(c) for c in alike.messages()["silo0"]])
    assert all(one != other for one, other in zip(*hidden))


def test_a_second_set_up_replaces_the_first():
    world = random_world(streams=Streams(8)).ready()
    world.run(3)
    before, seed = world.key, world.protocols["silo0"].common_seed
    world.ready()
    assert world.key != before
    assert world.protocols["silo0"].common_seed != seed
    assert world.run(1).vector.tolist() == world.encoding.layout.decode(world.exact(1)).tolist()


def test_a_round_without_some_silo_is_refused():
    world = random_world().ready()
    updates = world.updates()
    updates.pop("silo2")
    query = replace(world.query(), invited=(0, 1), n_summed=2)
    with pytest.raises(RuntimeError, match="every silo"):
        run(world.protocols.query(query, updates))


def flipped(raw):
    return bytes([raw[0] ^ 1]) + raw[1:]


def too_short(sent):
    return {SERVER: sent[SERVER][:-1]}


def too_large(sent):
    return {SERVER: b"\xff" * len(sent[SERVER])}


@pytest.mark.parametrize(
    ("change", "error", "why"),
    [
        (lambda sent: {SERVER: flipped(sent[SERVER])}, SlotOverflowError, "slot"),
        (
            too_short,
            AggregationAbortedError,
            r"a message of silo1 is refused: \d+ bytes instead of",
        ),
        (too_large, AggregationAbortedError, "a message of silo1 is refused: "),
    ],
    ids=["other bytes", "too short", "too large"],
)
def test_an_altered_message_is_found(change, error, why):
    world = random_world(size=3).ready()
    parties = world.parties()
    world.protocols.says(parties, "silo1", MESSAGE, change)
    with pytest.raises(error, match=why):
        run(parties)


def own_key(sent):
    *parts, keys = sent["silo1"]
    return sent | {"silo1": (*parts, keys | {"silo1": (bytes(31) + b"\x01", keys["silo1"][1])})}


def even_modulus(sent):
    n = int.from_bytes(sent["silo1"][0], "little")
    n += 1 if n % 3 == 1 else 3  # neither is divided by three
    raw = n.to_bytes(len(sent["silo1"][0]), "little")
    return {name: (raw, *others) for name, (_, *others) in sent.items()}


ALTERED = {
    "a seed": (
        "silo0",
        SEED,
        lambda sent: {SERVER: {peer: flipped(raw) for peer, raw in sent[SERVER].items()}},
        "silo0 is refused",
    ),
    "too large counts": ("silo2", COUNTS, too_large, "silo2 is refused"),
    "too short counts": ("silo0", COUNTS, too_short, "silo0 is refused"),
    "a public key that everybody agrees with": (
        "silo1",
        KEY,
        lambda _: {SERVER: (bytes(32), SIGNERS["silo1"].sign((KEY, "silo1", bytes(32))))},
        "silo1 is refused: a public key of low order",
    ),
    "a silo's key, by the server": (
        SERVER,
        KEYS,
        own_key,
        "server is refused: silo1 has not signed the key that it passes on",
    ),
    "a short modulus": (
        SERVER,
        KEYS,
        lambda sent: {name: (raw[:-8] + bytes(8), *more) for name, (raw, *more) in sent.items()},
        r"server is refused: a modulus of \d+ bits, not an odd one of 512",
    ),
    "an even modulus": (
        SERVER,
        KEYS,
        even_modulus,
        r"server is refused: a modulus of 512 bits, not an odd one",
    ),
    "swapped seeds": (
        SERVER,
        SEED,
        lambda sent: sent | {"silo1": sent["silo2"], "silo2": sent["silo1"]},
        "silo0 is refused",
    ),
}


@pytest.mark.parametrize("what", ALTERED)
def test_an_altered_set_up_ends_it(what):
    name, phase, change, why = ALTERED[what]
    setup = random_world().setup()
    setup[name] = changed(setup[name], phase, change, name=name)
    with pytest.raises(AggregationAbortedError, match=f"a message of {why}"):
        run(setup)


def test_contributions_and_noise_beyond_their_bounds_are_errors():
    world = random_world(clip=0.5).ready()
    with pytest.raises(OutOfRangeError, match=r"^silo\d: a coordinate lies outside"):
        world.run()
    world = random_world().ready()
    world.noise[0, 0] = 1e3
    with pytest.raises(OutOfRangeError, match=r"^silo0: "):
        world.run()
