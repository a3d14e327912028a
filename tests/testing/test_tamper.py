"""Every message of every aggregation tampered with: detected or harmless, or excluded by what is trusted."""

import random

import numpy as np
import pytest
from fault_schedules import COUNTED, PRIVATE, SMALL, WORLDS

from fedpriv.parties.messages import encode
from fedpriv.parties.post import Stamped
from fedpriv.parties.traffic import Letter
from fedpriv.testing import experiment
from fedpriv.testing.damage import flip_bit, retype, truncate
from fedpriv.testing.faults import alter
from fedpriv.testing.lives import Bench
from fedpriv.testing.tamper import CRASH, HARMLESS, KINDS, SILENT, UNNAMED, tamper

UNSIGNED = {"bit flip", "swap"}
"""What changes contents under a valid stamp: without signatures, channels must be authentic (`parties.post`)."""
OBLIVIOUS = (*PRIVATE, *COUNTED, "algo.user_rate=0.5", "aggregation.oblivious=true")


def outcomes_of(words, **options):
    return tamper(experiment(*SMALL, *words), **options)


def assert_table(outcomes, silent_kinds):
    assert not outcomes.of(CRASH), outcomes.examples
    assert {kind for _, kind in outcomes.of(SILENT)} <= silent_kinds, outcomes.examples
    for (row, kind), counts in outcomes.cells.items():
        if kind == "duplicate":
            assert set(counts) == {HARMLESS}, row
        elif kind == "truncation":
            assert HARMLESS not in counts, row


@pytest.mark.parametrize("world", ["secagg", "secagg, stateful"])
def test_nothing_is_silent_in_secure_sums(world):
    outcomes = outcomes_of(WORLDS[world], trials=1)
    assert_table(outcomes, set())
    assert not outcomes.of(UNNAMED)
    assert len(outcomes.rows) == (14 if world == "secagg" else 13)


@pytest.mark.parametrize("world", [world for world in WORLDS if "secagg" not in world])
def test_without_signatures_only_altered_contents_are_silent(world):
    assert_table(outcomes_of(WORLDS[world], trials=2), UNSIGNED)


@pytest.mark.slow
@pytest.mark.parametrize("words", [*WORLDS.values(), OBLIVIOUS], ids=[*WORLDS, "oblivious"])
def test_twenty_trials_in_every_cell(words):
    assert_table(outcomes_of(words, trials=20), set() if "aggregation=secagg" in words else UNSIGNED)


def test_a_wrong_sum_is_told_from_a_right_one():
    """What the table calls silent can happen, and the oracle sees it: one last bit of one silo's message."""

    def nudge(message):
        vector = np.array(message.content)
        vector[0] = np.nextafter(vector[0], np.inf)
        return Stamped(message.session, message.round, message.place, message.phase, vector)

    with Bench(experiment(*SMALL, "aggregation=plain", "algo=fedavg")) as bench:
        assert bench.is_right(bench.live())
        altered = bench.live([alter(lambda message: message, phase="message"), alter(nudge, phase="broadcast")])
        assert bench.is_right(altered)
        big = bench.live(
            [alter(lambda m: Stamped(m.session, m.round, m.place, m.phase, m.content + 1), phase="message")]
        )
        assert not big.aborts
        assert not bench.is_right(big)


def test_tables_are_printed_and_repeat():
    one, two = (outcomes_of(WORLDS["plain"], trials=1, seed=3, kinds=["drop", "retype"]) for _ in range(2))
    assert one.cells == two.cells
    page = one.markdown()
    assert page.startswith("### Plain\n\n| message | bit flip |")
    assert "| set-up: counts of silo | - | - | detected | - |" in page
    assert one.table().row_count == len(one.rows) == 4
    assert len(one.table().columns) == 1 + len(KINDS)


@pytest.mark.parametrize("damage", [flip_bit, truncate, retype])
def test_damage_always_changes_something(damage):
    rng = random.Random(0)
    message = Stamped(b"s", 1, 0, "p", ({"a": b"x"}, [1, "y"], np.ones(2)), b"")
    for _ in range(200):
        damaged = damage(rng)(message)
        assert type(damaged) is bytes or encode(damaged) != encode(message)


def test_letters_of_the_transcript_are_named():
    with Bench(experiment(*SMALL, "aggregation=plain", "algo=fedavg")) as bench:
        sent = bench.live(rounds=(1,)).sent
    assert [type(letter) for letter in sent[1]] == [Letter] * 6
