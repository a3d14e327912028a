"""Secure sums over everybody who delivers: exact sums, exact noise, and survivors that lie about
it."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from parties_of_generators import noting, run
from queries import SYSTEM, query_for
from runs import experiment
from secure_sums import PHASES, leaving, names, ready, refused, schedules, total_of

from fedpriv.accountants.pld import gaussian_epsilon
from fedpriv.aggregation.base import SERVER
from fedpriv.aggregation.secagg.aggregation import SecAgg
from fedpriv.aggregation.secagg.exact_noise import SecAggExactNoise
from fedpriv.crypto.prg import SeededGenerator
from fedpriv.crypto.secret_sharing import Reconstruction
from fedpriv.engines.inprocess import InProcess
from fedpriv.errors import AggregationAbortedError, ConfigError
from fedpriv.parties.messages import encode
from fedpriv.rounds.local_job import LocalJob
from fedpriv.rounds.query import Total
from fedpriv.runs.loop import train
from fedpriv.runtime import prepare
from fedpriv.testing.faults import Faulty, drop
from fedpriv.testing.observation import ProtocolTap
from fedpriv.util.stopwatch import Stopwatch

REVEAL = PHASES[4]
FIVE = SecAggExactNoise(threshold=3, cohort=3)


class Sum:
    """One query over silos with whole numbers and real noise; what it should come to is known.
    sends: how many messages each silo sends before it is never heard of again; five are all."""

    def __init__(self, aggregation, sends, seed=0, streams=SYSTEM, size=6):
        self.names = names(len(sends))
        self.protocols = ready(aggregation, len(sends))
        self.query = query_for(aggregation, len(sends), streams=streams, size=size)
        self.noise = self.query.removable
        rng = np.random.default_rng(seed)
        self.vectors = {name: rng.integers(-1000, 1001, size).astype(float) for name in self.names}
        self.secrets = {name: rng.bytes(32) for name in self.names}
        generator = streams.secret("noise", 1, "all")
        self.noises = {
            name: self.noise.share(generator, secret) for name, secret in self.secrets.items()
        }
        # The signal is told apart from the noise only here: both are whole grid steps.
        updates = {
            name: LocalJob(iter(()), self.vectors[name] + self.noises[name], self.secrets[name])
            for name in self.names
        }
        self.cast = self.protocols.query(self.query, updates)
        self.sends = dict(zip(self.names, sends))
        for name, count in self.sends.items():
            self.cast[name] = leaving(self.cast[name], count)

    def lies(self, name, change, phase=REVEAL):
        self.protocols.says(self.cast, name, phase, lambda sent: {SERVER: change(sent[SERVER])})

    def kept_noise(self, summed):
        """Without the parts that are too much, each drawn from its own secret here."""
        least, most = self.noise.least, self.noise.most
        total = np.zeros(self.query.size)
        for name in summed:
            total += self.noises[name]
            links = self.noise.chain(self.secrets[name])
            for silos in range(most - 1, least - 1, -1):
                if silos < len(summed):
                    generator = SeededGenerator(links[most - 1 - silos], b"removable noise")
                    total -= self.query.mechanism.noise_share(
                        self.query.size,
                        silos * (silos + 1),
                        generator,
                        encoding=self.query.encoding,
                    )
        return total


SCHEDULES = schedules(SecAggExactNoise, least=2, everybody=True)


def check(schedule):
    aggregation, sends, seed = schedule
    sum_ = Sum(aggregation, sends, seed)
    left = [{name for name in sum_.names if sum_.sends[name] > phase} for phase in range(5)]
    for phase, least in enumerate([aggregation.cohort] * 3 + [aggregation.threshold] * 2):
        if len(left[phase]) < least:
            refused(sum_.cast, PHASES[phase])
            return
    total, summed = total_of(sum_.cast), left[2]
    assert set(total.silos) == summed
    expected = sum(sum_.vectors[name] for name in summed) + sum_.kept_noise(summed)
    np.testing.assert_array_equal(total.vector, expected)
    assert sum_.query.covered(total) is total


@settings(max_examples=25)
@given(SCHEDULES)
def test_any_dropouts_give_everybody_who_delivered_under_the_noise_that_stays(schedule):
    check(schedule)


@pytest.mark.slow
@settings(max_examples=1000)
@given(SCHEDULES)
def test_a_thousand_dropout_schedules(schedule):
    check(schedule)


@pytest.mark.parametrize("gone", [0, 1, 2])
@pytest.mark.parametrize("sends", [2, 3, 4])
def test_the_noise_of_a_sum_has_the_variance_that_is_certified(gone, sends):
    """Silos that leave before they deliver are not in the sum; those that leave later are, and lose
    their surplus."""
    sum_ = Sum(FIVE, [sends] * gone + [5] * (5 - gone), seed=gone, size=20_000)
    total = total_of(sum_.cast)
    assert len(total.silos) == (5 - gone if sends == 2 else 5)
    noise = total.vector - sum(sum_.vectors[name] for name in total.silos)
    assert noise.var() / 20.0**2 == pytest.approx(1, abs=4 * np.sqrt(2 / 20_000))


def test_noise_that_cannot_be_taken_out_is_refused():
    sum_, fixed = Sum(FIVE, [5] * 5), query_for(SecAgg(threshold=3, cohort=3), 5, streams=SYSTEM)
    for query, secret, match in (
        (sum_.query, None, "has no secret"),
        (fixed, b"s" * 32, "removable noise"),
    ):
        updates = {name: LocalJob(iter(()), sum_.vectors[name], secret) for name in sum_.names}
        with pytest.raises(ValueError, match=match):
            run(ready(FIVE, 5).query(query, updates))


@pytest.mark.parametrize(("gone", "kept"), [(0, 0), (1, 1), (2, 2)])
def test_survivors_let_go_of_surplus_alone(gone, kept):
    """What they send together gives the first secret of each silo's surplus, and none before it."""
    sum_, seen = Sum(FIVE, [2] * gone + [5] * (5 - gone)), {}
    for name in sum_.names[gone:]:
        sum_.cast[name] = noting(sum_.cast[name], seen.setdefault(name, []))
    run(sum_.cast)
    everything = b"".join(encode(said[SERVER]) for messages in seen.values() for said in messages)
    place = {name: 1 + index for index, name in enumerate(sum_.names)}
    for owner in seen:
        links = sum_.noise.chain(sum_.secrets[owner])
        assert not any(link in everything for link in links[:kept])
        _, shares, own = seen[owner][-1][SERVER]
        if kept == sum_.noise.parts:
            assert (shares, own) == ({}, None)
            continue
        assert own == links[kept]
        rows = {
            name: messages[-1][SERVER][1][owner] for name, messages in seen.items() if name != owner
        }
        holders = sorted(rows)[:3]
        join = Reconstruction.at([place[name] for name in holders])
        assert join.secrets(np.stack([rows[name] for name in holders])[None]) == [links[kept]]


def test_a_colluding_silo_can_take_out_the_noise_that_stays_and_no_more():
    """What an audit gives the adversary is not the noise that the server has taken out already."""
    sum_, tap = Sum(FIVE, [5] * 5, size=20_000), ProtocolTap(None, np.ones(1))
    tap.noise, tap.secret = sum_.noises["silo0"], sum_.secrets["silo0"]
    for silos in (3, 4, 5):
        assert tap.known(sum_.query, silos).var() == pytest.approx(20.0**2 / silos, rel=0.05)


# -- survivors that lie ----------------------------------------------------------------------------


def telling(said, secret):
    """The same message with another secret of the silo's surplus noise."""
    return *said[:2], secret


def another(said, _):
    return telling(said, bytes([said[2][0] ^ 1]) + said[2][1:])


def wrong_share(said, _):
    return said[0], said[1] | {"silo0": said[1]["silo0"] ^ np.uint32(1)}, said[2]


def link(place):
    return lambda said, sum_: telling(said, sum_.noise.chain(sum_.secrets["silo4"])[place])


SECRET = "a message of {} is refused: the secret"
WRONG = "silo0's surplus noise: wrong is that of {}, unless silo0"
LIES = {
    "another secret": ([5] * 5, "silo3", another, SECRET.format("silo3")),
    "another secret, one gone": ([2, 5, 5, 5, 5], "silo3", another, SECRET.format("silo3")),
    "no secret": ([5] * 5, "silo2", lambda said, _: telling(said, None), SECRET.format("silo2")),
    "an earlier secret of its chain": ([2, 5, 5, 5, 5], "silo4", link(0), SECRET.format("silo4")),
    "a later secret of its chain": ([2, 5, 5, 5, 5], "silo4", link(2), SECRET.format("silo4")),
    "a wrong share": ([4, 5, 5, 5, 5], "silo1", wrong_share, WRONG.format("silo1")),
    "a wrong share, the last": ([4, 5, 5, 5, 5], "silo4", wrong_share, WRONG.format("silo4")),
    "a wrong share among no more than are needed": (
        [4, 4, 5, 5, 5],
        "silo3",
        wrong_share,
        "Unmasking: the shares do not give silo0's surplus noise",
    ),
    "a share held back": (
        [4, 5, 5, 5, 5],
        "silo2",
        lambda said, _: (said[0], {n: said[1][n] for n in set(said[1]) - {"silo0"}}, said[2]),
        "silo2 is refused: it holds back its share of silo0's",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_survivor_that_lies_about_surplus_noise_is_named(lie):
    sends, liar, change, why = LIES[lie]
    sum_ = Sum(FIVE, sends)
    sum_.lies(liar, lambda said: change(said, sum_))
    refused(sum_.cast, why)


def test_a_survivor_that_commits_to_other_noise_than_it_lets_go_of_is_named():
    sum_ = Sum(FIVE, [5] * 5)
    end = sum_.noise.chain(bytes(32))[-1]
    sum_.lies("silo1", lambda said: (said[0][:32] + end, said[1]), PHASES[1])
    refused(sum_.cast, "a message of silo1 is refused: the secret of its surplus noise")


def test_silos_refuse_a_sum_over_fewer_than_they_noise_for():
    sum_ = Sum(FIVE, [5] * 5)
    sum_.protocols.says(
        sum_.cast,
        SERVER,
        PHASES[2],
        lambda sent: {name: (said[0], said[0][:2], {}) for name, said in sent.items()},
    )
    refused(sum_.cast, "refuses: a sum over 2 silos")


def test_a_silo_that_adds_no_noise_is_not_found_and_its_share_is_missing():
    """It lets go of parts all the same: what it never added comes in with a minus, which makes up
    for some of it."""
    sum_ = Sum(FIVE, [5] * 5, size=20_000)
    updates = {
        name: LocalJob(iter(()), sum_.noises[name].copy(), sum_.secrets[name])
        for name in sum_.names
    }
    updates["silo0"] = LocalJob(iter(()), np.zeros(20_000), sum_.secrets["silo0"])
    noise = total_of(sum_.protocols.query(sum_.query, updates)).vector
    honest = 20.0**2 * 4 / 5
    assert noise.var() == pytest.approx(honest + 20.0**2 * (1 / 3 - 1 / 5), rel=0.05)


# -- what is certified, and for whom ---------------------------------------------------------------


def certified(*words):
    exp = experiment("rounds=1", "allocator.n_silos=5", "accountant=pld", *words)
    with prepare(exp) as prepared:
        (query,) = prepared.queries(1)
    return {event.observer: event for event in query.events}


def test_the_noise_that_stays_is_what_is_certified():
    own = certified("algo=uldp_avg", "aggregation=secagg_exact_noise", "aggregation.cohort=4")
    base = certified("algo=uldp_avg", "aggregation=secagg", "aggregation.cohort=4")
    for observer, event in own.items():
        # The grid is finer or coarser by a digit: rounding adds to the sensitivity.
        assert event.certified.noise_multiplier == pytest.approx(
            base[observer].certified.noise_multiplier, rel=1e-9
        )
        assert (
            "nothing proves that a silo has added the noise that it has committed to"
            in event.assumptions
        )


@pytest.mark.parametrize("colluding", [1, 2])
def test_noise_of_colluding_silos_counts_for_nothing(colluding):
    words = ["algo=uldp_avg", "aggregation=secagg_exact_noise", "aggregation.threshold=4"]
    alone = certified(*words)
    events = certified(*words, f"aggregation.colluding={colluding}")
    whole = alone["released model"].certified.noise_multiplier
    assert events["released model"].certified.noise_multiplier == whole
    for observer in ("server", "silo"):
        unknown = (4 - colluding) / 4
        assert events[observer].certified.noise_multiplier == pytest.approx(
            whole * np.sqrt(unknown)
        )


@pytest.mark.parametrize("algo", ["uldp_naive", "fedavg", "cdp_fedavg"])
def test_algorithms_that_need_a_fixed_number_of_silos_are_refused(algo):
    with pytest.raises(
        ConfigError,
        match=r"aggregation=secagg_exact_noise: needs another.*number of silos that varies",
    ):
        experiment(f"algo={algo}", "aggregation=secagg_exact_noise")


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (["aggregation.colluding=-1"], "aggregation.colluding"),
        (["aggregation.colluding=5"], "aggregation.colluding=5: at most 4"),
        (["aggregation.colluding=2", "aggregation.threshold=3"], "aggregation.threshold=3"),
        (["aggregation.neighbours=2"], "aggregation.neighbours=.*: unknown key"),
        (
            ["+aggregation.neighbours=2"],
            "aggregation.neighbours=2: null: exact noise uses the complete graph",
        ),
        (["+aggregation.dropouts=0.2"], "aggregation.dropouts=0.2: left out"),
        (["aggregation.threshold=5", "aggregation.cohort=4"], "aggregation.threshold"),
        (["aggregation.bits=32", "algo.noise_multiplier=0.000002"], "aggregation.bits"),
    ],
)
def test_impossible_settings_end_before_data_are_loaded(words, key):
    words = ["algo=uldp_avg", "allocator.n_silos=5", "aggregation=secagg_exact_noise", *words]
    with pytest.raises(ConfigError, match=key), prepare(experiment(*words)):
        pass


def test_a_query_takes_totals_over_any_number_of_silos_in_its_range():
    query = query_for(FIVE, 5)
    for silos in (3, 4, 5):
        total = Total(np.zeros(1), tuple(names(silos)))
        assert query.covered(total) is total
    for silos in (names(2), names(6), ["silo0", "silo0", "silo1"]):
        with pytest.raises(AggregationAbortedError, match="silos instead of 3 to 5"):
            query.covered(Total(np.zeros(1), tuple(silos)))


# -- whole runs ------------------------------------------------------------------------------------


def trained(folder, *words):
    train(experiment("rounds=2", "algo=uldp_avg", "allocator.n_silos=4", *words), "", folder)
    assert json.loads((folder / "status.json").read_text())["aborted_rounds"] == {}
    return (folder / "model.safetensors").read_bytes(), pd.read_csv(folder / "metrics.csv")[
        "loss"
    ].to_numpy()


def test_a_seeded_run_repeats_bit_for_bit_and_epsilon_is_that_of_its_whole_noise(tmp_path):
    words = ["aggregation=secagg_exact_noise", "accountant=pld", "algo.noise_multiplier=5"]
    first, second = (trained(tmp_path / name, *words)[0] for name in ("first", "second"))
    assert first == second
    table = pd.read_csv(tmp_path / "first" / "epsilon.csv")
    last = table[(table["round"] == 2) & (table.observer == "released model")].certified.item()
    assert last == pytest.approx(gaussian_epsilon(np.sqrt(2) / 5, 1e-5), rel=1e-3)


def test_a_round_in_which_a_silo_falls_silent_is_applied_over_the_others():
    """Its message is lost, or it leaves before it reveals anything: then its surplus is taken out
    all the same."""
    words = [
        "algo=uldp_avg",
        "allocator.n_silos=4",
        "aggregation=secagg_exact_noise",
        "aggregation.threshold=3",
    ]
    summed = {}
    for step in (5, 9):
        exp = replace(
            experiment(*words),
            engine=Faulty(InProcess(), (drop(sender="silo1", exchange=1, step=step),)),
        )
        with prepare(exp) as prepared:
            [query] = prepared.queries(1)
            total, _ = prepared.exchange(query, prepared.state, watch=Stopwatch(), lines=[])
        summed[step] = set(total.silos)
    assert summed == {5: {"silo0", "silo2", "silo3"}, 9: set(names(4))}
