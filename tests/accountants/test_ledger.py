"""The ledger: what composes, what is maximised, what resumes, what is shown, and how long a round
takes."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from functools import partial

import dp_accounting as dp
import pytest
from rich.console import Console

from fedpriv.accountants.events import ADD_REMOVE, ENFORCED, REPLACE, Event
from fedpriv.accountants.group import paper_group_claim
from fedpriv.accountants.ledger import EpsilonRow, Ledger, epsilon_table, headline
from fedpriv.accountants.pld import Pld, RdpAndPld
from fedpriv.accountants.rdp import Rdp, claimed_epsilon
from fedpriv.errors import ConfigError

GAUSSIAN = dp.GaussianDpEvent(5.0)
SAMPLED = dp.PoissonSampledDpEvent(0.1, GAUSSIAN)
FIXED = dp.SampledWithoutReplacementDpEvent(100, 10, GAUSSIAN)
MODEL = Event(
    "released model",
    "user",
    ADD_REMOVE,
    SAMPLED,
    SAMPLED,
    assumptions=("all noise shares are present",),
)
SERVER = Event("server", "user", ADD_REMOVE, GAUSSIAN, None)


def row(ledger: Ledger, **which: object) -> EpsilonRow:
    (found,) = [
        r for r in ledger.rows(0) if all(getattr(r, name) == value for name, value in which.items())
    ]
    return found


def test_rows_of_several_observers():
    ledger = Ledger(RdpAndPld())
    for _ in range(100):
        ledger.record([MODEL, SERVER])
    rows = ledger.rows(100)
    assert [(r.round, r.observer, r.method) for r in rows] == [
        (100, "released model", "rdp"),
        (100, "released model", "pld"),
        (100, "server", "rdp"),
        (100, "server", "pld"),
    ]
    assert [r.certified for r in rows] == pytest.approx([0.8349, 0.7583, 10.7255, 9.9973], abs=2e-3)
    assert rows[1].claimed == rows[0].claimed == pytest.approx(0.8349, abs=2e-3)
    assert rows[2].claimed is None
    assert [r.assumptions for r in rows] == [("all noise shares are present",)] * 2 + [()] * 2


def test_rounds_at_once_equal_rounds_one_by_one():
    one_by_one, at_once = Ledger(RdpAndPld()), Ledger(RdpAndPld())
    for _ in range(30):
        one_by_one.record([MODEL, SERVER])
    at_once.record([MODEL, SERVER], times=30)
    assert one_by_one.rows(30) == at_once.rows(30)


def test_a_broken_assumption_certifies_nothing_and_keeps_the_claim():
    ledger = Ledger(RdpAndPld())
    broken = Event(
        "server",
        "user",
        ADD_REMOVE,
        dp.NonPrivateDpEvent(),
        GAUSSIAN,
        assumptions=("no secure sum",),
    )
    ledger.record([broken], times=100)
    assert {r.certified for r in ledger.rows(100)} == {math.inf}
    assert [r.claimed for r in ledger.rows(100)] == pytest.approx([10.7255, 10.7255], abs=1e-4)


def test_a_claim_about_some_rounds_is_no_claim():
    ledger = Ledger(Rdp())
    ledger.record([Event("server", "user", ADD_REMOVE, GAUSSIAN, GAUSSIAN)])
    assert row(ledger).claimed is not None
    ledger.record([Event("server", "user", ADD_REMOVE, GAUSSIAN, None)])
    assert row(ledger).claimed is None


def test_scopes_are_maximised_and_events_without_one_touch_all():
    def silo(name: str, sigma: float) -> Event:
        event = dp.GaussianDpEvent(sigma)
        return Event("released model", "record", ADD_REMOVE, event, event, scope=name)

    def alone(*events: Event) -> float:
        ledger = Ledger(Rdp())
        ledger.record(
            [Event(e.observer, e.unit, e.adjacency, e.certified, e.claimed) for e in events]
        )
        return row(ledger).certified

    a, b, everywhere = silo("a", 4.0), silo("b", 2.0), silo("", 3.0)
    ledger = Ledger(Rdp())
    ledger.record([a, b])
    assert row(ledger).certified == row(ledger).claimed == alone(b)
    ledger.record([everywhere])
    assert row(ledger).certified == alone(b, everywhere) > alone(b)
    ledger.record([a] * 10)  # now silo a is the worse off
    assert row(ledger).certified == pytest.approx(alone(*[a] * 11, everywhere), rel=1e-12)
    assert row(ledger).certified > alone(b, everywhere)


def test_compositions_are_what_a_unit_of_each_scope_meets():
    """Equal events are counted together, and those without a scope are met in all."""
    ledger = Ledger(Rdp())
    ledger.record(
        [SERVER, replace(MODEL, scope="a"), replace(MODEL, scope="b", certified=GAUSSIAN)], 2
    )
    ledger.record([replace(SERVER, assumptions=("others",)), replace(MODEL, certified=FIXED)])
    assert ledger.compositions() == {
        ("server", "user", ADD_REMOVE, 1, ""): [((GAUSSIAN, 3),)],
        ("released model", "user", ADD_REMOVE, 1, ""): [
            ((FIXED, 1), (SAMPLED, 2)),
            ((FIXED, 1), (GAUSSIAN, 2)),
        ],
    }


def test_units_and_adjacencies_are_apart():
    ledger = Ledger(RdpAndPld())
    half = dp.GaussianDpEvent(2.5)
    ledger.record(
        [
            SERVER,
            Event("server", "user", REPLACE, half, None),
            Event("server", "record", REPLACE, FIXED, None),
        ]
    )
    assert row(ledger, unit="user", adjacency=REPLACE, method="pld").certified == pytest.approx(
        1.5549, abs=1e-3
    )
    assert row(ledger, unit="user", adjacency=ADD_REMOVE, method="pld").certified == pytest.approx(
        0.72552, abs=1e-4
    )
    # fixed-size batches have no PLD here: one method fewer, never a borrowed curve
    assert row(ledger, unit="record").method == "rdp"


def test_scopes_without_a_common_method_are_an_error():
    class Fussy(Rdp):
        def epsilons(self, runs, adjacency, group_size=1):
            return {"one" if runs[0][0] == GAUSSIAN else "two": 1.0}

    ledger = Ledger(Fussy())
    ledger.record(
        [
            Event("o", "user", ADD_REMOVE, event, None, scope=f"{event}")
            for event in (GAUSSIAN, SAMPLED)
        ]
    )
    with pytest.raises(ConfigError, match="no method"):
        ledger.rows(1)


def test_two_accountants_refuse_together_and_each_may_help_alone():
    """A batch of fixed size has no losses to compose, only a Renyi curve; a sample of unknown kind
    has neither."""
    ledger = Ledger(RdpAndPld())
    ledger.record([replace(MODEL, certified=FIXED, adjacency=REPLACE)])
    assert [found.method for found in ledger.rows(1)] == ["rdp"]
    ledger.record([replace(MODEL, certified=dp.UnsupportedDpEvent(), adjacency=REPLACE)])
    with pytest.raises(ConfigError, match="Unsupported"):
        ledger.rows(1)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("delta", value) for value in (-0.1, 0.0, 1.0, 1.5)),
        *(("budget", value) for value in (-1.0, 0.0)),
        *(("value_discretization_interval", value) for value in (-1e-4, 0.0, 1.5)),
    ],
)
def test_impossible_settings_are_refused(key, value):
    with pytest.raises(ConfigError, match=rf"accountant\.{key}"):
        Pld(**{key: value})
    assert Pld(budget=0.5).budget == 0.5


def test_an_impossible_event_names_itself_and_the_accountant():
    ledger = Ledger(Pld())
    ledger.record([Event("server", "record", REPLACE, FIXED, None)])
    with pytest.raises(
        ConfigError,
        match=r"accountant=pld: cannot account SampledWithoutReplacementDpEvent.*replace",
    ):
        ledger.rows(1)


def test_a_row_names_all_whose_word_it_is():
    ledger, seen = Ledger(Rdp()), []
    for authors in ((), ("Mine",), ("Mine", "Yours"), ()):
        ledger.record([replace(SERVER, authors=authors)])
        seen.append(row(ledger).status)
    assert seen == [ENFORCED, "declared by Mine", *["declared by Mine, Yours"] * 2]


def shown(*rows):
    console = Console(file=io.StringIO(), width=80)
    console.print(epsilon_table(rows, 1e-5))
    return console.file.getvalue()


def test_the_table_has_the_smaller_of_two_methods_and_both_units():
    row = partial(EpsilonRow, 1, "server")
    table = shown(
        row("user", ADD_REMOVE, "rdp", 3.0, 4.0),
        row("user", ADD_REMOVE, "pld", 2.5, 4.0),
        row("record", ADD_REMOVE, "rdp", 1.0, None),
    )
    found = [line.split()[9:12:2] for line in table.splitlines() if "add/remove" in line]
    assert found == [["pld", "2.5000"], ["rdp", "1.0000"]]


def test_the_table_marks_what_is_not_enforced():
    cases = [
        (status, epsilon)
        for status in ("declared by Mine", ENFORCED)
        for epsilon in (2.0, math.inf)
    ]
    rows = [
        EpsilonRow(number, "server", "user", ADD_REMOVE, "rdp", epsilon, None, status=status)
        for number, (status, epsilon) in enumerate(cases, 3)
    ]
    assert [cell for cell in shown(*rows).split() if cell[0] in "2∞"] == [
        *("2.0000*", "∞", "2.0000", "∞")
    ]
    assert "* declared by Mine" in shown(*rows)
    assert "declared" not in shown(*rows[1:])


def of(observer: str, unit: str, certified: float) -> EpsilonRow:
    return EpsilonRow(3, observer, unit, ADD_REMOVE, "pld", certified, None)


def test_a_run_is_known_by_its_users_and_else_by_whoever_its_certificates_speak_of():
    rows = [of("server", "user", 1.0), of("released model", "record", 2.0)]
    assert headline(rows) == 2.0
    rows += [of("released model", "user", 5.0), of("released model", "user", 4.0)]
    assert headline(rows) == 4.0
    assert headline(rows, "server") == 1.0
    assert headline(rows, "shuffler") == 0.0


def test_a_copy_goes_on_by_itself():
    ledger = Ledger(Pld())
    ledger.record([SERVER])
    other = ledger.copy()
    other.record([SERVER])
    alone, twice = (row(one).certified for one in (ledger, other))
    assert alone < twice
    ledger.record([SERVER])
    assert row(ledger).certified == twice


@pytest.mark.parametrize("size", [1, 2])
def test_only_groups_may_lie_in_several_scopes(size):
    """One record of two silos costs what it costs in one; two of them, one in each, cost more than
    either."""
    certificates = []
    for silos in (1, 2):
        ledger = Ledger(Rdp())
        ledger.record(
            replace(MODEL, scope=f"silo{silo}", group_size=size, unit="records")
            for silo in range(silos)
        )
        certificates.append(row(ledger).certified)
    one, several = certificates
    alone = Ledger(Rdp())
    alone.record([replace(MODEL, group_size=size)])
    assert one == row(alone).certified
    assert several >= one
    assert size == 2 or several == one


def test_what_a_paper_claims_of_one_record_and_of_a_group():
    single, pair = Ledger(Rdp()), Ledger(Rdp())
    single.record([MODEL])
    pair.record([replace(MODEL, group_size=2)])
    assert row(single).claimed == claimed_epsilon([(SAMPLED, 1)], 1e-5)
    assert row(pair).claimed == paper_group_claim([(SAMPLED, 1)], 2, 1e-5)
    assert row(single).claimed < row(pair).claimed
