from itertools import combinations

import numpy as np
import pytest
from parties_of_generators import Protocols, changed, noting, run
from queries import query_for
from scipy.stats import chisquare

from fedpriv.aggregation.base import MESSAGE, SERVER
from fedpriv.aggregation.masked import Masked, mask
from fedpriv.aggregation.plain import Plain
from fedpriv.aggregation.secagg.aggregation import SecAgg
from fedpriv.aggregation.secagg.messages import COLLECT
from fedpriv.aggregation.weighted import KEY, KEYS
from fedpriv.crypto.prg import add_masks
from fedpriv.crypto.x25519 import PrivateKey
from fedpriv.encoding.fixed_point import FixedPoint, ImpossibleSumError, OutOfRangeError
from fedpriv.errors import AggregationAbortedError, MisfitError
from fedpriv.rounds.local_job import LocalJob

INDICES = (0, 1, 10, 2)
COUNTS = np.ones((4, 3), dtype=np.int64)
SILOS = ["silo0", "silo1", "silo10", "silo2"]


def ready(aggregation=Masked()):  # noqa: B008
    return Protocols(aggregation, INDICES).ready(COUNTS)


def exchange(protocols, serial, vectors, invited=INDICES):
    """The server's total, and every message that it saw."""
    query = query_for(
        protocols.aggregation, invited, serial[0], place=serial[1], size=len(vectors[0])
    )
    updates = {
        f"silo{i}": LocalJob(iter(()), np.asarray(vector)) for i, vector in zip(invited, vectors)
    }
    parties, seen = protocols.query(query, updates), {name: [] for name in updates}
    total = run(
        {SERVER: parties[SERVER]} | {name: noting(parties[name], seen[name]) for name in updates}
    )[SERVER]
    return total, {name: message[SERVER] for name, [message] in seen.items()}


def test_printed_formula_hides_nothing_and_the_sign_does():
    # HU-6: r_ij - r_ji with one agreed seed for each pair.
    seeds = {frozenset((i, j)): bytes([i, j] * 16) for i in range(3) for j in range(i)}
    for i in range(3):
        peers = [seeds[frozenset((i, j))] for j in range(3) if j != i]
        assert not add_masks(np.zeros(50, dtype=np.uint64), peers, peers).any()
    names = ["a", "b", "c"]
    masks = [
        mask(
            np.zeros(50, np.uint64),
            names[i],
            names,
            seeds={names[j]: seeds[frozenset((i, j))] for j in range(3) if j != i},
            serial=(1, 0),
        )
        for i in range(3)
    ]
    assert all(m.all() for m in masks)
    assert not sum(masks).any()


def test_the_server_sees_uniform_integers_and_their_sum():
    vectors = np.zeros((4, 60_000))
    total, seen = exchange(ready(), (1, 0), vectors)
    assert not total.vector.any()
    assert set(total.silos) == set(SILOS)
    for message in seen.values():
        assert chisquare(np.bincount(message.view(np.uint8), minlength=256)).pvalue > 1e-6


def test_masks_differ_between_queries_cohorts_and_set_ups():
    protocols, vectors = ready(), np.zeros((4, 100))
    serials = [(1, 0), (1, 1), (2, 0), (2, 1)]
    messages = [exchange(protocols, serial, vectors)[1] for serial in serials]
    protocols.ready(COUNTS)
    messages.append(exchange(protocols, (1, 0), vectors)[1])
    for one, other in combinations(messages, 2):
        assert all((one[name] != other[name]).all() for name in SILOS)
    seeds = protocols["silo0"].seeds
    without_last = {peer: seed for peer, seed in seeds.items() if peer != "silo2"}

    def silo0(cohort, seeds):
        return mask(np.zeros(100, np.uint64), "silo0", cohort, seeds=seeds, serial=(1, 0))

    smaller = silo0(SILOS[:3], without_last)
    same_pairs = silo0(SILOS, seeds | {"silo2": bytes(32)})
    gone = silo0(["silo0", "silo2"], {"silo2": bytes(32)})
    assert (smaller != same_pairs - gone).all()


def test_a_part_of_the_silos_can_sum():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(2, 7))
    total, _ = exchange(ready(), (3, 0), vectors, INDICES[1:3])
    np.testing.assert_allclose(
        total.vector, vectors.sum(0), rtol=1e-12, atol=FixedPoint(64, 1e4, 2).rounding
    )
    assert set(total.silos) == set(SILOS[1:3])


def test_no_mask_serves_twice():
    protocols = ready()
    exchange(protocols, (2, 1), np.zeros((4, 3)))
    for serial in [(1, 0), (1, 7), (2, 0), (2, 1)]:
        with pytest.raises(RuntimeError, match="already"):
            exchange(protocols, serial, np.ones((4, 3)))
    exchange(protocols, (2, 2), np.ones((4, 3)))


def test_each_seed_is_known_to_its_pair_alone():
    protocols = ready()
    assert set(vars(protocols[SERVER])) == {"silos", "weighting", "signer", "counts"}
    assert protocols[SERVER].counts == {}  # weights are uniform
    seeds = {name: protocols[name].seeds for name in SILOS}
    for i in SILOS:
        assert set(vars(protocols[i])) == {
            "name",
            "silos",
            "weighting",
            "weights",
            "seeds",
            "spent",
            "signer",
        }
        assert set(seeds[i]) == set(SILOS) - {i}
        for j in seeds[i]:
            assert seeds[i][j] == seeds[j][i]
    assert len({seed for own in seeds.values() for seed in own.values()}) == 6


def test_a_vector_out_of_range_ends_the_round():
    with pytest.raises(OutOfRangeError, match=r"aggregation\.range=5: .*silo1"):
        exchange(ready(Masked(range=5.0)), (1, 0), [[0.0], [5.1], [0.0], [0.0]])


@pytest.mark.parametrize(
    "signs", [True, False], ids=["under its own key", "with the old signature"]
)
def test_a_server_cannot_put_its_keys_in_between(signs):
    """Public keys carry their owners' signatures, under the keys of the roster."""
    protocols, own = Protocols(Masked(), INDICES), PrivateKey.generate()
    parties = protocols.setup(COUNTS)

    def between(sent):
        raw, server = own.public.raw, protocols[SERVER].signer
        fakes = {
            name: (raw, server.sign((KEY, name, raw)) if signs else signature)
            for name, (_, signature) in sent["silo0"].items()
        }
        return sent | {"silo0": fakes | {"silo0": sent["silo0"]["silo0"]}}

    parties[SERVER] = changed(parties[SERVER], KEYS, between, name=SERVER)
    with pytest.raises(MisfitError, match=r"server is refused: silo\d+ has not signed the key"):
        run(parties)


@pytest.mark.parametrize(
    ("aggregation", "phase"), [(Masked(range=5.0), MESSAGE), (SecAgg(range=5.0), COLLECT)], ids=str
)
def test_a_silo_can_move_the_sum_within_what_honest_messages_reach(aggregation, phase):
    protocols = ready(aggregation)
    unit = 2 ** query_for(aggregation, INDICES).encoding.precision
    for round, far in ((1, 19), (2, 24)):  # four honest silos reach 20
        cast = protocols.query(
            query_for(aggregation, INDICES, round), dict.fromkeys(protocols.names, silent_update)
        )
        step = np.array([far * unit], dtype=np.uint64)

        def moved(sent, step=step):
            content = sent[SERVER]
            if phase == COLLECT:
                return {SERVER: (content[0] + step, content[1])}
            return {SERVER: content + step}

        protocols.says(cast, "silo1", phase, moved)
        if far > 20:
            with pytest.raises(ImpossibleSumError, match="beyond 4 times 5: a message was altered"):
                run(cast)
        else:
            assert run(cast)[SERVER].vector == [far]


def test_in_the_clear_each_message_has_its_own_range():
    """So that whose is beyond it is known, though the sum is not."""
    protocols = ready(Plain())
    query = query_for(Masked(range=5.0), INDICES)  # noise on a grid, so messages are integers
    cast = protocols.query(query, dict.fromkeys(protocols.names, silent_update))
    step = np.array([6 * 2**query.encoding.precision], dtype=np.uint64)
    protocols.says(cast, "silo1", MESSAGE, lambda sent: {SERVER: sent[SERVER] + step})
    with pytest.raises(
        MisfitError, match=r"^a message of silo1 is refused: a coordinate beyond 5$"
    ):
        run(cast)


def silent_update(_):
    return LocalJob(iter(()), np.zeros(1))


def test_a_set_up_without_the_others_keys_is_given_up():
    """Where weights need no server, its silence is first heard when keys are passed on."""

    def silent():
        while True:
            yield {}

    parties = Protocols(Masked(), INDICES).setup(COUNTS)
    with pytest.raises(AggregationAbortedError, match="no message from server"):
        run(parties | {SERVER: silent()})
