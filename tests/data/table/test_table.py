"""Own tables: what is inferred, the three problems, missing values, test records, formats."""

import io
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from command import refusal, run, success
from refusals import refused

import fedpriv
from fedpriv.data.table.describe import special_categories
from fedpriv.data.table.frames import read_parquet
from fedpriv.data.table.schema import (
    Category,
    Label,
    Number,
    parse_schema,
    read_schema,
    schema_tree,
    write_schema,
)
from fedpriv.data.table.table import Table
from fedpriv.errors import DataError, FedprivError
from fedpriv.projects.patients import csv_text
from fedpriv.util.streams import Streams

TEXT = csv_text(patients=80)
ROLES = {"label": "died", "user": "patient", "silo": "hospital", "drop": ["stay"]}
ROLE_WORDS = ["data=table", "data.label=died", "data.user=patient", "data.silo=hospital"]
WORDS = ["data=table", "data.path=visits.csv", "data.user=patient", "data.silo=hospital"]


@pytest.fixture
def frame():
    return pd.read_csv(io.StringIO(TEXT))


@pytest.fixture
def table(tmp_path):
    """A function that writes a CSV file and returns the data set on it."""

    def build(text=TEXT, **settings):
        path = tmp_path / "visits.csv"
        path.write_text(text)
        return Table(path=str(path), **{**ROLES, "missing": "fill", **settings})

    return build


def test_types_are_inferred(table):
    schema = table().declared
    assert schema.features == (
        Number("age"),
        Category("sex", ("f", "m")),
        Number("pressure"),
        Number("glucose"),
        Category("smoker", ("no", "yes")),
    )
    assert schema.label.problem == "classification"
    assert schema.label.classes == ("0", "1")
    assert (schema.n_users, len(schema.silos), schema.unused) == (80, 5, ("stay",))
    assert not schema.public


def test_numbers_are_categories_on_request(table):
    [age] = [one for one in table(categories=["age"]).declared.features if one.name == "age"]
    assert isinstance(age, Category)
    assert "62" in age.values


@pytest.mark.parametrize(
    ("settings", "problem", "metric"),
    [
        ({}, "classification", "auc"),
        ({"metric": "accuracy"}, "classification", "accuracy"),
        ({"label": "sex"}, "classification", "auc"),
        ({"label": "stay", "drop": ["died"]}, "regression", "r2"),
        ({"label": "age"}, "regression", "r2"),
        ({"problem": "regression"}, "regression", "r2"),
        ({"time": "stay", "drop": []}, "survival", "c_index"),
    ],
)
def test_the_three_problems(table, settings, problem, metric):
    data = table(**settings)
    assert data.declared.label.problem == problem
    assert data.task.metric == metric
    corpus = data.load(Streams(0))
    assert corpus.train.x.shape[1:] == data.shape
    assert np.isfinite(corpus.train.x).all()
    assert np.isfinite(corpus.train.y).all()


SCALES = {
    "of the records": (None, None),
    "a public range": ((0, 60), (30, 15)),
    "stated": ((0, 60), (5, 2)),
}


@pytest.mark.parametrize("case", SCALES)
def test_numbers_train_on_a_standard_scale(case, table, frame, tmp_path):
    bounds, scale = SCALES[case]
    data = table(label="stay", drop=["died"])
    drafted = data.declared
    if bounds is not None:
        label = Label("stay", "regression", range=bounds, scale=scale if case == "stated" else None)
        text = write_schema(replace(drafted, label=label))
        (tmp_path / "schema.yaml").write_text(text)
        nobody = dict.fromkeys(("label", "user", "silo"))
        data = table(schema=str(tmp_path / "schema.yaml"), drop=[], **nobody)
    corpus = data.load(Streams(0))
    found = np.sort(np.concatenate([corpus.train.y, corpus.test.y]))
    middle, unit = scale or (frame["stay"].mean(), frame["stay"].std(ddof=0))
    np.testing.assert_allclose(
        found, np.sort((frame["stay"] - middle) / unit), rtol=1e-5, atol=1e-6
    )
    assert data.task.unit == pytest.approx(unit)
    assert "range and scale of stay" in drafted.read_off


def test_the_public_list_of_users_does_not_depend_on_the_split(tmp_path):
    """`natural` demanded the number of users with training records, another for each seed."""
    (tmp_path / "visits.csv").write_text(TEXT)
    words = [*WORDS, f"data.root={tmp_path}", "data.label=died", "data.missing=fill"]
    numbers, training = set(), set()
    for seed in range(5):
        federation = fedpriv.federation(*words, f"seed={seed}")
        numbers.add(federation.allocation.n_users)
        training.add(len(set(federation.allocation.user.tolist())))
    assert numbers == {80}
    assert len(training) > 1


def test_the_split_keeps_a_user_on_one_side(table, frame):
    data = table()
    corpus = data.load(Streams(0))
    training = {corpus.train.user_names[user] for user in corpus.train.user}
    assert len(corpus.test) == int((~frame["patient"].isin(training)).sum())
    assert 0.1 < len(corpus.test) / len(frame) < 0.35


def test_missing_values_by_the_stated_rule(table, frame):
    with pytest.raises(DataError, match=r"column glucose: a missing value; data\.missing=fill"):
        table(missing="refuse").load(Streams(0))
    whole = table().load(Streams(0))
    assert len(whole.train) + len(whole.test) == len(frame)
    assert (whole.train.x[:, 4] == 0).sum() + (whole.test.x[:, 4] == 0).sum() >= 1  # the mean
    fewer = table(missing="drop").load(Streams(0))
    assert len(fewer.train) + len(fewer.test) == frame["glucose"].notna().sum()


def test_rows_without_a_user_are_dropped_on_request(table):
    broken = TEXT.replace("P0003,", ",")
    gone = TEXT.count("P0003,")
    with pytest.raises(DataError, match="column patient: a missing value"):
        table(broken).load(Streams(0))
    corpus = table(broken, incomplete="drop").load(Streams(0))
    assert len(corpus.train) + len(corpus.test) == TEXT.count("\n") - 1 - gone
    assert any(f"{gone} rows without patient are left out" in note for note in corpus.notes)


def test_the_written_schema_reads_the_same_records(table, tmp_path):
    """Also of truth values, which pandas would read as such if no schema says what they are."""
    text = TEXT.replace(",yes,", ",TRUE,").replace(",no,", ",False,")
    inferred = table(text)
    (tmp_path / "schema.yaml").write_text(write_schema(inferred.declared))
    assert read_schema(tmp_path / "schema.yaml") == inferred.declared
    nobody = dict.fromkeys(("label", "user", "silo"))
    declared = table(text, schema=str(tmp_path / "schema.yaml"), drop=[], **nobody)
    one, other = inferred.load(Streams(0)), declared.load(Streams(0))
    np.testing.assert_array_equal(one.train.x, other.train.x)
    np.testing.assert_array_equal(one.test.y, other.test.y)
    assert Category("smoker", ("False", "TRUE")) in inferred.declared.features


def test_parquet_and_a_frame_read_as_the_csv_file(table, frame, tmp_path):
    want = table().load(Streams(0))
    frame.to_parquet(tmp_path / "visits.parquet")
    found = [Table(path=str(tmp_path / "visits.parquet"), missing="fill", **ROLES).load(Streams(0))]
    given = fedpriv.federation(*ROLE_WORDS, "data.drop=[stay]", "data.missing=fill", frame=frame)
    np.testing.assert_array_equal(
        np.sort(want.train.x, axis=None), np.sort(found[0].train.x, axis=None)
    )
    assert sum(len(records) for records, _ in given.silos) == len(want.train)


def test_a_small_parquet_file_that_unpacks_to_a_huge_table_is_refused(tmp_path):
    """500 bytes can hold a text of a megabyte once, for each of a million rows: it stays one."""
    for name, cells in (("numbers", [1.0] * 20_000), ("texts", ["x" * 5000] * 200)):
        pd.DataFrame({"a": cells}).to_parquet(tmp_path / name, compression="zstd")
        assert (tmp_path / name).stat().st_size < 10_000
    with pytest.raises(DataError, match=r"unpacks to .* at most 100000 are read"):
        read_parquet(tmp_path / "numbers", most=100_000)
    [(places, texts)] = read_parquet(tmp_path / "texts", most=100_000).columns
    assert (len(places), texts) == (200, ["x" * 5000])


@pytest.mark.parametrize("cell", [[1, 2], {"x": 1}])
def test_a_cell_of_a_parquet_file_is_one_value(cell, tmp_path):
    """Lists take as long as 50 microseconds each to write as text: 100 seconds for 2M rows."""
    pd.DataFrame({"a": [cell] * 10}).to_parquet(tmp_path / "nested")
    with pytest.raises(DataError, match=r"column a\.\S+ has lists or structures"):
        read_parquet(tmp_path / "nested")


def test_a_frame_is_there_in_every_run_of_a_sweep(frame, tmp_path):
    """Runs of a sweep are computed in threads of their own."""
    words = [*ROLE_WORDS, "data.missing=fill", "seed=0,1", "rounds=1", "preset.local_epochs=1"]
    runs = fedpriv.sweep(*words, frame=frame, folder=tmp_path / "sweep")
    assert set(runs.metrics["seed"]) == {0, 1}


def test_a_frame_is_needed_where_no_path_is():
    with pytest.raises(FedprivError, match=r"data\.path=null"):
        fedpriv.federation("data=table", "data.label=died", "data.user=patient")


def test_own_test_records(table, tmp_path):
    head, *rows = TEXT.splitlines()
    late = [row for row in rows if row >= "P0060"]
    early = [row for row in rows if row < "P0060"]
    (tmp_path / "late.csv").write_text("\n".join([head, *late, ""]))
    corpus = table("\n".join([head, *early, ""]), test=str(tmp_path / "late.csv")).load(Streams(0))
    assert (len(corpus.train), len(corpus.test)) == (len(early), len(late))
    both = table(TEXT, test=str(tmp_path / "late.csv"))
    with pytest.raises(DataError, match=r"late\.csv: user 'P00.*of the training table is here"):
        both.load(Streams(0))
    again = table(TEXT, test=str(tmp_path / "late.csv"), split="record")
    assert len(again.load(Streams(0)).train) == len(rows)
    assert not again.disjoint_test


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"label": None}, "data.label=null"),
        ({"label": "dead"}, "data.label=dead: a column of"),
        ({"user": None}, "data.user=null: the column that says whose record it is"),
        ({"one_row_per_user": True}, "data.user=patient: null"),
        ({"user": "died"}, "data.user=died: another column than data.label"),
        ({"problem": "ranking"}, "data.problem=ranking"),
        ({"missing": "ignore"}, "data.missing=ignore"),
        ({"test_share": 1.0}, "data.test_share=1.0"),
        *(
            ({"class_weights": [1.0, one]}, f"data.class_weights=[1.0, {one}]: numbers from 1e-06")
            for one in (0.0, -1.0, float("nan"), 1e-50, 1e39)  # the last two are 0 and infinity
        ),
        ({"class_weights": [2.0]}, "data.class_weights=[2.0]: one for each class of died: 0, 1"),
        ({"separator": "ab"}, "data.separator=ab"),
        ({"silo": None, "user_scope": "silo"}, "data.user_scope=silo"),
        ({"schema_digest": "00"}, "data.schema_digest=00"),
    ],
)
def test_wrong_settings(table, settings, line):
    refused(lambda: table(**settings).task, start=line)


def test_a_file_that_does_not_exist(tmp_path):
    line = refusal(*WORDS, "data.label=died", cwd=tmp_path)
    assert line.startswith("fedpriv: data.path=visits.csv: no such file")


def test_what_is_made_of_each_column_is_shown(tmp_path):
    (tmp_path / "visits.csv").write_text(TEXT)
    words = [*WORDS, "data.label=died", "data.missing=fill", "data.drop=[stay]"]
    done = success("data", *words, "--out", "visits.yaml", cwd=tmp_path)
    for line in (
        "feature age: number, scaled by the training records",
        "feature sex: a 0/1 feature for each of f, m",
        "column stay: left out",
        "users: 80 named in the records; a user is one value of column patient",
        "silos: 5 in column hospital: Adlerhof",
        "not covered: age, pressure, glucose: scaled by the exact mean",
    ):
        assert line in done.stdout
    assert read_schema(tmp_path / "visits.yaml").n_users == 80
    assert run("data", *words, "--out", "visits.yaml", cwd=tmp_path).returncode == 2


SCHEMA_DAMAGES = [
    ("public: false", "public: maybe", "public=maybe"),
    ("schema: fedpriv table 1", "schema: 2", "schema=2"),
    ("number: 80", "number: 0", "user.number=0"),
    ("problem: classification", "problem: ranking", "label.problem=ranking"),
    ("- '1'", "- '0'", "each value once"),
    ("problem: classification", "problem: classification\n  scale: [0, 1]", "label.scale=[0, 1]"),
    ("- '1'", "- 1", "a text, in quotes"),
    ("range: null", "range: [3, 1]", "the smaller one first"),
    ("range: null", "range: [0, 1%s]" % ("0" * 400), "two numbers up to 1e+12 in size"),
    ("range: null", "rnage: null", "rnage"),
    ("unused:", "unused: !!python/name:os.system\nused:", "tag"),
    ("public: false", "public: false\npublic: true", "twice"),
    ("features:", "features: &a\n", "anchor"),
]


@pytest.mark.parametrize(("old", "new", "line"), SCHEMA_DAMAGES)
def test_a_damaged_schema_is_refused(table, tmp_path, old, new, line):
    path = tmp_path / "schema.yaml"
    whole = write_schema(table().declared)
    assert old in whole
    path.write_text(whole.replace(old, new, 1))
    refused(lambda: read_schema(path), "schema.yaml", line, error=DataError)


@pytest.mark.parametrize(
    "scale", [[5, 0], [5, -1], [5, 1e-9], [5, 61], [61, 1], [5, math.nan], ["5", 1], [10**400, 1]]
)
def test_a_scale_that_a_label_cannot_have_is_refused(table, scale):
    """A deviation of almost nothing would make labels infinite, and a value elsewhere all wrong."""
    tree = schema_tree(table(label="stay", drop=["died"]).declared)
    tree["label"] |= {"range": [0, 60], "scale": scale}
    with pytest.raises(ValueError, match=r"^label\.scale=.*: allowed: a value in the range, and a"):
        parse_schema(tree)


def test_special_categories_are_known_by_their_names(table):
    text = TEXT.replace("age,sex,pressure", "race,Sex,trace", 1)
    data = table(text)
    assert special_categories(data.declared) == {
        "race": "ethnic origin",
        "glucose": "health",
        "smoker": "health",
    }
    line = (
        "special categories (GDPR, Art. 9), by their names: race (ethnic origin), glucose (health),"
    )
    assert [text for text in data.description if text.startswith(line)]


@pytest.mark.parametrize(
    ("cell", "advice"),
    [
        ("61,5", "among numbers; most rows are written otherwise: write all in one form; "),
        ("k.A.", """among numbers; 'data.missing_marks=["k.A."]' takes it as missing; """),
    ],
)
def test_a_number_in_another_form_is_not_taken_for_a_missing_one(table, frame, cell, advice):
    ages = [cell, *frame["age"].astype(str)[1:]]
    data = table(frame.assign(age=ages).to_csv(index=False))
    refused(lambda: data.load(Streams(0)), advice)


@pytest.mark.parametrize(
    ("scope", "taken"),
    [
        ("table", "one person; data.user_scope=silo if each silo numbers its own persons"),
        ("silo", "another person in each silo; data.user_scope=table if they are one"),
    ],
)
def test_numbers_that_every_hospital_gives_again_are_noted(table, frame, scope, taken):
    frame["patient"] = frame.groupby("hospital").cumcount() + 1
    notes = table(frame.to_csv(index=False), user_scope=scope).load(Streams(0)).notes
    assert [
        one
        for one in notes
        if one.endswith(f"in several silos, such as that of line 2; each is taken as {taken}")
    ]


@pytest.mark.parametrize("rule", ["keep", "merge"])
def test_a_name_in_two_silos_trains_in_both_or_tests_in_both(table, frame, rule):
    """Also as two users."""
    frame["patient"] = frame["stay"] = frame.groupby("hospital").cumcount() + 1
    words = {"label": "stay", "drop": [], "user_scope": "silo", "similar_ids": rule}
    found = table(frame.to_csv(index=False), **words).load(Streams(0))
    train, test = ({*part.y.ravel().tolist()} for part in (found.train, found.owned_test))
    assert min(len(train), len(test)) > 2
    assert not train & test


def test_a_run_says_few_words_of_an_ordinary_table(table):
    """60 columns more are one line before each training."""
    head, *rows = TEXT.splitlines()
    more = [f"{row}{',1' * 60}" for row in rows]
    names = "".join(f",V{place}" for place in range(60))
    data = table("\n".join([f"{head}{names}", *more, ""]))
    assert len(data.description) > 65
    assert len(data.summary) == 4
