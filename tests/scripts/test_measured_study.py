"""What docs/study.md says of the methods side by side is what results/study.csv holds."""

import math
from collections import Counter
from pathlib import Path

import pytest
from scipy.stats import ttest_rel

from fedpriv.papers.ledger.entries import entries
from fedpriv.papers.study.methods import METHODS, NOTHING, RECORD, USER
from fedpriv.papers.study.orders import check_orders
from fedpriv.papers.study.table import compare_with_reference, epsilons
from scripts.measured_study import page, table

ROOT = Path(__file__).parents[2]
MEASURED = table()


def test_the_page_says_what_the_table_holds():
    """Until it does: python -m scripts.measured_study."""
    assert page(MEASURED) in (ROOT / "docs" / "study.md").read_text()


@pytest.mark.parametrize("data", MEASURED)
def test_every_method_is_there_at_every_epsilon_of_every_unit_that_it_certifies(data):
    rows = MEASURED[data]
    there = {(row.method, row.unit, row.epsilon) for row in rows}
    known = epsilons(rows)
    assert set(known) >= {1, 10}
    for method in METHODS:
        for unit in method.units:
            for epsilon in known if method.private else [math.inf]:
                assert (method.name, unit, epsilon) in there


@pytest.mark.parametrize("data", MEASURED)
def test_nobody_spends_more_than_the_others(data):
    for row in MEASURED[data]:
        if row.unit == NOTHING:
            assert math.isinf(row.certified)
        else:
            assert 0.97 * row.epsilon < row.certified <= 1.001 * row.epsilon, row
        assert len(row.seeds) >= 5
        assert not {0, 1} & set(row.seeds)  # settings were chosen on those


def test_who_is_told_apart_is_by_tests_on_the_tables_own_numbers():
    """Holm's first step by hand: the smallest p times how many there are."""
    rows = MEASURED["breast_cancer"]
    beside = compare_with_reference(rows, USER, 3.0)
    [reference] = [one.row for one in beside if one.row.method == "ULDP-AVG-w"]
    raw = [
        ttest_rel(one.row.errors, reference.errors).pvalue
        for one in beside
        if one.row is not reference
    ]
    assert min(one.p for one in beside if not math.isnan(one.p)) == pytest.approx(
        min(raw) * len(raw), rel=1e-6
    )


@pytest.mark.parametrize("data", MEASURED)
def test_the_verdict_is_that_of_the_papers_orders(data):
    """Refuted as soon as one of them is the other way round beyond chance."""
    one = entries()[f"study/{data}"].answers["conclusion"]
    kinds = Counter(order.verdict for order in check_orders(MEASURED[data]))
    assert one.answer == ("no" if kinds["refuted"] else "not resolved")
    assert one.found.startswith(
        f"{kinds['confirmed']} of {kinds.total()} orders at equal certificates hold, "
        f"{kinds['refuted']} are reversed"
    )


ROWS = MEASURED["breast_cancer"]
SAID = " ".join(
    (ROOT / "docs" / "study.md").read_text().split("## Findings")[1].split("<!-- ledger")[0].split()
)


def percent(method, unit):
    """Mean errors at epsilon 1, 3 and 10 as the page writes them."""
    known = epsilons(ROWS)
    by_epsilon = [
        {one.row.method: one.row.mean for one in compare_with_reference(ROWS, unit, epsilon)}
        for epsilon in known
    ]
    return [f"{100 * errors[method]:.1f}" for errors in by_epsilon]


@pytest.mark.parametrize(
    ("method", "unit"),
    [
        ("ULDP-AVG", USER),
        ("ULDP-SGD", USER),
        ("DP-SGD", USER),
        ("MB-SGD", USER),
        ("MB-SGD", RECORD),
    ],
)
def test_findings_have_the_tables_errors(method, unit):
    assert f"({', '.join(percent(method, unit))})" in SAID


def test_findings_have_the_tables_other_numbers():
    least = percent("ULDP-AVG-w", USER)
    assert (
        "ULDP-AVG-w has the least mean error at every epsilon: {}, {} and {} %".format(*least)
        in SAID
    )
    assert all(
        compare_with_reference(ROWS, USER, epsilon)[0].row.method == "ULDP-AVG-w"
        for epsilon in (1, 3, 10)
    )
    spider, plain = percent("SPIDER", RECORD), percent("MB-SGD", RECORD)
    assert ", ".join(f"{one} and {other}" for one, other in zip(spider, plain)) in SAID
    assert f"({percent('CDP-FedAvg', RECORD)[2]} and {percent('DP-SGD', RECORD)[2]} at 10" in SAID
    assert f"({percent('ULDP-NAIVE', USER)[0]} and {percent('Local SGD', USER)[0]} %)" in SAID
    few = [percent(f"{name} with k=1", USER)[2] for name in ("ULDP-GROUP", "MB-SGD")]
    usual = [percent(name, USER)[2] for name in ("ULDP-GROUP", "MB-SGD")]
    assert "({} and {} at epsilon 10, in place of {} and {})".format(*few, *usual) in SAID


def test_findings_have_the_tables_verdicts():
    for unit in (USER, RECORD):
        for epsilon in (1, 3, 10):
            assert not any(
                one.verdict == "better" for one in compare_with_reference(ROWS, unit, epsilon)
            )
            told = {
                one.row.method: one.verdict for one in compare_with_reference(ROWS, unit, epsilon)
            }
            near = (
                ("ULDP-AVG", "ULDP-SGD", "DP-SGD")
                if unit == USER
                else ("DP-SGD", "ULDP-GROUP", "DP-ERM", "CDP-FedAvg")
            )
            assert {told[method] for method in (*near, "ULDP-AVG-w")} == {"not resolved"}
    at_ten = {one.row.method: one.verdict for one in compare_with_reference(ROWS, USER, 10)}
    assert {at_ten[method] for method in ("MB-SGD", "DP-ERM", "CDP-FedAvg")} == {"worse"}
    held = {(one.first, one.second, one.epsilon): one.verdict for one in check_orders(ROWS)}
    assert {held["SPIDER", "MB-SGD", 10], held["CDP-FedAvg", "DP-SGD", 10]} == {"refuted"}
    assert [held["ULDP-AVG", "ULDP-SGD", epsilon] for epsilon in (1, 3, 10)] == [
        "confirmed",
        *["not resolved"] * 2,
    ]
    assert [held["ULDP-AVG", "ULDP-NAIVE", epsilon] for epsilon in (1, 3, 10)] == [
        *["confirmed"] * 2,
        "not resolved",
    ]
    for pair in (("ULDP-AVG-w", "ULDP-AVG"), ("ULDP-AVG", "ULDP-GROUP")):
        assert {held[(*pair, epsilon)] for epsilon in (1, 3, 10)} == {"not resolved"}


def test_findings_have_the_tables_epsilons():
    here = [row for row in ROWS if row.epsilon == 3 and " with " not in row.method]
    larger = [row.server for row in here if 1.01 * row.certified < row.server < math.inf]
    assert (
        f"certified {min(larger):.1f} to {max(larger):.1f} where the model is certified 3" in SAID
    )
    claims = {row.claimed: row.method for row in here if not math.isnan(row.claimed)}
    low, high = min(claims), max(claims)
    assert f"from {low:.2f} ({claims[low]}) to {high:.1f} ({claims[high]})" in SAID
    assert (
        f"Uldp-FL's {next(row.claimed for row in here if row.method == 'ULDP-AVG'):.1f} is no error"
        in SAID
    )


def test_nearly_all_clips_are_the_smaller_one():
    clips = [row.settings.partition("clip=")[2] for row in ROWS if row.unit != NOTHING]
    assert clips.count("0.3") > 0.9 * len(clips)
