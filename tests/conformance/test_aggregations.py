"""What every aggregation must do. Add a new one to AGGREGATIONS."""

import pickle
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pytest
import torch
from parties_of_generators import Protocols, changed, noting, run
from queries import query_for

from fedpriv.accountants.events import OBSERVERS
from fedpriv.aggregation.admm.aggregation import Admm
from fedpriv.aggregation.masked import Masked
from fedpriv.aggregation.plain import Plain
from fedpriv.aggregation.ring import UNBOUNDED_RANGE, ring_encoding
from fedpriv.aggregation.robust import Robust
from fedpriv.aggregation.secagg.aggregation import SecAgg
from fedpriv.aggregation.secagg.exact_noise import SecAggExactNoise
from fedpriv.aggregation.shuffle import Shuffle
from fedpriv.aggregation.weighted import KEYS, WEIGHTS
from fedpriv.encoding.fixed_point import FixedPoint
from fedpriv.errors import AggregationAbortedError
from fedpriv.mechanisms.binomial import Binomial
from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.parties.traffic import Traffic
from fedpriv.rounds.contributors import RecordWeighting, UniformWeighting, Weighting
from fedpriv.rounds.local_job import LocalJob
from fedpriv.rounds.query import Broadcast, Total
from fedpriv.training.contributions import Contributions

SILOS, USERS, SIZE = 3, 6, 5
NAMES = [f"silo{s}" for s in range(SILOS)]
GAUSSIAN, COUNTS = Gaussian(20.0, 1.0), Binomial(20.0, 0.0, levels=2**40)
MECHANISMS = {Shuffle(): COUNTS}
"""Of those that another one than `GAUSSIAN` goes with."""
AGGREGATIONS = {
    Plain(): 0.0,
    Robust(byzantine=0): 1e-12,
    Masked(): FixedPoint(64, UNBOUNDED_RANGE, SILOS).rounding,
    Masked(bits=32, range=100.0): FixedPoint(32, 100.0, SILOS).rounding,
    SecAgg(): FixedPoint(64, UNBOUNDED_RANGE, SILOS).rounding,
    SecAgg(threshold=2, bits=32, range=100.0): FixedPoint(32, 100.0, SILOS).rounding,
    SecAggExactNoise(): FixedPoint(64, UNBOUNDED_RANGE, SILOS).rounding,
    Shuffle(): SILOS * (USERS + 1) * COUNTS.count_encoding(SILOS).unit,
    Admm(preset=None, iterations=32, beyond_safe=True): 1e-12,
    Admm(preset=None, iterations=32, masking=True): SILOS * FixedPoint(64, 1e5, SILOS).rounding,
}
"""Each with the most that a coordinate of its sum may be off."""


@pytest.fixture(params=AGGREGATIONS, ids=str)
def aggregation(request):
    return request.param


@pytest.fixture(
    params=[aggregation for aggregation in AGGREGATIONS if aggregation.helpers], ids=str
)
def served(request):
    """An aggregation with somebody who sends queries down."""
    return request.param


@dataclass
class World:
    """counts: (SILOS, USERS). vectors: (SILOS, USERS, SIZE). noise: (SILOS, SIZE)."""

    counts: np.ndarray
    vectors: np.ndarray
    noise: np.ndarray

    def ready(self, aggregation, weighting):
        """The protocols after the set-up."""
        protocols = Protocols(aggregation, tuple(range(SILOS)), weighting)
        run(protocols.setup(self.counts), Traffic())
        return protocols

    def parties(self, protocols, serial=(1, 0), broadcast=Broadcast({})):  # noqa: B008
        mechanism = MECHANISMS.get(protocols.aggregation, GAUSSIAN)
        numbers = {"place": serial[1], "users": USERS, "size": SIZE, "mechanism": mechanism}
        query = query_for(protocols.aggregation, SILOS, serial[0], **numbers)
        return protocols.query(query, self.updates(), broadcast)

    def updates(self, block=2):
        def blocks(s):
            users = np.flatnonzero(self.counts[s])
            for start in range(0, len(users), block):
                units = users[start : start + block]
                yield Contributions(units, torch.from_numpy(self.vectors[s, units]))

        return {name: LocalJob(blocks(s), self.noise[s], bytes(32)) for s, name in enumerate(NAMES)}

    def expected(self, weighting):
        present = (self.counts > 0) * weighting.weights(self.counts)
        return np.einsum("su,sud->d", present, self.vectors) + self.noise.sum(0)


def random_world(seed=0):
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 5, (SILOS, USERS))
    return World(counts, rng.normal(size=(SILOS, USERS, SIZE)), rng.normal(size=(SILOS, SIZE)))


def silent():
    yield {}


@pytest.mark.parametrize(
    ("aggregation", "weighting"),
    list(product(AGGREGATIONS, (RecordWeighting(), UniformWeighting()))),
    ids=str,
)
def test_equals_the_plain_weighted_sum_in_every_query(aggregation, weighting):
    world = random_world()
    protocols = world.ready(aggregation, weighting)
    for serial in [(1, 0), (1, 1), (2, 0)]:
        learned = run(world.parties(protocols, serial), Traffic())
        totals = {name: total for name, total in learned.items() if total is not None}
        assert set(totals) == set(aggregation.threat_model().learners or NAMES)
        for total in totals.values():
            assert isinstance(total, Total)
            bound = {"rtol": 1e-12, "atol": AGGREGATIONS[aggregation]}
            np.testing.assert_allclose(total.vector, world.expected(weighting), **bound)
            assert set(total.silos) == set(NAMES)


def test_a_missing_silo_ends_the_query_without_a_sum(aggregation):
    world = random_world()
    parties = world.parties(world.ready(aggregation, RecordWeighting()))
    with pytest.raises(AggregationAbortedError, match="silo1"):
        run(parties | {"silo1": silent()})


def test_silos_hear_the_broadcast_first_and_without_it_take_no_part(served):
    world, broadcast = (
        random_world(),
        Broadcast({"params": np.arange(3.0)}, np.ones(USERS, dtype=bool)),
    )
    protocols, sent = world.ready(served, RecordWeighting()), []
    parties = world.parties(protocols, broadcast=broadcast)
    helper = served.helpers[0]
    run(parties | {helper: noting(parties[helper], sent)})
    assert sent[0] == dict.fromkeys(NAMES, broadcast)
    mechanism = MECHANISMS.get(served, GAUSSIAN)
    query, heard = query_for(served, SILOS, 2, users=USERS, size=SIZE, mechanism=mechanism), []
    silo = protocols["silo1"].query(query, heard.append)
    assert next(silo) == {}
    with pytest.raises(StopIteration) as ended:
        silo.send({})
    assert ended.value.value is None
    assert heard == []


@pytest.mark.parametrize("counted", [False, True], ids=["made by silos", "made by the server"])
@pytest.mark.parametrize(
    "table", [np.full((SILOS, USERS), 0.4), np.array([[0.7], [0.7], [-0.4]]) * np.ones(USERS)]
)
def test_weights_above_one_or_below_zero_are_refused(aggregation, table, counted):
    @dataclass(frozen=True)
    class Given(Weighting):
        @property
        def needs_counts(self):
            return counted

        def weights(self, counts):
            return table

    with pytest.raises(ValueError, match="add up to"):
        random_world().ready(aggregation, Given())


def test_pickles(aggregation):
    assert pickle.loads(pickle.dumps(aggregation)) == aggregation


def test_says_who_may_look_and_who_learns(aggregation):
    threat_model = aggregation.threat_model()
    names = [observer.name for observer in threat_model.observers]
    assert names[0] == "released model"
    assert len(set(names)) == len(names)
    assert set(threat_model.learners) <= set(aggregation.helpers)
    released = threat_model.observers[0]
    assert released.sees_messages == isinstance(aggregation, Robust)
    assert not released.sees_sample
    assert released.sees_counts is None
    assert released.own_shares == 0


@dataclass(frozen=True)
class Outside(Weighting):
    """Weights of a rule that is not ours, which needs no counts."""

    def weights(self, counts):
        assert not np.any(counts)
        return np.outer(np.arange(1, 1 + len(counts)), np.ones(counts.shape[1])) / 10


@pytest.mark.parametrize("weighting", [UniformWeighting(), Outside()], ids=str)
def test_weights_that_need_no_counts_stay_home_with_them(aggregation, weighting):
    """Nothing about units is sent, so nothing that a server sends can change a weight."""
    world, sent = random_world(), []
    protocols = Protocols(aggregation, tuple(range(SILOS)), weighting)
    run({name: noting(party, sent) for name, party in protocols.setup(world.counts).items()})
    assert not any(isinstance(message, np.ndarray) for mail in sent for message in mail.values())
    for own, name in zip(weighting.weights(np.zeros_like(world.counts)), NAMES):
        np.testing.assert_array_equal(protocols[name].weights, own)


def at(place, value):
    def change(weights):
        weights = weights.copy()
        weights[place] = value
        return weights

    return change


HAS, LACKS = 2, 1
LIES = {
    "a thousand": (at(HAS, 1000.0), "a number outside 0.0 to 1.0"),
    "just above one": (at(HAS, np.nextafter(1, 2)), "a number outside 0.0 to 1.0"),
    "negative": (at(HAS, -1e-300), "a number outside 0.0 to 1.0"),
    "not a number": (at(HAS, np.nan), "a number outside 0.0 to 1.0"),
    "infinite": (at(HAS, np.inf), "a number outside 0.0 to 1.0"),
    "for no records": (at(LACKS, 0.5), "without records"),
    "too few": (lambda weights: weights[:-1], r"an array of shape \(5,\) instead of \(6,\)"),
    "a table": (lambda weights: weights[None], r"an array of shape \(1, 6\) instead of \(6,\)"),
    "float32": (
        lambda weights: weights.astype(np.float32),
        "an array of float32 instead of float64",
    ),
    "a list": (lambda weights: weights.tolist(), "list instead of an array"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_silo_refuses_weights_that_cannot_be_right(served, lie):
    """A weight of 1000 would move the sum by a thousand times the bound."""
    change, why = LIES[lie]
    world = random_world()
    world.counts[0, [HAS, LACKS]] = 3, 0
    protocols = Protocols(served, tuple(range(SILOS)), RecordWeighting())
    parties = protocols.setup(world.counts)

    def lying(sent):
        return sent | {"silo0": change(sent["silo0"])}

    server = changed(
        parties["server"], WEIGHTS, lying, name="server", signer=lambda: protocols["server"].signer
    )
    with pytest.raises(AggregationAbortedError, match=f"a message of server is refused: .*{why}"):
        run(parties | {"server": server})


@pytest.mark.parametrize("whose", ["silo0", "silo1"])
@pytest.mark.parametrize("change", [bytes(31) + b"9", None], ids=["another", "none"])
def test_a_silo_finds_a_key_changed(whose, change):
    """The server passes everybody's public keys on, under their owners' signatures."""

    def cheat(sent):
        keys = {name: key for name, key in sent["silo1"].items() if name != whose}
        own = keys if change is None else keys | {whose: (change, sent["silo1"][whose][1])}
        return sent | {"silo1": own}

    parties = Protocols(Masked(), tuple(range(SILOS))).setup(random_world().counts)
    why = (
        f"no entry for {whose}"
        if change is None
        else f"{whose} has not signed the key that it passes on"
    )
    with pytest.raises(AggregationAbortedError, match=f"a message of server is refused: {why}"):
        run(parties | {"server": changed(parties["server"], KEYS, cheat, name="server")})


@pytest.mark.parametrize("missing", ["server", "silo1"])
def test_a_set_up_in_which_somebody_says_nothing_is_given_up(served, missing):
    """By an error that lets the run go on, in every step of it."""
    protocols = Protocols(served, tuple(range(SILOS)), RecordWeighting())
    parties = protocols.setup(random_world().counts)
    with pytest.raises(AggregationAbortedError, match=f"no message from .*{missing}"):
        run(parties | {missing: silent()})


def test_a_silo_is_taken_to_know_its_own_share_of_the_noise(served):
    shares = {observer.name: observer.own_shares for observer in served.threat_model().observers}
    assert {name: shares[name] for name in OBSERVERS} == {
        "released model": 0,
        "server": 0,
        "silo": 1,
    }


def test_a_ring_takes_no_other_integers():
    with pytest.raises(ValueError, match="need FixedPoint, not None"):
        ring_encoding(replace(query_for(Masked(), SILOS, 1, users=USERS, size=SIZE), encoding=None))
