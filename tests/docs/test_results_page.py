"""The page about results names every file and every column that runs write, and no other."""

import csv
import json
import re
from pathlib import Path

import pytest
from command import success
from page_blocks import ROOT

from fedpriv.accountants.events import ENFORCED, status_of
from fedpriv.projects.patients import csv_text
from fedpriv.runs.labels import CHARGED, DIAGNOSTIC, FILES, RELEASED, run_labels
from fedpriv.runs.labels import TABLES as TABLES_WITH_LABELS
from fedpriv.runs.records import PHASES
from fedpriv.runs.tables import TABLES

PAGE = (ROOT / "docs" / "reference" / "results.md").read_text()
SMALL = ["rounds=1", "preset.local_epochs=1", "preset.silo_epochs=1", "quiet=true"]
TABLE = ["data=table", "data.path=people.csv", "data.user=patient", "data.silo=hospital"]
RUNS = {
    "default": [],
    "training": ["evaluate_training=true", "optimum=0.1"],
    "held out": ["data=digits", "allocator.local_test_from=1", "model=linear"],
    "numbers": [*TABLE, "data.label=stay"],
    "classes": [*TABLE, "data.label=died", "data.groups=[sex]"],
    "survival": ["data=tcga_brca", "allocator.n_users=12"],
    "shuffled": ["algo=prox_sgd", "aggregation=shuffle", "algo.epsilon=8"],
    "secure": ["aggregation=secagg"],
    "adaptive": ["mechanism=adaptive"],
}
HYDRA = {".hydra"}


def section(name):
    return PAGE.split(f"## {name}\n")[1].split("\n## ")[0]


def documented(name):
    """The names in the first column of a section's table."""
    cells = re.findall(r"^\| (`[^|]+`) \|", section(name), re.MULTILINE)
    return {word for cell in cells for word in re.findall(r"`([\w .]+)`", cell)}


JSON = {"status.json", "ledger.json"}
SOMETIMES = {"left_out", "lost_parties", "repeats_differ"}
"""Entries of status.json that stand only in some runs: see the page."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory, small_root):
    root = tmp_path_factory.mktemp("results")
    Path(small_root, "people.csv").write_text(csv_text(patients=150))
    for name, words in RUNS.items():
        success(*SMALL, *words, f"data.root={small_root}", f"hydra.run.dir='{name}'", cwd=root)
    return root


def columns(folder, table):
    with open(folder / table, newline="") as file:
        return next(csv.reader(file))


def first_table():
    """The files of the table at the top."""
    top = PAGE.split("\n## ")[0]
    return set(re.findall(r"^\| `([\w./]+)` \|", top, re.MULTILINE))


def labels(name):
    """The labels of a section's table by the names in its first column."""
    text = section(name) if name else PAGE.split("\n## ")[0]
    cells = re.findall(r"^\| (`[^|]+`)[^|]*\| ([\w ]+) \|", text, re.MULTILINE)
    return {word: label for cell, label in cells for word in re.findall(r"`([\w./]+)`", cell)}


@pytest.mark.parametrize("table", TABLES_WITH_LABELS)
def test_labels_are_those_of_the_code(table):
    assert labels(table) == {
        name: label.split()[0] for name, label in TABLES_WITH_LABELS[table].items()
    }


def test_labels_of_metrics_and_files_are_those_of_the_code():
    known = run_labels(main="auc", disjoint=True, certified=True)
    for table in ("metrics.csv", "utility.csv"):
        for name, label in labels(table).items():
            assert label == known[table].get(name, DIAGNOSTIC).split()[0], name
    files = {name: label for name, label in labels("").items() if "by " not in label}
    assert files == {name: label.split()[0] for name, label in FILES.items()}


@pytest.mark.parametrize("name", RUNS)
def test_files_columns_and_keys_are_those_of_the_page_and_have_labels(folders, name):
    """Also columns that no table of labels names: these are diagnostics."""
    folder = folders / name
    status = json.loads((folder / "status.json").read_text())
    written = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
    assert {path.as_posix() for path in written if path.parts[0] not in HYDRA} == first_table()
    assert first_table() <= set(status["labels"])
    assert set(status) == documented("status.json") - SOMETIMES
    assert set(status) <= set(status["labels"]["status.json"])
    for table in ("epsilon.csv", "timings.csv", "traffic.csv", "rounds_begun.csv", "utility.csv"):
        assert set(columns(folder, table)) == documented(table)
    for table in {"metrics.csv", "utility.csv", *TABLES_WITH_LABELS} - {*JSON, "statistics.csv"}:
        known = status["labels"][table]
        assert set(columns(folder, table)) <= set(known), table
        found = {label.split()[0] for label in known.values()}
        assert found <= {RELEASED, CHARGED, DIAGNOSTIC}


def test_an_analysis_leaves_the_table_of_the_page(tmp_path):
    (tmp_path / "people.csv").write_text(csv_text(patients=30))
    words = "analyse data.path=people.csv data.user=patient bounds.age=0,110"
    success(*words.split(), "statistics=count", "target=1", "hydra.run.dir=out", cwd=tmp_path)
    assert set(columns(tmp_path / "out", "statistics.csv")) == documented("statistics.csv")


def test_metrics_are_those_of_the_page(folders):
    written = {column for name in RUNS for column in columns(folders / name, "metrics.csv")}
    local = {column for column in written if column.startswith("local_")}
    assert local
    assert written - local == documented("metrics.csv") - {"local_accuracy"}


def test_values_that_are_listed_are_those_of_the_code(folders):
    assert {*TABLES, "rounds_begun.csv", "status.json"} <= first_table()
    assert set(PHASES) < documented("timings.csv")
    row = re.search(r"^\| `status` \| \w+ \| (.+) \|$", section("epsilon.csv"), re.MULTILINE)
    assert row[1] == f"`{ENFORCED}`, `declared by` classes of other packages"
    assert status_of(["Mine"]) == "declared by Mine"
    observers = re.search(
        r"^\| `observer` \| \w+ \| (.+) \|$", section("epsilon.csv"), re.MULTILINE
    )
    with open(folders / "shuffled" / "epsilon.csv", newline="") as file:
        assert {row["observer"] for row in csv.DictReader(file)} == set(
            re.findall("`([^`]+)`", observers[1])
        )
