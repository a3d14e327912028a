"""From a CSV file to a private model, its report and its picture in three commands."""

import json
import shlex

import pandas as pd
import pytest
import yaml
from command import refusal, run, success
from page_blocks import ROOT, blocks

from fedpriv.data.table.schema import Label, Number, Schema, read_schema
from fedpriv.projects.own_table import with_ranges
from fedpriv.projects.patients import csv_text

TABLE = ["data.path=visits.csv", "data.label=died", "data.user=patient", "data.silo=hospital"]
REST = ["data.drop=[stay]", "data.missing=fill"]
RANGES = ["--range", "age=0,120", "--range", "pressure=40,260", "--range", "glucose=1,50"]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "visits.csv").write_text(csv_text())
    return tmp_path


def three_commands():
    """The commands of the page, word for word."""
    page = ROOT / "docs" / "getting_started.md"
    lines = [line for block in blocks(page) for line in block.commands]
    [first] = [place for place, line in enumerate(lines) if line.startswith("fedpriv init study")]
    return [shlex.split(line)[1:] for line in lines[first : first + 3]]


def test_three_commands_make_a_private_model_its_report_and_its_picture(folder):
    init, train, report = three_commands()
    done = success(*init, cwd=folder)
    assert "read off the records: classes of died, categories of sex" in done.stdout
    assert "By --public you say that these are public knowledge" in done.stdout
    for words in (train, [*report, "--no-recompute"]):
        done = success(*words, cwd=folder)
    made = folder / "study" / "run"
    status = json.loads((made / "status.json").read_text())
    assert status["dp_valid"] is True
    table = pd.read_csv(made / "epsilon.csv")
    last = table[(table["round"] == 30) & (table["observer"] == "released model")]
    assert 1.99 < last["certified"].min() <= 2
    text = (made / "report.html").read_text()
    assert "public knowledge by the word of the table" in text
    assert (made / "privacy_utility.png").stat().st_size > 10_000


def test_a_draft_without_a_word_of_its_owner_is_not_private(folder):
    done = success("init", "study", *TABLE, *REST, cwd=folder)
    assert "no public range: age, pressure, glucose" in done.stdout
    assert "Models are NOT private until study/schema.yaml says public: true" in done.stdout
    assert "Check its lines first,\nor name a new folder, ranges and --public.\n" in done.stdout
    schema = read_schema(folder / "study" / "schema.yaml")
    assert not schema.public
    assert schema.unscaled == ("age", "pressure", "glucose")
    words = ["--config-dir", "study/conf", "data=own", "rounds=1", "randomness=system"]
    success(*words, "hydra.run.dir=run", cwd=folder)
    assert json.loads((folder / "run" / "status.json").read_text())["dp_valid"] is False


REFUSED = {
    "a number without a range": (
        [*TABLE, *REST, *RANGES[:4], "--public"],
        "--public=glucose: numbers need a range that does not come from the records: "
        "--range glucose=LOW,HIGH",
    ),
    "a range of a category": ([*TABLE, *REST, "--range", "sex=0,1"], "--range=sex: a column of"),
    "a range upside down": ([*TABLE, *REST, "--range", "age=9,1"], "--range=age=9,1: a column and"),
    "a range of dates in words": (
        [*TABLE, *REST, "--range", "visit=1.1.2020,2.1.2020"],
        "such as age=0,120 or visit=2020-01-01,2020-12-31",
    ),
    "a value outside its range": (
        [*TABLE, *REST, "--range", "age=0,50"],
        "visits.csv: line",
    ),
    "a setting of the training": ([*TABLE, *REST, "rounds=9"], "rounds=9: only data.*"),
    "a schema": ([*TABLE[:1], "data.schema=a.yaml"], "data.schema=a.yaml: nothing"),
    "no table": (["data.label=died", "data.user=patient"], "data.path=null: the table"),
    "missing features": (
        [*TABLE, "data.drop=[stay]", "data.missing=refuse"],
        "visits.csv: line",
    ),
    "a public range of the example": (["--public"], "--public=: for data.path=... alone"),
    "an own method": ([*TABLE, "--method"], "--method=: for a project without data.path"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_nothing_is_written_for_what_cannot_train(folder, case):
    words, message = REFUSED[case]
    assert message in refusal("init", "study", *words, cwd=folder)
    assert not (folder / "study").exists()


def test_a_table_without_silos_keeps_its_allocator(folder):
    words = ["data.path=visits.csv", "data.label=stay", "data.user=patient", *REST[1:]]
    words += ["data.drop=[hospital]", "allocator=by_user", "allocator.n_silos=4"]
    words += [*RANGES, "--range", "died=0,1", "--range", "stay=0,60", "--public"]
    success("init", "study", *words, cwd=folder)
    schema = read_schema(folder / "study" / "schema.yaml")
    assert schema.label.range == (0, 60)
    assert schema.label.scale is None
    assert "range and scale of stay" not in schema.read_off
    assert yaml.safe_load((folder / "study/conf/data/own.yaml").read_text())["allocator"] == {
        "n_silos": 4
    }
    success("epsilon", "--config-dir", "study/conf", "data=own", "rounds=2", cwd=folder)


def test_a_line_of_the_schema_that_comes_from_elsewhere_is_no_claim(folder):
    assert run("init", "study", *TABLE, *REST, *RANGES, "--public", cwd=folder).returncode == 0
    file = folder / "study" / "schema.yaml"
    assert "- number of users\n" in file.read_text()
    file.write_text(file.read_text().replace("- number of users\n", ""))
    assert "number of users" not in read_schema(file).read_off
    with pytest.raises(Exception, match="each column once"):
        with_ranges(read_schema(file), ["age=0,1", "age=0,2"])


def test_a_date_has_a_range_of_dates():
    admitted = Number("admitted", date="%d.%m.%Y")
    schema = Schema((admitted,), Label("died", "classification", ("0", "1")), 5, "patient")
    [found] = with_ranges(schema, ["admitted=2010-01-01,2020-12-31"]).features
    assert found.range == (14610.0, 18627.0)  # numpy: days of datetime64
    assert found.date == admitted.date
    assert with_ranges(schema, ["admitted=0,2020"]).features[0].range == (0.0, 2020.0)
