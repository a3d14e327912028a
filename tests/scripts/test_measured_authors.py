"""The page about the authors' program has the numbers of its table."""

import json

import pytest

from fedpriv.reports.number_table import read_table
from scripts import measured_authors
from scripts.measured_authors import COLUMNS, PAGE, TABLE, page


def test_the_page_says_what_the_table_holds():
    """Until it does: python -m scripts.measured_authors."""
    assert PAGE.read_text() == page()


def test_both_programs_have_seeds_for_each_method():
    programs = {}
    for row in read_table(TABLE):
        assert set(row) == {*COLUMNS}
        key = row["data"], row["method"], row["round"]
        programs.setdefault(key, {}).setdefault(row["program"], set()).add(row["seed"])
    both = [key for key, found in programs.items() if len(found) == 2]
    assert both
    assert all(len(seeds) >= 3 for key in both for seeds in programs[key].values())


def test_the_authors_rounds_count_from_one(tmp_path):
    args = "Namespace(seed=0, dataset_name='heart_disease', n_users=50, agg_strategy='ULDP-AVG')"
    run = {"global": {"global_test": "[[0, 0.5, 0.7], [1, 0.75, 0.6]]"}}
    (tmp_path / "sim-results.json").write_text(json.dumps({"exp": [run], "args": args}))
    assert list(measured_authors._theirs(tmp_path)) == [
        ("heart_disease", "50", "ULDP-AVG", "authors", "0", "1", "accuracy", "0.5"),
        ("heart_disease", "50", "ULDP-AVG", "authors", "0", "2", "accuracy", "0.75"),
    ]


def test_the_interval_is_welchs():
    found = measured_authors._difference([1.0, 2.0, 3.0], [0.0, 0.0, 0.3])
    # by hand: difference 1.9, variances 1 / 3 and 0.03 / 3, 2.1197 degrees of freedom, t = 4.08
    low = float(found.partition("(")[2].partition(" ")[0])
    assert found.startswith("+1.900 (")
    assert low == pytest.approx(1.9 - 4.08 * (1 / 3 + 0.03 / 3) ** 0.5, abs=0.02)
