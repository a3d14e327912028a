"""What docs/study.md says of the methods side by side is what results/study.csv holds."""

import math
from itertools import product
from pathlib import Path

import pytest
from scipy.stats import ttest_rel

from fedpriv.papers.study.methods import METHODS, NOTHING, RECORD, USER
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
    there = {*zip(rows["method"], rows["unit"], rows["epsilon"])}
    known = epsilons(rows)
    assert set(known) >= {1, 10}
    for method in METHODS:
        for unit in method.units:
            for epsilon in known if method.private else [math.inf]:
                assert (method.name, unit, epsilon) in there


@pytest.mark.parametrize("data", MEASURED)
def test_nobody_spends_more_than_the_others(data):
    for row in MEASURED[data].itertuples():
        if row.unit == NOTHING:
            assert math.isinf(row.certified)
        else:
            assert 0.97 * row.epsilon < row.certified <= 1.001 * row.epsilon, row
        assert len(row.seeds) >= 5
        assert not {0, 1} & set(row.seeds)  # settings were chosen on those


def test_who_is_told_apart_is_by_tests_on_the_tables_own_numbers():
    """Holm's first step by hand: the smallest p times how many there are."""
    beside = compare_with_reference(MEASURED["breast_cancer"], USER, 3.0).set_index("method")
    errors = beside["errors"].drop("ULDP-AVG-w")
    raw = [ttest_rel(each, beside["errors"]["ULDP-AVG-w"]).pvalue for each in errors]
    assert beside["p"].min() == pytest.approx(min(raw) * len(raw), rel=1e-6)


ROWS = MEASURED["breast_cancer"]
TEXT = (ROOT / "docs" / "study.md").read_text()
SAID = " ".join(TEXT.split("## Findings")[1].split("## What is equal")[0].split())


def percent(method, unit):
    """Mean errors at epsilon 1, 3 and 10 as the page writes them."""
    tables = (compare_with_reference(ROWS, unit, epsilon) for epsilon in epsilons(ROWS))
    means = (table.set_index("method")["mean"] for table in tables)
    return [f"{100 * errors[method]:.1f}" for errors in means]


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
        compare_with_reference(ROWS, USER, epsilon)["method"].iloc[0] == "ULDP-AVG-w"
        for epsilon in (1, 3, 10)
    )
    spider, plain = percent("SPIDER", RECORD), percent("MB-SGD", RECORD)
    assert ", ".join(f"{one} and {other}" for one, other in zip(spider, plain)) in SAID
    assert f"({percent('CDP-FedAvg', RECORD)[2]} and {percent('DP-SGD', RECORD)[2]} at 10" in SAID
    assert f"({percent('ULDP-NAIVE', USER)[0]} and {percent('Local SGD', USER)[0]} %)" in SAID
    few = [percent(f"{name} with k=1", USER)[2] for name in ("ULDP-GROUP", "MB-SGD")]
    usual = [percent(name, USER)[2] for name in ("ULDP-GROUP", "MB-SGD")]
    assert "({} and {} at epsilon 10, in place of {} and {})".format(*few, *usual) in SAID


def verdicts(unit, epsilon):
    return compare_with_reference(ROWS, unit, epsilon).set_index("method")["verdict"]


def test_findings_have_the_tables_verdicts():
    near = {
        USER: ["ULDP-AVG", "ULDP-SGD", "DP-SGD", "ULDP-AVG-w"],
        RECORD: ["DP-SGD", "ULDP-GROUP", "DP-ERM", "CDP-FedAvg", "ULDP-AVG-w"],
    }
    for unit, epsilon in product((USER, RECORD), (1, 3, 10)):
        told = verdicts(unit, epsilon)
        assert "better" not in {*told}
        assert {*told[near[unit]]} == {"not resolved"}
    assert {*verdicts(USER, 10)[["MB-SGD", "DP-ERM", "CDP-FedAvg"]]} == {"worse"}


def test_findings_have_the_tables_epsilons():
    here = ROWS[(ROWS["epsilon"] == 3) & ~ROWS["method"].str.contains(" with ")]
    server = here["server"]
    larger = server[(1.01 * here["certified"] < server) & (server < math.inf)]
    assert (
        f"certified {larger.min():.1f} to {larger.max():.1f} where the model is certified 3" in SAID
    )
    claims = here.dropna(subset="claimed").sort_values("claimed").set_index("claimed")["method"]
    low, high = claims.index[0], claims.index[-1]
    assert f"from {low:.2f} ({claims[low]}) to {high:.1f} ({claims[high]})" in SAID
    assert f"Uldp-FL's {claims.index[claims == 'ULDP-AVG'][0]:.1f} is no error" in SAID


def test_nearly_all_clips_are_the_smaller_one():
    clips = ROWS[ROWS["unit"] != NOTHING]["settings"].str.endswith("clip=0.3")
    assert clips.mean() > 0.9
