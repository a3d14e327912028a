"""Defaults for tables beat the trivial model: two of the twenty tables of the script."""

import pytest

from scripts.table_defaults import TABLES, run_table


def test_there_are_twenty():
    assert len(TABLES) == 20


@pytest.mark.parametrize("name", ["small numbers", "small"])
def test_defaults_beat_the_trivial_model(name):
    row = run_table(TABLES[name], 0)
    assert row["model"] > row["trivial"] + 0.2
