"""What docs/study.md says of the methods side by side is what results/study.csv holds."""

import math
from pathlib import Path

import pytest
from scipy.stats import ttest_rel

from fedpriv.figures.study_methods import METHODS, NOTHING, USER
from fedpriv.figures.study_orders import orders
from fedpriv.figures.study_table import compared, epsilons
from fedpriv.figures.verdicts import verdicts
from scripts.measured_study import found, page, sentences, table

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
    assert known == [1, 3, 10]
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
    beside = compared(rows, USER, 3.0)
    [reference] = [one.row for one in beside if one.row.method == "ULDP-AVG-w"]
    raw = [ttest_rel(one.row.errors, reference.errors).pvalue for one in beside if one.row is not reference]
    assert min(one.p for one in beside if not math.isnan(one.p)) == pytest.approx(min(raw) * len(raw), rel=1e-6)
    assert "epsilon 3, beside ULDP-AVG-w" in sentences(rows, USER)


@pytest.mark.parametrize("data", MEASURED)
def test_the_verdict_is_that_of_the_papers_orders(data):
    """Refuted as soon as one of them is the other way round beyond chance."""
    one = verdicts()[f"study/{data}"]
    kinds = {order.verdict for order in orders(MEASURED[data])}
    assert one.found == found(MEASURED[data])
    assert one.verdict == ("refuted" if "refuted" in kinds else "open")
