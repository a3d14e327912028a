"""The page about the authors' program has the numbers of its table."""

import json

import pandas as pd
import pytest

from scripts import measured_authors
from scripts.measured_authors import COLUMNS, PAGE, TABLE, page


def test_the_page_says_what_the_table_holds():
    """Until it does: python -m scripts.measured_authors."""
    assert PAGE.read_text() == page()


def test_both_programs_have_seeds_for_each_method():
    table = pd.read_csv(TABLE)
    assert {*table.columns} == {*COLUMNS}
    seeds = table.groupby(["data", "method", "round", "program"])["seed"].nunique().unstack()
    both = seeds.dropna()
    assert len(both)
    assert (both >= 3).all(axis=None)


def test_the_authors_rounds_count_from_one(tmp_path):
    args = "Namespace(seed=0, dataset_name='heart_disease', n_users=50, agg_strategy='ULDP-AVG')"
    run = {"global": {"global_test": "[[0, 0.5, 0.7], [1, 0.75, 0.6]]"}}
    (tmp_path / "sim-results.json").write_text(json.dumps({"exp": [run], "args": args}))
    assert list(measured_authors.theirs(tmp_path)) == [
        ("heart_disease", "50", "ULDP-AVG", "authors", "0", "1", "accuracy", "0.5"),
        ("heart_disease", "50", "ULDP-AVG", "authors", "0", "2", "accuracy", "0.75"),
    ]


def test_the_interval_is_welchs():
    found = measured_authors.difference([1.0, 2.0, 3.0], [0.0, 0.0, 0.3])
    # by hand: difference 1.9, variances 1 / 3 and 0.03 / 3, 2.1197 degrees of freedom, t = 4.08
    low = float(found.partition("(")[2].partition(" ")[0])
    assert found.startswith("+1.900 (")
    assert low == pytest.approx(1.9 - 4.08 * (1 / 3 + 0.03 / 3) ** 0.5, abs=0.02)
