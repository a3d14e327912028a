"""What a private table tells besides the noised sums: nothing, if a public schema describes it."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import fedpriv
from fedpriv.data.embedded import Artificial
from fedpriv.data.stability import ADD_REMOVE
from fedpriv.data.table.read import given_frame, read_cells
from fedpriv.data.table.schema import (
    Category,
    Label,
    Number,
    Schema,
    read_schema,
    write_schema,
)
from fedpriv.data.table.table import Table
from fedpriv.data.table.written import days_of
from fedpriv.errors import ConfigError, DataError
from fedpriv.testing import experiment

PUBLIC = Schema(
    features=(Number("age", (0, 120)), Number("dose", (0, 10)), Category("sex", ("f", "m"))),
    label=Label("died", "classification", classes=("0", "1")),
    n_users=40,
    user="patient",
    silo="hospital",
    silos=("Ash", "Birch", "Cedar"),
    unused=("remark",),
    public=True,
)
HEAD = "patient,hospital,age,dose,sex,remark,died"
ODD = [
    "p03,Birch,31,,f,5,1",  # without it, no dose is known, and every remark is a number
    "p03,Birch,32,7.25,m,five,0",
    "P-11,Cedar,119,,m,6,1",
    "p11 ,Cedar,44,,,6,1",
]
"""Users whose absence changes what the columns look like."""


def rows():
    """Two visits of each of 30 patients."""
    rng = np.random.default_rng(0)
    found = []
    for number in range(30):
        silo = PUBLIC.silos[number % 3]
        for _ in range(2):
            cells = (rng.integers(1, 100), "NA ", rng.choice(["f", "m"]), rng.integers(9))
            age, dose, sex, remark = cells
            found.append(f"x{number:02d},{silo},{age},{dose},{sex},{remark},{rng.integers(2)}")
    return [*found[:17], *ODD, *found[17:]]


@pytest.fixture
def table(tmp_path):
    """A function that writes a table and builds the experiment on it."""

    def build(lines, *words, schema=PUBLIC):
        (tmp_path / "visits.csv").write_text("\n".join([HEAD, *lines, ""]))
        (tmp_path / "visits.yaml").write_text(write_schema(schema))
        settings = ["data.path=visits.csv", "data.schema=visits.yaml", "data.missing=fill"]
        return experiment("data=table", f"data.root={tmp_path}", *settings, *words)

    return build


WAYS = {
    "natural": [],
    "records split": ["data.split=record"],
    "missing rows dropped": ["data.missing=drop"],
    "in each silo another person": ["data.user_scope=silo"],
    "values outside accepted": ["data.outside=accept"],
    "names merged": ["data.similar_ids=merge"],
    "users dealt": ["allocator=by_user", "allocator.n_silos=3", "allocator.local_test=0.4"],
    "a row is a person": ["data.one_row_per_user=true"],
}


def fates(exp):
    """What becomes of every record: features, label, part, silo and local test, with its user's
    name, sorted."""
    table = exp.data
    corpus = table.load(exp.streams)
    allocation = exp.allocator.allocate(corpus.train, table, exp.streams)
    names = corpus.train.user_names
    found = [("test", x.tobytes(), y.item()) for x, y in zip(corpus.test.x, corpus.test.y)]
    for row in range(len(corpus.train)):
        name = names[allocation.user[row]]
        found.append(
            (
                f"train in {allocation.silo[row]}, {allocation.trains[row]}",
                corpus.train.x[row].tobytes(),
                corpus.train.y[row].item(),
                name,
            )
        )
    return sorted(found, key=repr)


REPLACED = {
    "missing rows dropped": ("NA ", "2.5"),
    "values outside accepted": (",119,,m,", ",1190,,x,"),
    "names merged": ("P-11", "P11"),
}
"""What the lines have in the place of what."""
SCHEMAS = {
    "users dealt": replace(PUBLIC, silo=None, silos=(), unused=("remark", "hospital")),
    "a row is a person": replace(PUBLIC, user=None, n_users=99, unused=("remark", "patient")),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("absent", ["x03", "x29", "p03", "P-11"])
def test_one_user_absent_from_the_file_changes_no_record_of_another(table, way, absent):
    """The file differs, not the loaded records: all of reading runs again."""
    schema = SCHEMAS.get(way, PUBLIC)
    whole = [row.replace(*REPLACED.get(way, ("", ""))) for row in rows()]
    before = fates(table(whole, *WAYS[way], schema=schema))
    less = [row for row in whole if not row.startswith((absent, absent.replace("-", "")))]
    gone = len(whole) - len(less)
    after = fates(table(less, *WAYS[way], schema=schema))
    left = list(before)
    for record in after:
        left.remove(record)  # raises ValueError for a record with another fate
    dropping = way == "missing rows dropped"
    assert len(left) == gone or (dropping and len(left) <= gone)


@pytest.mark.parametrize("way", ["natural", "records split"])
def test_other_cells_of_one_user_change_no_record_of_another(table, way):
    whole = rows()
    other = [row.replace(",31,,f,5,1", ",120,10,m,,0") for row in whole]
    assert other != whole
    before = fates(table(whole, *WAYS[way]))
    after = fates(table(other, *WAYS[way]))
    assert len([record for record in before if record not in after]) == 1


def test_a_public_schema_bounds_the_distance_from_the_file(table):
    exp = table(rows())
    chain = exp.allocator.stability(exp.data)
    assert chain.from_file("user", ADD_REMOVE).users == 1
    assert not exp.data.read_without_noise


def test_groups_of_users_are_refused(table):
    """Their members are named by numbers, which one user absent would shift."""
    budgets = "algo.budgets={strict:{epsilon:1,share:0.5},open:{epsilon:4,share:0.5}}"
    with pytest.raises(ConfigError, match=r"^algo\.budgets=.*null, because a user's number"):
        table(rows(), budgets, "algo.rounds=30")


def test_turns_of_users_are_refused(table):
    """A user's turn follows from its number, too."""
    with pytest.raises(ConfigError, match=r"^algo\.cycle=2.*1, because a user's number"):
        table(rows(), "algo=uldp_avg", "algo.cycle=2")


def whole_numbers_beside_a_missing_one(remark):
    remark = remark.astype(float)
    remark[0] = np.nan
    return remark


def dates_beside_a_time_of_day(remark):
    remark = pd.Series(pd.Timestamp("2020-01-01"), index=remark.index)
    remark[0] = pd.Timestamp("2020-01-01 12:30")
    return remark


@pytest.mark.parametrize(
    "remarks", [whole_numbers_beside_a_missing_one, dates_beside_a_time_of_day]
)
@pytest.mark.parametrize("way", ["records split", "a row is a person"])
@pytest.mark.parametrize("given", ["Parquet", "a frame"])
def test_the_type_of_a_column_changes_no_record_of_another_user(tmp_path, remarks, way, given):
    """One cell of a user decides how pandas stores the whole column."""
    rng = np.random.default_rng(0)
    n = 40
    whole = pd.DataFrame(
        {
            "patient": [f"x{row // 2:02d}" for row in range(n)],
            "hospital": [PUBLIC.silos[row // 2 % 3] for row in range(n)],
            "age": rng.integers(1, 100, n),
            "dose": 1.5,
            "sex": rng.choice(["f", "m"], n),
            "remark": rng.integers(9, size=n),
            "died": rng.integers(2, size=n),
        }
    )
    whole["remark"] = remarks(whole["remark"])
    less = whole[2:].reset_index(drop=True)
    if whole["remark"].dtype.kind == "f":
        less["remark"] = less["remark"].astype(int)
    (tmp_path / "visits.yaml").write_text(write_schema(SCHEMAS.get(way, PUBLIC)))

    def found(frame):
        words = [f"data.root={tmp_path}", "data.schema=visits.yaml", *WAYS[way]]
        if given == "a frame":
            with given_frame(frame):
                return fates(experiment("data=table", *words))
        frame.to_parquet(tmp_path / "visits.parquet")
        return fates(experiment("data=table", "data.path=visits.parquet", *words))

    before, after = found(whole), found(less)
    for record in after:
        before.remove(record)  # raises ValueError for a record with another fate
    assert len(before) == 2


ODD_SPELLINGS = {
    "a mark that is a number": ("9.9e1", "5\u00a0"),
    "a mark beside a decimal point": ("99,0", "1.5"),
}


@pytest.mark.parametrize("what", ODD_SPELLINGS)
def test_the_spelling_of_a_number_changes_no_cell_of_another_user(tmp_path, what):
    """pandas knows 99.0 as the mark 99 only in columns that it reads as numbers itself."""
    own, other = ODD_SPELLINGS[what]
    written = {"separator": ";", "decimal": "," if "," in own else ".", "missing_marks": ["99"]}
    form = Table(label="sex", one_row_per_user=True, **written)

    def age(*cells):
        (tmp_path / "visits.csv").write_text("\n".join(["age;sex", *cells, ""]))
        numbers, missing = read_cells(tmp_path / "visits.csv", form).read_numbers("age")
        assert missing[0]
        return numbers[0]

    assert np.isnan(age(f"{own};f", "3;f"))
    assert np.isnan(age(f"{own};f", f"{other};m"))


@pytest.mark.parametrize("odd", ["1_0", "\uff15"])
def test_a_label_that_only_python_reads_as_a_number_is_refused(table, odd):
    """It would be read as a text with all labels of the column, and move the coins of their
    rows."""
    schema = replace(PUBLIC, label=Label("died", "regression", range=(0, 20)))
    whole = rows()
    exp = table([*whole[:5], whole[5][:-1] + odd, *whole[6:]], "data.split=record", schema=schema)
    with pytest.raises(DataError, match=r"line 7, column died: .*: a number is expected"):
        exp.data.load(exp.streams)


READ_OFF = {
    "a schema that nobody declares public": replace(PUBLIC, public=False),
    "a scale": replace(PUBLIC, features=(Number("age"), *PUBLIC.features[1:])),
}


@pytest.mark.parametrize("what", READ_OFF)
def test_what_was_read_off_the_records_leaves_no_bound(table, what):
    exp = table(rows(), schema=READ_OFF[what])
    chain = exp.allocator.stability(exp.data)
    assert np.isinf(chain.from_file("user", ADD_REMOVE).users)
    assert exp.data.read_without_noise
    given = "; ".join(chain.assumptions)
    assert all(f"taken as given: {text}" in given for text in exp.data.read_without_noise)
    assert set(exp.data.read_without_noise) <= set(exp.data.not_covered)


@pytest.mark.parametrize(
    ("schema", "valid"),
    [(PUBLIC, True), (READ_OFF["a scale"], False), (None, False)],
    ids=["public schema", "a scale", "no schema"],
)
def test_a_model_is_private_only_under_a_public_schema(tmp_path, schema, valid):
    """Noise comes from the operating system and every epsilon is finite in all three."""
    lines = [row for row in rows() if not row.startswith(("p11 ", "P-11"))]
    (tmp_path / "visits.csv").write_text("\n".join([HEAD, *lines, ""]))
    words = ["data.label=died", "data.user=patient", "data.silo=hospital", "data.drop=[remark]"]
    if schema is not None:
        (tmp_path / "visits.yaml").write_text(write_schema(schema))
        words = ["data.schema=visits.yaml"]
    done = fedpriv.run(
        *("data=table", f"data.root={tmp_path}", "data.path=visits.csv", "data.missing=fill"),
        *("rounds=1", "randomness=system", *words),
        folder=tmp_path / "run",
    )
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert np.isfinite(done.epsilon["certified"]).all()
    assert status["dp_valid"] is valid
    assert any("read off the records" in text for text in status["not_covered"]) is (schema is None)
    assert status["labels"]["metrics.csv"]["loss"] == "diagnostic of test records of persons"


class Silent(Artificial):
    """A class of somebody else, which may scale by private records."""


class Says(Silent):
    read_without_noise = ()


def test_a_class_of_somebody_else_has_to_say_what_it_reads():
    assert Artificial().read_without_noise == ()
    assert Says().read_without_noise == ()
    [text] = Silent().read_without_noise
    assert text.startswith("Silent does not say what it reads off the records without noise")


def test_an_epsilon_under_a_schema_needs_no_record(tmp_path):
    (tmp_path / "visits.yaml").write_text(write_schema(PUBLIC))
    words = ["data=table", f"data.root={tmp_path}", "data.path=none.csv", "rounds=2"]
    table = fedpriv.epsilon(*words, "data.schema=visits.yaml")
    assert np.isfinite(table["certified"]).all()


DATES = [
    "2020-01-02",
    "2020-01-02T10:00:00.123456789+02:00",
    "1066-10-14",
    "9999-12-31",
    "x",
    "2020",
]
OTHERS = ["01/02/2020", "31/01/2020", "1/2/20", "01/31/2020", "", "12"]


@pytest.mark.parametrize(
    ("form", "texts"), [("ISO8601", DATES), ("%d/%m/%Y", OTHERS), ("%m/%d/%Y", OTHERS)]
)
def test_a_date_is_read_alone(form, texts):
    alone = np.concatenate([days_of([text], form) for text in texts])
    np.testing.assert_array_equal(days_of(texts, form), alone)
    np.testing.assert_array_equal(days_of(texts[::-1], form), alone[::-1])
    assert np.isfinite(alone[0])


@pytest.mark.parametrize("decimal", [".", ","])
def test_a_public_schema_says_how_numbers_and_dates_are_written(tmp_path, decimal):
    """Without it, the cells of other users would decide."""
    features = (Number("age", (0, 9000)), Number("seen", (14610, 18627), "%d/%m/%Y"))
    schema = Schema(
        features,
        Label("died", "classification", classes=("0", "1")),
        9,
        user="patient",
        public=True,
        decimal=decimal,
    )
    (tmp_path / "schema.yaml").write_text(write_schema(schema))
    assert read_schema(tmp_path / "schema.yaml") == schema

    def first(*rows):
        text = "\n".join(["patient;age;seen;died", "a;1,101;03/04/2020;1", *rows, ""])
        (tmp_path / "visits.csv").write_text(text)
        own = {"path": "visits.csv", "schema": "schema.yaml", "root": str(tmp_path)}
        table = Table(**own, separator=";")
        return table.records(table.path)[1].x[0].tolist()

    alone = first()
    assert alone == first("b;2,5;13/04/2020;0" if decimal == "," else "b;2.5;13/04/2020;0")
    assert alone == first("b;7;04/03/2020;0")
    number = {".": 1101, ",": 1.101}[decimal]
    assert alone[0] == np.float32(number / 9000 * 2 - 1)
