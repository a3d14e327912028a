"""What is certified against a server that cheats: numbers from the theorem, attacks on real silos,
and settings in which nothing is."""

import math
from collections import Counter
from dataclasses import dataclass, replace
from random import Random

import dp_accounting as dp
import numpy as np
import pytest
import torch
from dp_accounting.pld import PLDAccountant
from runs import experiment
from test_derive import MODEL, USER, claimed, plan

from fedpriv.accountants.events import CHEATING_SERVER, SERVER
from fedpriv.accountants.ledger import Ledger
from fedpriv.aggregation.base import BROADCAST, MESSAGE
from fedpriv.aggregation.masked import Masked, MaskedServer
from fedpriv.aggregation.plain import Plain, PlainServer
from fedpriv.aggregation.ring import ring_encoding, ring_message
from fedpriv.certificates.cheating import ANYTHING, HONEST
from fedpriv.certificates.derive import plan_queries
from fedpriv.certificates.noise import OwnNoise, SumNoise
from fedpriv.certificates.request import Request
from fedpriv.engines.base import Network
from fedpriv.errors import ConfigError, FedprivError
from fedpriv.mechanisms.base import TrainingNoise
from fedpriv.models.linear import Linear
from fedpriv.models.tasks import BinaryClassification
from fedpriv.parties.post import Expected
from fedpriv.parties.schema import Array
from fedpriv.parties.traffic import Traffic
from fedpriv.rounds.contributors import Users
from fedpriv.rounds.plan import Observer
from fedpriv.rounds.query import Broadcast, QueryTask, SetUpTask, Total, next_session
from fedpriv.runs.epsilon_forecast import EpsilonForecast
from fedpriv.runtime import prepare
from fedpriv.training.clipped import ClippedGradients
from fedpriv.training.contributions import ContributionStats
from fedpriv.training.noisy_steps import NoisySteps

DELTA = 1e-5
FOUR = ("allocator.n_silos=4", "aggregation.threshold=3")


def rows_of(*words):
    """The rows of a server that follows the protocol, and of one that cheats, after all rounds."""
    forecast = EpsilonForecast.of(experiment(f"accountant.delta={DELTA}", *words))
    found = []
    for observer in (SERVER, CHEATING_SERVER):
        ledger = Ledger(forecast.exp.accountant)
        forecast.cost.record(ledger, 0, forecast.exp.options.rounds, observer=observer)
        found.append(ledger.rows(forecast.exp.options.rounds))
    return found


def gaussian(noise, rounds):
    return dp.get_epsilon_gaussian(noise / math.sqrt(rounds), DELTA)


def sampled(rate, noise, steps):
    event = dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(noise))
    return PLDAccountant().compose(event, steps).get_epsilon(DELTA)


ORACLES = [
    # The server chooses the sample, so that a user may be in each of ten sums under noise 5.
    (("algo=uldp_avg", "algo.user_rate=0.1", "rounds=10"), "user", gaussian(5, 10)),
    # A silo's messages move as little whatever bound it is sent.
    (("algo=uldp_avg", "mechanism=adaptive", "rounds=10"), "user", gaussian(5, 10)),
    # Three bounds in three silos, each with two for any vector in place of another: noise 5.
    (("algo=uldp_naive", "aggregation=masked", "rounds=3"), "user", gaussian(5, 3)),
    # Of the three shares of the smallest sum, a colluding silo tells one.
    (
        (
            "algo=uldp_avg",
            "aggregation=secagg",
            "aggregation.cohort=3",
            "aggregation.colluding=1",
            *FOUR,
            "rounds=10",
        ),
        "user",
        gaussian(5 * math.sqrt(2 / 3), 10),
    ),
    # Surplus is removed from a sum over any number: each keeps the whole noise.
    (
        ("algo=uldp_avg", "aggregation=secagg_exact_noise", *FOUR, "rounds=10"),
        "user",
        gaussian(5, 10),
    ),
    # A record moves its silo's message by twice the bound, under the silo's own noise alone.
    (
        (
            "algo=minibatch_sgd",
            "data=breast_cancer_silos",
            "algo.calibration=given",
            "algo.noise_multiplier=8",
            "rounds=10",
        ),
        "record",
        gaussian(8 / 2, 10),
    ),
    # Two steps a round, each on half of the records. Coins and noise stay in the silo.
    (
        (
            "algo=uldp_group",
            "algo.group_size=all",
            "allocator.n_silos=1",
            "algo.batch_size=400",
            "rounds=1",
        ),
        "record",
        sampled(1 / 2, 5, 2),
    ),
]


@pytest.mark.parametrize(("words", "unit", "expected"), ORACLES)
def test_a_row_is_the_epsilon_of_the_theorems_numbers(words, unit, expected):
    """Up to the grid, which adds a thousandth at most."""
    honest, cheating = rows_of(*words)
    [rdp, pld] = [row for row in cheating if row.unit == unit]
    assert {row.observer for row in cheating} == {CHEATING_SERVER}
    assert expected * (1 - 1e-6) <= pld.certified <= expected * 1.003
    assert pld.certified < rdp.certified
    assert pld.claimed is None  # no paper speaks of such a server
    assert ANYTHING in pld.assumptions
    assert "semi-honest parties" not in pld.assumptions
    assert [row.certified for row in honest if row.unit == unit] == [rdp.certified, pld.certified]


UNCERTIFIED = [
    (("algo=uldp_avg", "algo.weighting=records", "aggregation=private_weighting"), "the parties"),
    (("algo=uldp_avg", "mechanism=correlated", "algo.cycle=2"), "silos remember what it says"),
    (("algo=cdp_fedavg",), "rounding in local steps"),
    (("algo=local_sgd", "aggregation=masked"), "rounding in local steps"),
    (("algo=dp_erm",), "rounding in local steps"),
    (
        ("aggregation=secagg", "aggregation.neighbours=auto", "allocator.n_silos=100"),
        "a sparse graph fails with a probability",
    ),
]


@pytest.mark.parametrize(("words", "why"), UNCERTIFIED)
def test_where_nothing_is_certified_there_is_no_row_and_the_servers_says_why(words, why):
    honest, cheating = rows_of("rounds=2", *words)
    assert not cheating
    [reason] = {text for row in honest for text in row.assumptions if text.startswith(HONEST)}
    assert reason.startswith(f"{HONEST}: {why}")
    assert all(math.isfinite(row.certified) for row in honest)


@pytest.mark.parametrize("words", [("algo=fedavg",), ("algo=uldp_avg", "algo.weighting=records")])
def test_what_an_honest_server_learns_needs_no_second_reason(words):
    honest, cheating = rows_of("rounds=2", *words)
    assert not cheating
    assert all(math.isinf(row.certified) for row in honest)
    assert not any(HONEST in text for row in honest for text in row.assumptions)


OBSERVERS = (MODEL, Observer(SERVER), Observer(CHEATING_SERVER, cheats=True))


@pytest.mark.parametrize(
    ("request_", "cheating", "why"),
    [
        (Request(SumNoise()), None, None),
        (Request(SumNoise()), "it has the keys", "it has the keys"),
        (Request(SumNoise(), stateful=True), None, "silos remember"),
        (Request(OwnNoise()), None, "nothing is proven of this noise"),
        (Request(SumNoise(), n_summed=2), None, "the method asks for sums of another size"),
        (Request(SumNoise(), invited=(0, 1), n_summed=1), None, "the method asks for sums"),
    ],
)
def test_one_query_without_a_certificate_takes_the_row_away(request_, cheating, why):
    """Whatever the other query of the round has."""
    made = plan(*OBSERVERS)
    model = replace(made.threat_model, cheating=cheating)
    named = dict.fromkeys(("update", "more"), made.parameters)
    made = replace(made, threat_model=model, query_parameters=named)
    requests = (Request(SumNoise(), name="more"), request_)
    queries = plan_queries(requests, made, Users(), (USER,), round=1, claim=claimed)
    ledger = Ledger(experiment().accountant)
    ledger.record(event for query in queries for event in query.events)
    rows = {row.observer: row for row in ledger.rows(1)}
    reasons = [text for text in rows[SERVER].assumptions if text.startswith(HONEST)]
    assert (CHEATING_SERVER in rows) == (why is None)
    assert [text.removeprefix(f"{HONEST}: ").startswith(why or "") for text in reasons] == (
        [True] if why else []
    )


def test_no_noise_is_calibrated_for_an_observer_that_may_have_no_row():
    with pytest.raises(ConfigError, match=r"algo\.observer=cheating server: an observer of this"):
        EpsilonForecast.of(experiment("algo=minibatch_sgd", "algo.observer='cheating server'"))


# -- attacks ---------------------------------------------------------------------------------------


def different(broadcast, silos):
    """Another model for each silo."""
    params = broadcast.vectors["params"]
    return {name: Broadcast({"params": params + place}) for place, name in enumerate(silos)}


class LyingPlainServer(PlainServer):
    def query(self, query, broadcast):
        post = query.post(SERVER, self.signer)
        expected = Expected(MESSAGE, Array(np.float64, (query.size,)), query.silos)
        down = different(broadcast, query.silos)
        answers = yield from post.exchange_all(BROADCAST, down, expected)
        return Total(sum(answers.values()), query.silos)


class LyingMaskedServer(MaskedServer):
    def query(self, query, broadcast):
        post = query.post(SERVER, self.signer)
        expected = Expected(MESSAGE, ring_message(query), query.silos)
        down = different(broadcast, query.silos)
        answers = yield from post.exchange_all(BROADCAST, down, expected)
        total = sum(answers.values(), np.zeros_like(answers[query.silos[0]]))
        return Total(ring_encoding(query).decode(total), query.silos)


@dataclass(frozen=True)
class LyingPlain(Plain):
    def helper(self, name, silos, weighting):
        return LyingPlainServer(silos, weighting)


@dataclass(frozen=True)
class LyingMasked(Masked):
    def helper(self, name, silos, weighting):
        return LyingMaskedServer(silos, weighting)


class Cheat:
    """A coordinator with a server: it draws what it asks whom, with which model.

    sums: how often it has had a sum, by serial.
    read: how often it has had a silo's vector, by serial and silo.
    smallest: the fewest silos of a sum.
    """

    def __init__(self, prepared, chance):
        self.prepared, self.chance = prepared, chance
        self.sums, self.read = Counter(), Counter()
        self.smallest = math.inf
        self.session = prepared.standing.session_name
        prepared.session.network = lambda: Wiretap(self.read)

    def step(self):
        silos = self.prepared.silos
        some = tuple(sorted(self.chance.sample(silos, self.chance.randint(1, len(silos)))))
        chosen = self.chance.choice([silos, silos, some])
        if self.chance.random() < 0.3:
            self.session = next_session(self.session)
            tasks = dict.fromkeys([SERVER, *silos], SetUpTask(self.session, chosen))
        else:
            size = len(self.prepared.state.params)
            model = Broadcast({"params": np.full(size, self.chance.gauss(0, 3))})
            asked = QueryTask(self.chance.randint(1, 4), 0)
            tasks = dict.fromkeys(chosen, asked)
            tasks[SERVER] = replace(asked, broadcast=model)
        try:
            learned = self.prepared.session.run(tasks, Traffic())
        except FedprivError:
            return
        total = learned[SERVER]
        if isinstance(total, Total):
            self.sums[asked.round, asked.place] += 1
            self.smallest = min(self.smallest, len(total.silos))


class Wiretap(Network):
    def __init__(self, read):
        self.read = read

    def carry(self, step, sent):
        for letter in sent:
            if letter.message.phase == MESSAGE:
                said = letter.message
                self.read[(said.round, said.place), letter.sender] += 1
        return sent


COHORT = ("aggregation=secagg", "aggregation.cohort=3", *FOUR)
ATTACKED = {
    "plain": (("aggregation=plain",), None, 3),
    "plain, other models": (("aggregation=plain",), LyingPlain(), 3),
    "masked": (("aggregation=masked",), None, 3),
    "masked, other models": (("aggregation=masked",), LyingMasked(), 3),
    "secagg": (COHORT, None, 3),
    "exact": (("aggregation=secagg_exact_noise", *FOUR), None, 3),
}


@pytest.mark.parametrize("name", ATTACKED)
def test_a_server_gets_no_more_than_the_releases_that_its_row_counts(name):
    """Whatever it asks: rounds again, in any order, of some silos, after new set-ups, with other
    models for other silos."""
    words, lying, cohort = ATTACKED[name]
    exp = experiment("algo=uldp_sgd", "rounds=3", *words)
    exp = replace(exp, aggregation=lying or exp.aggregation)
    released = Counter()
    for seed in range(2):
        with prepare(exp) as prepared:
            cheat = Cheat(prepared, Random(seed))
            for _ in range(40):
                cheat.step()
            events = {
                query.serial: [one for one in query.events if one.observer == CHEATING_SERVER]
                for number in (1, 2, 3)
                for query in prepared.queries(number)
            }
        assert set(cheat.sums) <= set(events)
        assert max(cheat.read.values(), default=0) <= 1
        assert cheat.smallest >= cohort
        # In the clear, the event of a query counts one message of each silo.
        got = Counter({serial for serial, _ in cheat.read}) if "plain" in name else cheat.sums
        ledger = Ledger(exp.accountant)
        for serial, times in got.items():
            ledger.record(events[serial], times)
        spent = [row.certified for row in ledger.rows(3)]
        counted = Ledger(exp.accountant)
        for one in events.values():
            counted.record(one)
        assert all(epsilon <= row.certified for epsilon, row in zip(spent, counted.rows(3)))
        released += got
    # The attacks do get something, but for masks that do not cancel.
    assert bool(released) == (name != "masked, other models")


def test_why_noisy_local_steps_have_no_row():
    """The model that is sent is so large that a step is rounded to 0 or 1. One of ten records then
    moves both coordinates of a message by 1, where the certificate says 2 * clip * rate / 10 in
    all, for which the last step's noise is sized."""
    rate = 0.5 * math.sqrt(2) / 0.95
    x = torch.ones(10, 1)
    labels = torch.zeros(10)
    network = Linear().build((1,), 1)
    size = sum(parameter.numel() for parameter in network.parameters())
    moved = []
    for label in (0.0, 1.0):
        y = labels.clone()
        y[0] = label
        change, _ = NoisySteps(
            gradients=ClippedGradients(network, BinaryClassification(), 1.0, shape=(1,)),
            theta=np.full(size, 1.5 * 2.0**52),
            x=x,
            y=y,
            batches=iter([np.arange(10)]),
            batch_size=10,
            rates=np.array([rate / 10]),
            noise=TrainingNoise(0.0),
            noise_rng=np.random.default_rng(0),
            noised=0,
            keys=np.zeros(10, dtype=np.uint64),
            stats=ContributionStats(),
        ).run()
        moved.append(change)
    assert np.linalg.norm(moved[0] - moved[1]) == math.sqrt(2) > 9 * (2 * rate / 10)
