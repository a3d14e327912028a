import csv
import itertools
import math
import statistics

import numpy as np
import pytest
from command import refusal, run
from fake_runs import fake_run
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_rel

from fedpriv.reports.compare import compare_groups, holm, paired_p
from fedpriv.reports.finished_runs import find_runs
from fedpriv.reports.groups import group_runs
from fedpriv.reports.report import Report
from fedpriv.runs.folder import RunFolder

ACCURACIES = {"AVG": ([0.81, 0.85, 0.88], [0.70, 0.75, 0.71]), "SGD": ([0.80, 0.80, 0.79], None)}
"""Of three seeds, by method and clip."""


@pytest.fixture
def sweep(tmp_path):
    for method, settings in ACCURACIES.items():
        for clip, values in enumerate(settings, 1):
            for seed, value in enumerate(values or []):
                fake_run(
                    tmp_path / f"{method}_{clip}_{seed}",
                    method,
                    [0.1, value],
                    (1.5, 2.0),
                    seed=seed,
                    clip=clip,
                    lr=0.1,
                )
    return tmp_path


def test_mean_deviation_and_number_by_the_textbook(sweep):
    frame = Report.of(find_runs([sweep])).frame()
    assert frame[["method", "clip", "n"]].values.tolist() == [
        ["AVG", 1, 3],
        ["AVG", 2, 3],
        ["SGD", 1, 3],
    ]
    for row, values in zip(frame.itertuples(), [*ACCURACIES["AVG"], ACCURACIES["SGD"][0]]):
        assert row.mean == pytest.approx(statistics.mean(values))
        assert row.sd == pytest.approx(statistics.stdev(values))
        assert (row.certified, row.claimed) == (1.5, 2.0)


@pytest.mark.parametrize("metric", [None, "loss"])
def test_the_best_setting_is_named_and_its_choice_not_covered(sweep, metric):
    """The best accuracy is the largest, and the best loss the least."""
    report = Report.of(find_runs([sweep]), metric=metric)
    [choice] = report.best
    assert (choice.summary.group.name, choice.among) == ("AVG, clip=1", 2)
    [note] = [note for note in report.notes() if "best of 2 settings of AVG" in note]
    assert "at epsilon 1.5" in note
    assert "not covered" in note


def test_pairs_over_common_seeds_by_another_function_of_scipy(sweep):
    first, second, third = group_runs(find_runs([sweep]))
    pairs = compare_groups([first, second, third], "accuracy")
    assert [pair.n for pair in pairs] == [3, 3, 3]
    assert pairs[0].p == pytest.approx(ttest_rel(*ACCURACIES["AVG"]).pvalue)
    [one, other] = compare_groups([first, second, third], "accuracy", against=second.name)
    assert (one.one.name, other.one.name) == (first.name, third.name)
    assert one.difference == pytest.approx(
        np.mean(ACCURACIES["AVG"][0]) - np.mean(ACCURACIES["AVG"][1])
    )


def test_holm_by_a_worked_example():
    """Four hypotheses, by hand: 0.005 * 4, 0.01 * 3, then 0.03 * 2, and 0.04 * 1 which may not be
    smaller."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.01, math.nan, 0.02])[::2] == pytest.approx([0.02, 0.02])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_keeps_order_and_never_beats_bonferroni(p_values):
    adjusted = holm(p_values)
    assert all(p <= a <= min(1, len(p_values) * p) + 1e-12 for p, a in zip(p_values, adjusted))
    assert sorted(range(len(p_values)), key=lambda i: (p_values[i], i)) == sorted(
        range(len(p_values)), key=lambda i: (adjusted[i], p_values[i], i)
    )


def test_equal_differences_are_no_test():
    assert math.isnan(paired_p(np.array([0.1 + 0.2, 0.3])))
    assert math.isnan(paired_p(np.zeros(3)))


def test_a_single_seed_has_no_deviation(tmp_path):
    fake_run(tmp_path / "0", "AVG", [0.1, 0.4], (1.0, None))
    report = Report.of(find_runs([tmp_path]))
    assert math.isnan(report.frame()["sd"][0])
    assert report.shown()["accuracy"][0] == "0.4000"
    assert not report.comparisons


def test_files_hold_the_table(sweep):
    for suffix in ("csv", "md", "tex"):
        assert run("table", ".", "--out", f"t.{suffix}", cwd=sweep).returncode == 0
    with open(sweep / "t.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert float(rows[0]["mean"]) == pytest.approx(statistics.mean(ACCURACIES["AVG"][0]))
    markdown = (sweep / "t.md").read_text()
    assert "| AVG | 1 | 0.8467 ± 0.0351 | 3 | 1.5 | 2 |" in markdown
    assert "Holm" in markdown
    latex = (sweep / "t.tex").read_text()
    assert r"\toprule" in latex
    assert r"0.8467 $\pm$ 0.0351" in latex


def test_many_groups_are_compared_with_one(tmp_path):
    for clip, seed in itertools.product(range(10), (0, 1)):
        values = [0.1, clip * seed / 20]
        fake_run(tmp_path / f"{clip}_{seed}", "AVG", values, (1.0, None), seed=seed, clip=clip)
    runs = find_runs([tmp_path])
    assert any("--against" in note for note in Report.of(runs).notes())
    assert len(Report.of(runs, against="AVG, clip=3").comparisons) == 9
    assert "AVG, clip=3" in refusal("table", ".", "--against", "AVG", cwd=tmp_path)


def test_a_table_says_which_runs_protect_nobody_and_what_was_simulated(tmp_path):
    for name, valid in (("AVG", False), ("SGD", True)):
        fake_run(tmp_path / name, name, [0.1, 0.4], (1.0, None))
        status = {"randomness": "system", "dp_valid": valid, "simulated": "one process"}
        RunFolder(tmp_path / name).status(**status)
    notes = Report.of(find_runs([tmp_path])).notes()
    warned = [note for note in notes if "NOT private" in note]
    assert [note.partition(":")[2].partition(":")[0].strip() for note in warned] == ["AVG"]
    assert notes.count("engine: one process") == 1
