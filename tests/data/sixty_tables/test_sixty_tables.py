"""Public kinds of tables are read by the words that a newcomer types, and train."""

import subprocess
import sys

import numpy as np
import pytest
from kinds import KINDS
from pasting import every_advice_helps, records

import fedpriv
from fedpriv.testing import experiment

REFUSED = {
    "tcga_vital_status": ["data.event=Alive", "data.event=Dead"],
    "excel_in_germany_before_utf8": ["data.encoding=cp1252"],
}
"""Kinds that need one more word, and the advice that they end with."""
LINES = {
    "titanic": "column Name: left out: 200 different texts ('data.categories=[Name]' takes it)",
    "lung_of_r": "label status: survival, event 2, time in column time up to 365",
    "tcga_vital_status": "yes or no is expected",
    "iso_dates": "feature admitted: date like 2020-12-31, scaled by the training records",
    "british_dates": "feature admitted: date like 31/12/2020, scaled by the training records",
    "american_dates": "feature admitted: date like 12/31/2020, scaled by the training records",
    "dates_of_sas": "feature admitted: date like 31Dec2020, scaled by the training records",
    "mimic_admissions": "feature deathtime: date like 2020-12-31, scaled by the training records",
    "excel_in_germany": "feature Größe: number, scaled by the training records",
    "excel_in_france": "feature coût: number, scaled by the training records",
    "excel_in_america": "feature charges: number, scaled by the training records",
    "excel_in_switzerland": "feature cost: number, scaled by the training records",
    "bike_sharing": "column instant: left out: it counts the rows",
    "google_form": "column Anything else?: left out: 200 different texts",
    "empty_and_constant_columns": "column remark: left out: no value in any row",
    "house_prices": "label price: regression, from",
    "gaps_in_many_spellings": "9 rows without age are filled",
    "stroke": "column gender: hardly any row has Other: data.rare=drop leaves such categories out",
    "minus_999_for_missing": "column bmi: -999 in",
    "logicals_of_r": "label died: classification, classes FALSE, TRUE (TRUE is the positive one)",
    "booleans_of_pandas": "label died: classification, classes False, True",
    "zero_and_one_as_floats": "label died: classification, classes 0.0, 1.0",
    "parquet_with_categories_and_times": "feature admitted: date like 2020-12-31, scaled",
    "whole_number_ids": "silos: 2 in column hospital: 101, 11",
}
"""A line that says what was made of a kind."""
FEW = ("titanic", "veteran_with_ties_and_zeros", "excel_in_germany", "redcap_raw", "house_prices")
TRAINED = [name for name in KINDS if name not in REFUSED]


def words_of(name, folder):
    return [*KINDS[name](folder), f"data.root={folder}"]


@pytest.mark.parametrize("name", TRAINED)
def test_a_newcomer_reads(name, tmp_path):
    words = words_of(name, tmp_path)
    corpus, data = records(*words), experiment(*words).data
    assert len(corpus.train) > 90
    assert corpus.train.x.shape[1] >= 2
    assert np.isfinite(corpus.train.x).all()
    assert np.abs(corpus.train.x).max() < 30
    assert np.isfinite(corpus.train.y).all()
    assert corpus.train.y.std() > 0
    said = [*data.description, *corpus.notes]
    assert [line for line in said if line.startswith(LINES.get(name, ""))], said


@pytest.mark.parametrize("name", REFUSED)
def test_what_needs_a_word_says_which(name, tmp_path):
    words = words_of(name, tmp_path)
    assert every_advice_helps(words, LINES.get(name, "")) == REFUSED[name]


@pytest.mark.parametrize("name", FEW)
def test_a_newcomer_trains(name, tmp_path):
    done = fedpriv.run(*words_of(name, tmp_path), "rounds=1", folder=tmp_path / "run")
    assert len(done.metrics) == 2


def test_thousands_are_no_decimals(tmp_path):
    """1'355.50 by the formula of the kind."""
    data = experiment(*words_of("excel_in_switzerland", tmp_path)).data
    cells, _, _ = data.records(data.path)
    np.testing.assert_allclose(cells.numbers("cost"), 300 + 55.5 * np.arange(200))


def test_advice_is_pasted_behind_the_command(tmp_path):
    """By a shell and a process of its own."""
    words = KINDS["tcga_vital_status"](tmp_path)
    line = [sys.executable, "-m", "fedpriv", "data", *words]
    shell = {"cwd": tmp_path, "capture_output": True, "text": True, "check": False}
    done = subprocess.run(line, **shell)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    command = f"{' '.join(line)} data.event=Dead"
    done = subprocess.run(["bash", "-c", command], **shell)
    assert done.returncode == 0, done.stderr
    assert "label vital_status: survival, event Dead" in done.stdout
