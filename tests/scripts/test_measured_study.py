"""What docs/which_method.md says of the methods side by side is what results/study.csv holds."""

import math
import re
import shlex
from pathlib import Path

import pytest
from scipy.stats import ttest_rel

from fedpriv.papers.study.methods import NOTHING, USER
from fedpriv.papers.study.study import EPSILON, STEPS
from fedpriv.papers.study.table import compare_with_reference
from fedpriv.runs.epsilon_forecast import EpsilonForecast
from fedpriv.settings.compose import one_experiment
from scripts.measured_study import DATA, adult, methods, page, table

MEASURED = table()
TEXT = (Path(__file__).parents[2] / "docs" / "which_method.md").read_text()
DECISIONS = re.findall(r"^\| (a \w+).*`fedpriv (.*)` \|$", TEXT, re.MULTILINE)


def test_the_page_says_what_the_table_holds():
    """Until it does: python -m scripts.measured_study."""
    assert page(MEASURED) in TEXT


def test_data_that_the_table_lacks_are_not_run():
    missing = [title for name, title in DATA.items() if name not in MEASURED]
    assert ("**Not run**" in TEXT) == bool(missing)
    assert all(title in TEXT.partition("**Not run**")[2] for title in missing)


@pytest.mark.parametrize(("unit", "words"), DECISIONS, ids=[words for _, words in DECISIONS])
def test_every_decision_names_a_command_that_protects_its_unit(unit, words):
    rows = EpsilonForecast.of(one_experiment(*shlex.split(words))).last
    protected = "record" if unit == "a record" else "user"
    found = [row for row in rows if (row.observer, row.unit) == ("released model", protected)]
    assert 0 < min(row.certified for row in found) < math.inf


@pytest.mark.parametrize("data", MEASURED)
def test_every_method_is_there_for_every_unit_that_it_certifies(data):
    rows = MEASURED[data]
    there = {*zip(rows["method"], rows["unit"])}
    units = {USER: "record"} if data == "adult" else {}
    assert there == {(one.name, units.get(u, u)) for one in methods(data) for u in one.units}


@pytest.mark.parametrize("data", MEASURED)
def test_nobody_spends_more_than_the_others(data):
    for row in MEASURED[data].itertuples():
        if row.unit == NOTHING:
            assert math.isinf(row.certified)
        else:
            assert row.epsilon == EPSILON
            assert 0.97 * EPSILON < row.certified <= 1.001 * EPSILON, row
        assert row.seeds == tuple(range(100, 110))  # step sizes were chosen on 0 to 4


@pytest.mark.parametrize("data", MEASURED)
def test_step_sizes_lie_between_others_that_were_tried(data):
    for row in MEASURED[data].itertuples():
        assert row.steps[0] < row.step < row.steps[-1] or row.step in (STEPS[0], STEPS[-1]), row


def test_who_is_told_apart_is_by_tests_on_the_tables_own_numbers():
    """Holm's first step by hand: the smallest p times how many there are."""
    beside = compare_with_reference(MEASURED["breast_cancer"], USER, 3.0).set_index("method")
    errors = beside["errors"].drop("ULDP-AVG-w")
    raw = [ttest_rel(each, beside["errors"]["ULDP-AVG-w"]).pvalue for each in errors]
    assert beside["p"].min() == pytest.approx(min(raw) * len(raw), rel=1e-6)


def test_a_server_that_sees_messages_has_the_largest_epsilon_on_the_page():
    server = max(rows["server"][rows["server"] < math.inf].max() for rows in MEASURED.values())
    assert f"certified up to {server:.1f}" in " ".join(TEXT.split())


def test_the_natural_table_has_the_persons_of_its_schema(tmp_path, monkeypatch):
    """Made-up answers: those with a kind of employer that the schema names."""
    answer = "39, {}, 77516, Bachelors, 13, Never-married, Adm-clerical, Husband, White, Male"
    lines = [f"{answer}, 2174, 0, 40, United-States, <=50K".format(one) for one in ("Private", "?")]
    (tmp_path / "adult").mkdir()
    (tmp_path / "adult" / "adult.data").write_text("\n".join(lines))
    monkeypatch.setenv("FEDPRIV_DATA", str(tmp_path))
    words = adult(tmp_path / "run")
    [path] = [word.partition("=")[2] for word in words if word.startswith("data.path=")]
    head, *rows = Path(path).read_text().splitlines()
    assert head.split(",")[1] == "workclass"
    assert [row.split(",")[:2] for row in rows] == [["39", "Private"]]
