import numpy as np
import pytest
from hypothesis import given, settings
from parties_of_generators import noting
from scipy.stats import chisquare
from secure_sums import PHASES, leaving, names, parties, ready, schedules, total_of

from fedpriv.aggregation.base import SERVER
from fedpriv.aggregation.secagg.aggregation import SecAgg
from fedpriv.aggregation.secagg.messages import sharing_digest
from fedpriv.crypto.prg import add_masks
from fedpriv.errors import AggregationAbortedError
from fedpriv.util.streams import Streams


def expected(aggregation, sends, seed):
    """The set in the sum, or the phase that has too few; the protocol's table, without any
    cryptography."""
    rng = Streams(seed).secret("silo sample", 1, SERVER)
    sent = dict(zip(names(len(sends)), sends))
    left = {name for name in sent if sent[name] > 0}
    if len(left) < aggregation.cohort:
        return PHASES[0]
    left = drawn(rng, left, min(aggregation.candidates, len(left)))
    for phase, least in ((1, aggregation.cohort), (2, aggregation.cohort)):
        left = [name for name in left if sent[name] > phase]
        if len(left) < least:
            return PHASES[phase]
    chosen = drawn(rng, left, aggregation.cohort)
    for phase in (3, 4):
        left = [name for name in left if sent[name] > phase]
        if len(left) < aggregation.threshold:
            return PHASES[phase]
    return chosen


def drawn(rng, names, size):
    """Those with the smallest of as many uniform numbers."""
    number = dict(zip(sorted(names), rng.random(len(names))))
    return set(sorted(names, key=number.get)[:size])


def check_schedule(schedule):
    aggregation, sends, seed = schedule
    # Whole numbers have exact codes and exact float64 sums.
    vectors = np.random.default_rng(seed).integers(-10_000, 10_001, (len(sends), 3))
    cast = parties(ready(aggregation, len(sends)), vectors, streams=Streams(seed))
    for name, count in zip(names(len(sends)), sends):
        cast[name] = leaving(cast[name], count)
    outcome = expected(aggregation, sends, seed)
    if isinstance(outcome, str):
        with pytest.raises(AggregationAbortedError, match=outcome):
            total_of(cast)
    else:
        total = total_of(cast)
        assert set(total.silos) == outcome
        picked = [int(name.removeprefix("silo")) for name in outcome]
        np.testing.assert_array_equal(total.vector, vectors[picked].sum(0))


@settings(max_examples=50)
@given(schedules())
def test_any_dropouts_give_the_exact_sum_over_the_set_or_no_sum(schedule):
    check_schedule(schedule)


@pytest.mark.slow
@settings(max_examples=10_000)
@given(schedules())
def test_ten_thousand_dropout_schedules(schedule):
    check_schedule(schedule)


def transcript(vectors, aggregation, gone):
    """Everything that each party sent in a round in which `gone` shared its keys and then dropped
    out."""
    cast = parties(ready(aggregation, len(vectors)), vectors)
    cast[gone] = leaving(cast[gone], 2)
    seen = {name: [] for name in cast}
    total = total_of({name: noting(party, seen[name]) for name, party in cast.items()})
    return total, seen


def test_masks_for_different_sharers_do_not_cancel():
    """A server that tells one silo of another set of sharers gets nothing that it could use."""
    told = [sharing_digest(b"session", sharers) for sharers in (names(5), names(4))]
    one, other = (add_masks(np.zeros(100, np.uint64), [bytes(32)], purpose=p) for p in told)
    assert (one != other).all()


def test_masked_vectors_are_uniform():
    _, seen = transcript(np.zeros((4, 60_000)), SecAgg(threshold=3, cohort=3), "silo3")
    for name in names(3):
        message, _ = seen[name][2][SERVER]
        assert chisquare(np.bincount(message.view(np.uint8), minlength=256)).pvalue > 1e-6


def test_survivors_reveal_one_secret_of_each_silo():
    _, seen = transcript(np.zeros((5, 2)), SecAgg(threshold=3, cohort=3), "silo1")
    for name in set(names(5)) - {"silo1"}:
        revealed = seen[name][4][SERVER]
        assert set(revealed) == set(names(5))
        assert all(share.shape == (9,) for share in revealed.values())


def test_no_message_of_two_queries_is_the_same():
    protocols, said = ready(SecAgg(), 3), []
    for round, place in [(1, 0), (1, 1), (2, 0)]:
        seen = []
        cast = parties(protocols, np.ones((3, 4)), round, place=place)
        cast["silo0"] = noting(cast["silo0"], seen)
        total_of(cast)
        said.append(seen)
    for messages in zip(*said, strict=True):
        assert len({str(message) for message in messages}) == 3
