"""Every message of every aggregation tampered with: detected or harmless, or excluded by what is
trusted."""

import random

import numpy as np
import pytest

from fedpriv.parties.messages import encode
from fedpriv.parties.post import Message
from fedpriv.testing import experiment
from fedpriv.testing.damage import flip_bit, retype, same_type, truncate
from fedpriv.testing.fault_trials import FaultTrials
from fedpriv.testing.faults import alter
from fedpriv.testing.tamper import BAD, HARMLESS, TAMPERINGS, UNNAMED, tamper
from scripts.fault_scenarios import SCENARIOS, TINY

ROWS = {"secagg": 12, "secagg_state": 11, "plain": 4, "masked": 6, "private": 7, "oblivious": 9}
LONG = {"private": ["forgery", "truncation", "late"], "oblivious": ["forgery"]}
"""Worlds where a trial is long, and a few ways for each."""


def outcomes_of(world, **options):
    return tamper(SCENARIOS[world].experiment(), **options)


def assert_table(world, outcomes):
    for bad in BAD:
        assert not outcomes.of(bad), outcomes.examples
    assert not outcomes.of(UNNAMED), outcomes.examples
    for (row, way), counts in outcomes.counts.items():
        if way == "duplicate":
            assert set(counts) == {HARMLESS}, row
        elif way == "truncation":
            assert HARMLESS not in counts, row


@pytest.mark.parametrize(
    "world", [pytest.param(w, marks=pytest.mark.slow if w == "secagg_state" else ()) for w in ROWS]
)
def test_tampering_is_found_or_harmless(world):
    """And costs one exchange at most, in set-ups too."""
    outcomes = outcomes_of(world, trials=1, ways=LONG.get(world, TAMPERINGS))
    assert_table(world, outcomes)
    assert len(outcomes.rows) == ROWS[world]


@pytest.mark.slow
@pytest.mark.parametrize("world", SCENARIOS)
def test_twenty_trials_in_every_cell(world):
    assert_table(world, outcomes_of(world, trials=20))


def test_a_wrong_sum_is_told_from_a_right_one(monkeypatch):
    """What the table calls silent can happen, and the oracle sees it: the last bits of one silo's
    message."""

    def nudge(vector):
        return np.nextafter(vector, np.inf)

    with FaultTrials(experiment(*TINY.split(), "aggregation=plain", "algo=fedavg")) as bench:
        assert bench.is_correct(bench.run())
        untouched = bench.run([alter(lambda message: message, phase="message")])
        assert len(untouched.successes) == 3
        assert bench.is_correct(untouched)
        protocol = type(bench.prepared.session.participants["silo1"].protocol)
        honest = protocol.messages

        def nudged(self, query, job):
            mail = yield from honest(self, query, job)
            if self.name != "silo1":
                return mail
            return {receiver: nudge(vector) for receiver, vector in mail.items()}

        monkeypatch.setattr(protocol, "messages", nudged)
        trial = bench.run()
        assert not trial.aborts
        assert not bench.is_correct(trial)


def test_tables_are_printed_and_repeat():
    one, two = (outcomes_of("plain", trials=1, seed=3, ways=["drop", "retype"]) for _ in range(2))
    assert one.counts == two.counts
    table = one.table()
    assert [column.header for column in table.columns] == ["message", *TAMPERINGS]
    assert table.row_count == len(one.rows) == 4
    cells = {column.header: next(iter(column.cells)) for column in table.columns}
    assert cells["message"] == "set-up: counts of silo"
    assert (cells["retype"], cells["bit flip"]) == ("detected", "-")


@pytest.mark.parametrize("damage", [flip_bit, same_type, truncate, retype])
def test_damage_always_changes_something(damage):
    rng = random.Random(0)
    message = Message(b"s", 1, 0, "p", ({"a": b"x"}, [1, "y"], np.ones(2)), b"")
    for _ in range(200):
        damaged = damage(rng, message)
        assert type(damaged) is bytes or encode(damaged) != encode(message)


def test_any_bit_of_a_message_may_be_the_one_that_flips():
    found = {repr(flip_bit(random.Random(seed), b"ab")) for seed in range(2000)}
    assert len(found) == 8 * len(encode(b"ab"))


@pytest.mark.parametrize("message", [[], {}, None, 7, "s", np.ones(2)], ids=repr)
def test_a_forgery_is_found_for_any_message_and_has_its_type_if_there_is_one(message):
    for seed in range(20):
        forged = same_type(random.Random(seed), message)
        assert type(forged) is bytes or encode(forged) != encode(message)
        assert type(forged) is type(message) or message in ([], {}, None)
