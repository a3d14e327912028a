import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from exact_binomial import level_variance
from parties_of_generators import Protocols, noting, run
from queries import query_for
from record_sgd import RecordSgd

from fedpriv.accountants.ledger import Ledger
from fedpriv.aggregation.base import MESSAGE
from fedpriv.aggregation.plain import Plain
from fedpriv.aggregation.shuffle import SHUFFLED, SHUFFLER, Shuffle, level_encoding
from fedpriv.errors import AggregationAbortedError, ConfigError
from fedpriv.mechanisms.binomial import Binomial
from fedpriv.rounds.contributors import RecordsInFull
from fedpriv.rounds.local_job import LocalJob
from fedpriv.rounds.plan import Federation
from fedpriv.rounds.query import events_of
from fedpriv.runtime import prepare
from fedpriv.testing import check_algorithm
from fedpriv.testing.experiments import experiment
from fedpriv.training.contributions import Contributions
from fedpriv.util.streams import Streams

WORDS = ("aggregation=shuffle", "mechanism=binomial")
SILOS, UNITS = 4, 30


def vectors(size, seed=0):
    """(SILOS, UNITS, size) of norm at most 1."""
    drawn = np.random.default_rng(seed).normal(size=(SILOS, UNITS, size))
    return drawn / np.linalg.norm(drawn, axis=2, keepdims=True)


def updates(contributions, mechanism, streams, number):
    encoding = mechanism.count_encoding(SILOS)
    made = {}
    for s, own in enumerate(contributions):
        rng = streams.secret("noise", number, f"silo{s}")
        noise = mechanism.noise_share(own.shape[1], SILOS, rng, encoding=encoding)
        made[f"silo{s}"] = LocalJob(blocks(own), noise)
    return made


def blocks(own):
    for start in range(0, len(own), 8):
        units = np.arange(start, min(start + 8, len(own)))
        yield Contributions(units, torch.from_numpy(own[units]))


def exchanged(contributions, mechanism, *, number=1, streams=None, sent=None, lie=None):
    """The total of one exchange. sent: filled with what each party says. lie: a party, a phase, and
    how it changes what it says in it."""
    streams = streams or Streams(number)
    protocols = Protocols(Shuffle(), tuple(range(SILOS)), RecordsInFull())
    protocols.ready(np.ones((SILOS, UNITS), dtype=np.int64))
    query = query_for(
        Shuffle(),
        SILOS,
        number,
        streams=streams,
        users=UNITS,
        size=contributions[0].shape[1],
        mechanism=mechanism,
    )
    parties = protocols.query(query, updates(contributions, mechanism, streams, number))
    if lie is not None:
        protocols.says(parties, *lie)
    if sent is not None:
        parties = {
            name: noting(party, sent.setdefault(name, [])) for name, party in parties.items()
        }
    return run(parties)["server"]


@pytest.mark.parametrize("system", [False, True], ids=["seeded", "system"])
def test_the_sum_is_right_on_average_and_varies_as_the_formula_says(system):
    """Half of it rounding, half of it noise; 2e5 squares, so that one percent is three standard
    deviations."""
    size, runs = 4000, 50
    mechanism, own = Binomial(1.0, 2 / 6 * math.sqrt(SILOS * UNITS / 6), levels=6), vectors(size)
    errors, whole = np.empty((runs, size)), own.sum(axis=(0, 1))
    for number in range(runs):
        total = exchanged(own, mechanism, number=number, streams=Streams(0, system=system))
        errors[number] = total.vector - whole
    expected = level_variance(mechanism.count_encoding(SILOS), own.reshape(-1, size))
    assert (errors**2).mean() / expected.mean() == pytest.approx(1, abs=0.01)
    assert abs(errors.mean()) < 5 * math.sqrt(expected.mean() / errors.size)
    assert np.abs(errors.mean(0) / np.sqrt(expected / runs)).max() < 5


def test_silos_tell_the_shuffler_counts_and_the_shuffler_tells_the_server_their_sum():
    sent, mechanism = {}, Binomial(1.0, 1.0, levels=64)
    total = exchanged(vectors(3), mechanism, sent=sent)
    from_silos = [sent[f"silo{s}"] for s in range(SILOS)]
    assert all(list(mail) == [SHUFFLER] for said in from_silos for mail in said)
    (shuffled,) = sent[SHUFFLER]
    assert list(shuffled) == ["server"]
    counts, shuffled = [said[0][SHUFFLER] for said in from_silos], shuffled["server"]
    np.testing.assert_array_equal(np.sum(counts, axis=0), shuffled)
    most = mechanism.count_encoding(SILOS).most(UNITS)
    assert all(c.dtype == np.int64 and c.min() >= 0 and c.max() <= most for c in counts)
    assert total.silos == tuple(f"silo{s}" for s in range(SILOS))


def cheating(*lie):
    """The exchange of a query in which a party says something else."""
    return exchanged(vectors(3), Binomial(1.0, 1.0, levels=64), lie=lie)


def test_a_shuffler_can_tell_any_sum():
    """The limit of the trust that is asked for."""
    honest = exchanged(vectors(3), Binomial(1.0, 1.0, levels=64))
    lied = cheating(SHUFFLER, SHUFFLED, lambda sent: {"server": sent["server"] + 5})
    unit = Binomial(1.0, 1.0, levels=64).count_encoding(SILOS).unit
    np.testing.assert_allclose(lied.vector - honest.vector, 5 * unit, rtol=1e-9)


@pytest.mark.parametrize("count", [-1, 10**9])
def test_counts_beyond_what_a_silo_can_have_are_refused(count):
    with pytest.raises(
        AggregationAbortedError, match="a message of silo2 is refused: a number outside"
    ):
        cheating("silo2", MESSAGE, lambda sent: {SHUFFLER: np.full_like(sent[SHUFFLER], count)})


def test_a_silent_shuffler_ends_the_exchange():
    with pytest.raises(AggregationAbortedError, match=f"no message from {SHUFFLER}"):
        cheating(SHUFFLER, SHUFFLED, lambda sent: {})


def test_only_levels_can_be_counted():
    with pytest.raises(ValueError, match="messages need Levels, not None"):
        level_encoding(query_for(Plain(), 2))


def test_a_record_that_is_not_there_counts_as_zero_and_moves_nobody_else():
    """Same random numbers for the others: the sums differ by that record's own level."""
    mechanism, own = Binomial(1.0, 0.0, levels=2**20), vectors(5)
    fewer = [own[0][:-1], *own[1:]]
    moved = exchanged(own, mechanism).vector - exchanged(fewer, mechanism).vector
    np.testing.assert_allclose(moved, own[0, -1], atol=mechanism.count_encoding(1).unit)


@pytest.fixture(scope="module")
def small():
    return experiment(*WORDS, "data=breast_cancer", "allocator.n_silos=3", algo=RecordSgd())


def test_every_observer_is_certified_what_it_cannot_subtract(small):
    """The released model and the server see the sum, a silo knows its share, the shuffler sees each
    silo's count."""
    with prepare(small) as prepared:
        queries = prepared.queries(1)
        ledger = Ledger(small.accountant)
        ledger.record(events_of(queries))
        rows = {row.observer: row for row in ledger.rows(1) if row.method == "pld"}
        result = prepared.run_round(queries, prepared.state)
    assert list(rows) == ["released model", "server", "silo", "shuffler", "cheating server"]
    epsilons = {name: row.certified for name, row in rows.items()}
    assert (
        epsilons["released model"]
        == epsilons["server"]
        == epsilons["cheating server"]
        < epsilons["silo"]
        < epsilons["shuffler"]
        < math.inf
    )
    # The batches are drawn by a class outside of fedpriv.
    assert {row.status for row in rows.values()} == {"declared by RecordSgd"}
    assert any("does not collude with the server" in text for text in rows["server"].assumptions)
    assert result.aborted is None


def test_with_silent_silos_nothing_is_promised_against_the_shuffler(small):
    silent = replace(small, mechanism=replace(small.mechanism, silent=0.34))
    with prepare(silent) as prepared:
        (query,) = prepared.queries(1)
    ledger = Ledger(small.accountant)
    ledger.record(query.events)
    rows = {row.observer: row for row in ledger.rows(1) if row.method == "pld"}
    assert math.isinf(rows["shuffler"].certified)
    assert math.isfinite(rows["silo"].certified)
    assert any(
        "at most 0.34 of the silos add no noise" in text for text in rows["server"].assumptions
    )


@pytest.mark.slow
def test_the_whole_method_keeps_every_rule_and_its_noise_hides_a_record():
    found = check_algorithm(RecordSgd(), *WORDS)
    assert any("record, replace" in name for name in found.checked)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (
            ("aggregation=shuffle", "mechanism=gaussian"),
            "binomial: aggregation=shuffle counts bits",
        ),
        (("aggregation=plain", "mechanism=binomial"), "with aggregation=shuffle alone"),
        (("aggregation=masked", "mechanism=binomial"), "with aggregation=shuffle alone"),
        (("aggregation=shuffle", "mechanism=binomial", "mechanism.levels=3"), "even number"),
    ],
)
def test_what_does_not_go_together_is_refused(words, why):
    with pytest.raises(ConfigError, match=why):
        experiment(*words, algo=RecordSgd())


def test_methods_whose_contributions_are_not_records_are_refused():
    with pytest.raises(ConfigError, match="is not one record's"):
        experiment(*WORDS, "algo=uldp_avg")


def test_the_largest_silos_counts_have_to_fit():
    def encoding(*records):
        return Shuffle().encoding(
            2, 1.0, Federation(100, 2, 10, records), Binomial(1.0, 1.0, levels=64)
        )

    assert encoding(5, 10).parties == encoding().parties == 2
    for records in ((5, 2**50), (2**50, 5)):
        with pytest.raises(
            ConfigError, match=r"mechanism.levels=64.*1125899906842624 units do not fit"
        ):
            encoding(*records)
