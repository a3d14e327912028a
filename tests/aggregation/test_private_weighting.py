import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from phe import PaillierPrivateKey, PaillierPublicKey
from private_sums import World, random_world, small
from secure_sums import changed, dropping, run

from fedpriv.aggregation import private_weighting_silo
from fedpriv.aggregation.base import SERVER, AggregationAborted
from fedpriv.aggregation.fixed_point import OutOfRange
from fedpriv.aggregation.paillier.layout import SlotOverflow
from fedpriv.aggregation.private_weighting_counts import CountsRefused
from fedpriv.algorithms.base import Federation
from fedpriv.algorithms.uldp import UldpAvg, records, uniform
from fedpriv.errors import ConfigError
from fedpriv.mechanisms.discrete_gaussian import DiscreteGaussian
from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.mechanisms.none import NoMechanism
from fedpriv.streams import Streams


def algorithm(**changes):
    settings = {"clip": 1.0, "noise_multiplier": 5.0, "user_rate": 1.0, "weighting": "records", "global_lr": 10.0}
    return UldpAvg(**(settings | {"local_epochs": 1, "batch_size": 4, "local_lr": 0.1} | changes))


@st.composite
def worlds(draw):
    silos, users = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    n_max = draw(st.sampled_from([10, 100]))
    clip = draw(st.sampled_from([0.1, 1.0, 3.0]))
    aggregation = small(n_max=n_max)
    blank = World(aggregation, np.ones((silos, users), int), np.zeros((silos, users, 1)), np.zeros((silos, 1)), clip)
    slots = blank.code.layout.slots
    size = draw(st.sampled_from([1, slots - 1, slots, slots + 1, 2 * slots + 1]).filter(lambda size: size > 0))
    counts = draw(arrays(np.int64, (silos, users), elements=st.integers(0, n_max // silos)))
    counts[draw(st.integers(0, silos - 1)), counts.sum(axis=0) == 0] = 1
    bound = clip / np.sqrt(size)
    values = st.one_of(st.just(0.0), st.just(bound), st.just(-bound), st.floats(-bound, bound))
    vectors = draw(arrays(np.float64, (silos, users, size), elements=values))
    noise = draw(arrays(np.float64, (silos, size), elements=st.floats(-5 * clip, 5 * clip)))
    return World(aggregation, counts, vectors, noise, clip, streams=Streams(draw(st.integers(0, 9))))


@settings(max_examples=40)
@given(worlds())
def test_the_total_is_the_weighted_sum_exact_in_integers_and_near_in_reals(world):
    total = world.ready().run()
    layout = world.code.layout
    assert total.vector.tolist() == layout.decode(world.exact()).tolist()
    most = 2.0**-layout.precision * (world.counts.shape[1] + len(world.silos))
    np.testing.assert_allclose(total.vector, world.weighted(), rtol=1e-12, atol=most)
    assert world.code.rounding == most
    assert set(total.parties) == set(world.silos)


@pytest.mark.parametrize("size", [1, 3])
def test_the_papers_cap_of_2000_records_with_a_long_key(size):
    world = random_world(silos=2, users=2, size=size, most=999, n_max=2000, key_bits=3072, streams=Streams(1))
    assert world.code.layout.lcm.bit_length() == 2878  # log2 lcm(1..2000) = 2877.385
    total = world.ready().run()
    assert total.vector.tolist() == world.code.layout.decode(world.exact()).tolist()
    np.testing.assert_allclose(total.vector, world.weighted(), rtol=1e-12, atol=world.code.rounding)


def test_workers_change_nothing():
    one, two = (random_world(size=40, workers=w, streams=Streams(5)).ready().run().vector.tolist() for w in (1, 2))
    assert one == two


def test_python_paillier_decrypts_the_same_total():
    world = random_world(size=30, streams=Streams(0)).ready()
    world.run()
    public, layout = world.key.public, world.code.layout
    phe = PaillierPrivateKey(PaillierPublicKey(public.n), world.key.p, world.key.q)
    products = [1] * layout.columns(30)
    for message in world.messages().values():
        products = [p * int(c) % public.n**2 for p, c in zip(products, message)]
    assert layout.unpack([phe.raw_decrypt(p) for p in products], public.n, 30) == world.exact()


def test_a_toy_federation_is_off_by_less_than_the_published_bound():
    # S = 3, U = 4, d = 3, grid near 1e-6, N_max = 20: error at most 1.5e-5.
    world = random_world(silos=3, users=4, size=3, most=6)
    assert np.abs(world.ready().run().vector - world.weighted()).max() <= 1.5e-5


def test_powers_serve_for_all_rounds_in_which_everybody_takes_part(monkeypatch):
    raised, hoist = [], private_weighting_silo.hoist

    def counting(public, ciphertexts, *rest):
        raised.append(len(ciphertexts))
        return hoist(public, ciphertexts, *rest)

    monkeypatch.setattr(private_weighting_silo, "hoist", counting)
    world = random_world(streams=Streams(6)).ready()
    for round in (1, 2, 3):
        assert world.run(round).vector.tolist() == world.code.layout.decode(world.exact(round)).tolist()
    assert len(raised) == len(world.silos)
    # A sample has ciphertexts of its own, and so has what follows it.
    everybody = np.ones(world.counts.shape[1], dtype=bool)
    world.run(4, everybody, 0.5)
    assert len(raised) == 2 * len(world.silos)
    assert world.run(5).vector.tolist() == world.code.layout.decode(world.exact(5)).tolist()


def test_users_outside_the_sample_count_nothing_and_silos_are_not_told():
    world = random_world(users=6, streams=Streams(2)).ready()
    sampled = np.array([True, False, True, False, False, True])
    assert world.run(1, sampled, 0.5).vector.tolist() == world.code.layout.decode(world.exact(1, sampled)).tolist()
    nobody = np.zeros(6, dtype=bool)
    np.testing.assert_allclose(world.run(2, nobody, 0.5).vector, world.noise.sum(0), atol=world.code.rounding)
    assert world.aggregation.for_silos(world.plan(3, sampled, 0.5)).users is None
    broadcasts = [letter.message for letter in world.said.transcript if (letter.sender, letter.step) == (SERVER, 0)]
    assert len({len(raw) for raw in broadcasts}) == 1


def test_a_silo_without_users_and_one_silo_alone():
    world = random_world(users=3, streams=Streams(3))
    world.counts[1] = 0
    world.counts[0] = 2
    assert world.ready().run().vector.tolist() == world.code.layout.decode(world.exact()).tolist()
    alone = random_world(silos=1, most=5)
    np.testing.assert_allclose(alone.ready().run().vector, alone.weighted(), atol=alone.code.rounding)


def test_a_seeded_run_repeats_to_the_bit_whatever_the_keys():
    one, two = (random_world(streams=Streams(4)).ready().run().vector.tolist() for _ in range(2))
    assert one == two
    assert random_world().ready().run().vector.tolist() != one


def test_cut_counts_make_the_weights():
    world = random_world(most=15, n_max=20, count_cap=4)
    total = world.ready().run().vector
    world.counts = np.minimum(world.counts, 4)
    np.testing.assert_allclose(total, world.weighted(), atol=world.code.rounding)
    assert all(world.memory[name]["counts"].max() <= 4 for name in world.silos)


def test_too_many_records_are_refused_by_their_silo_before_it_sends_anything():
    # N_u > N_max would decode to garbage without bound.
    world = random_world(silos=2, n_max=20)
    world.counts[1, 2] = 11
    with pytest.raises(CountsRefused, match=r"silo1 has a user with more than 10 records.*count_cap") as refusal:
        world.ready()
    assert "11" not in str(refusal.value)
    assert "silo1" not in {letter.sender for letter in world.said.transcript}


def test_a_user_without_records_is_refused_by_the_server_and_named():
    world = random_world(users=14)
    world.counts[:, [2, 5]] = 0
    with pytest.raises(CountsRefused, match=r"no silo has a record of user 2, 5:"):
        world.ready()
    assert not world.memory[SERVER]
    world.counts[:, 1:] = 0
    with pytest.raises(CountsRefused, match="and others"):
        world.ready()


@pytest.mark.parametrize("name", ["silo0", "silo1", "silo2"])
def test_a_silent_silo_ends_set_up_and_round(name):
    for step in range(3):
        if (name, step) in {("silo1", 1), ("silo2", 1)}:
            continue  # only the leader speaks in this step
        world = random_world()
        setup = world.aggregation.setup(dict(zip(world.silos, world.counts)), records, True, world.memory)
        setup[name] = dropping(setup[name], sends=step)
        with pytest.raises(AggregationAborted, match=name):
            run(setup)
    world = random_world().ready()
    parties = world.parties()
    parties[name] = dropping(parties[name], sends=1)
    with pytest.raises(AggregationAborted, match=name):
        run(parties)
    np.testing.assert_allclose(world.run(2).vector, world.weighted(), atol=world.code.rounding)


def test_a_silo_that_hears_nothing_ends_the_round():
    world = random_world().ready()
    parties = world.parties()
    parties[SERVER] = dropping(parties[SERVER], sends=0)
    with pytest.raises(AggregationAborted, match="no message from server"):
        run(parties)


def test_no_mask_serves_twice():
    world = random_world().ready()
    world.run(2)
    for round in (1, 2):
        with pytest.raises(RuntimeError, match="already"):
            world.run(round)
    assert world.run(3) is not None


def test_a_round_without_some_silo_is_refused():
    world = random_world().ready()
    world.silos.pop()
    with pytest.raises(RuntimeError, match="every silo"):
        world.run()


def test_an_altered_message_is_found():
    def other_bytes(sent):
        return {SERVER: bytes([sent[SERVER][0] ^ 1]) + sent[SERVER][1:]}

    def too_short(sent):
        return {SERVER: sent[SERVER][:-1]}

    def too_large(sent):
        return {SERVER: b"\xff" * len(sent[SERVER])}

    wrongs = (other_bytes, SlotOverflow), (too_short, AggregationAborted), (too_large, AggregationAborted)
    for change, error in wrongs:
        world = random_world(size=3).ready()
        parties = world.parties()
        parties["silo1"] = changed(parties["silo1"], 1, change)
        with pytest.raises(error):
            run(parties)


def test_an_altered_set_up_ends_it():
    def flipped(sent):
        return {SERVER: {peer: bytes([raw[0] ^ 1]) + raw[1:] for peer, raw in sent[SERVER].items()}}

    def too_large(sent):
        return {SERVER: b"\xff" * len(sent[SERVER])}

    for name, step, change in (("silo0", 1, flipped), ("silo2", 2, too_large)):
        world = random_world()
        setup = world.aggregation.setup(dict(zip(world.silos, world.counts)), records, True, world.memory)
        setup[name] = changed(setup[name], step, change)
        with pytest.raises(AggregationAborted, match=f"a message of {name} is unreadable"):
            run(setup)


def test_contributions_and_noise_beyond_their_bounds_are_errors():
    world = random_world(clip=0.5).ready()
    with pytest.raises(OutOfRange):
        world.run()
    world = random_world().ready()
    world.noise[0, 0] = 1e3
    with pytest.raises(OutOfRange):
        world.run()


def test_a_clipped_coordinate_may_exceed_its_bound_by_the_error_of_clipping():
    world = random_world(clip=0.1)
    world.vectors[:] = 0
    world.vectors[:, :, 0] = np.nextafter(0.1, 1)
    np.testing.assert_allclose(world.ready().run().vector, world.weighted(), atol=world.code.rounding)


def test_what_each_party_remembers():
    world = random_world().ready()
    seeds = {world.memory[name]["seed"] for name in world.silos}
    assert len(seeds) == 1
    assert len(seeds.pop()) == 32
    assert set(world.memory[SERVER]) == {"p", "q", "inverses"}
    pairs = {world.memory[i]["seeds"][j] for i in world.silos for j in world.silos if i != j}
    assert len(pairs) == 3
    assert all("p" not in world.memory[name] for name in world.silos)


FEDERATION = Federation(100, 5, 1000)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"key_bits": 100}, r"aggregation\.key_bits=100"),
        ({"n_max": 0}, r"aggregation\.n_max=0"),
        ({"n_max": 4}, r"aggregation\.n_max=4: 5 or more"),
        ({"n_max": 1000}, r"aggregation\.n_max=1000: one slot needs .* take a longer key"),
        ({"precision": 80}, r"aggregation\.precision=80"),
        ({"precision": 1}, r"aggregation\.precision=1: too few digits"),
        ({"count_cap": 0}, r"aggregation\.count_cap=0"),
        ({"count_cap": 9, "n_max": 40}, r"aggregation\.count_cap=9: null, or 1 to 8"),
        ({"workers": 0}, r"aggregation\.workers=0"),
        ({"variant": "fast"}, r"aggregation\.variant=fast: sound or paper"),
        ({"oblivious": True, "user_rate": 0.123}, r"algo\.user_rate=0\.123"),
        ({"weighting": "uniform"}, r"aggregation=private_weighting: .*algo\.weighting=records"),
    ],
)
def test_impossible_settings_are_refused_in_one_line(wrong, text):
    algo = {key: wrong.pop(key) for key in ("user_rate", "weighting") if key in wrong}
    with pytest.raises(ConfigError, match=text) as error:
        check(small(**wrong), algorithm(**algo), Gaussian(1.0, 5.0))
    assert "\n" not in str(error.value)


def check(aggregation, algo, mechanism):
    aggregation.check(algo)
    algo.check(FEDERATION, mechanism, aggregation)


def test_it_needs_clipping_and_weights_by_records():
    with pytest.raises(ConfigError, match="mechanism=none"):
        check(small(), algorithm(), NoMechanism())
    world = random_world()
    with pytest.raises(ValueError, match="n_su / N_u"):
        world.aggregation.setup(dict(zip(world.silos, world.counts)), uniform, True, world.memory)


@pytest.mark.parametrize("mechanism", [Gaussian(1.0, 5.0), DiscreteGaussian(1.0, 5.0)])
def test_events_charge_a_grid_step_in_every_coordinate(mechanism):
    aggregation = small(key_bits=2048)
    seen = {e.observer: e for e in algorithm().events(FEDERATION, mechanism, aggregation)}
    plain = mechanism.event(1 + np.sqrt(FEDERATION.n_parameters) * 2.0**-20)
    assert seen["released model"].certified == seen["server"].certified == plain
    assert seen["silo"].certified == mechanism.event(1 + np.sqrt(FEDERATION.n_parameters) * 2.0**-20, 4 / 5)
    assert any("colludes with no silo" in text for text in seen["server"].assumptions)


def test_sub_sampling_amplifies_for_who_does_not_see_the_sample():
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent

    def seen(**changes):
        algo = algorithm(user_rate=0.1)
        return {e.observer: e for e in algo.events(FEDERATION, Gaussian(1.0, 5.0), small(key_bits=2048, **changes))}

    known, hidden = seen(), seen(oblivious=True)
    for events in (known, hidden):
        assert isinstance(events["silo"].certified, PoissonSampledDpEvent)
        assert isinstance(events["released model"].certified, PoissonSampledDpEvent)
    assert isinstance(known["server"].certified, GaussianDpEvent)
    assert known["server"].claimed is None
    assert hidden["server"].certified == hidden["released model"].certified
    assert hidden["server"].claimed == PoissonSampledDpEvent(0.1, GaussianDpEvent(5.0))


def test_flaws_certify_nothing_and_say_why():
    from dp_accounting import NonPrivateDpEvent

    def seen(**changes):
        return {e.observer: e for e in algorithm().events(FEDERATION, Gaussian(1.0, 5.0), small(**changes))}

    paper, short = seen(variant="paper", key_bits=2048), seen(key_bits=1024)
    assert all(event.certified == NonPrivateDpEvent() for event in paper.values())
    assert all(any(text.startswith("FAILS: aggregation.variant") for text in e.assumptions) for e in paper.values())
    assert short["silo"].certified == NonPrivateDpEvent()
    assert short["server"].certified != NonPrivateDpEvent()


def test_the_outlook_tells_sizes_and_seconds():
    world = random_world(size=50)
    outlook = world.aggregation.outlook(world.plan(), Federation(4, 3, 50), rounds=3)
    first, second, later = outlook.lines
    assert "after the first" in later
    layout = world.code.layout
    assert f"{layout.slots} slots of {layout.width} bits" in first
    assert "MB" in second
    assert " s " in second
    assert outlook.seconds > 0
    hidden = random_world(size=50, oblivious=True)
    third = hidden.aggregation.outlook(hidden.plan(rate=0.3), Federation(4, 3, 50), rounds=3).lines[2]
    assert "encrypts 40 numbers" in third
