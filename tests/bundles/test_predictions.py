"""A bundle predicts what its run computed, bit by bit; as ONNX within 1e-6."""

import io
import json
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from command import refusal, run, success
from refusals import refused
from trained import own_outputs, random_table, trained

import fedpriv
from fedpriv.bundles.model import Model, load_model
from fedpriv.data.table.schema import Label, Number, Schema, write_schema


def assert_equal_outputs(seed, folder):
    words, path, new = trained(seed, folder)
    expected = own_outputs(words, path)
    model = fedpriv.load(path / "bundle")
    for records in (new, folder / "new.csv"):
        assert model.outputs(records).tobytes() == expected.tobytes()
    return model, expected


@pytest.mark.parametrize("seed", range(10))
def test_a_bundle_computes_what_its_run_did(seed, tmp_path):
    model, expected = assert_equal_outputs(seed, tmp_path)
    scores, _ = model.scores(tmp_path / "new.csv")
    assert (scores["problem"] == "").all()
    if seed % 3 == 0:
        np.testing.assert_array_equal(
            model.predict(tmp_path / "new.csv"), model.classes_[expected.argmax(1)]
        )
        assert scores["prediction"].tolist() == model.classes_[expected.argmax(1)].tolist()
    elif seed % 3 == 2:
        costs = pd.read_csv(tmp_path / "train.csv")["cost"]
        values = costs.mean() + expected[:, 0].astype(float) * costs.std(ddof=0)
        np.testing.assert_allclose(scores["prediction"], values)
        card = (tmp_path / "run" / "bundle" / "README.md").read_text()
        [numbers] = re.findall(r"The number is (\S+) plus (\S+) times", card)
        np.testing.assert_allclose([*map(float, numbers)], [costs.mean(), costs.std(ddof=0)])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200))
def test_many_bundles_compute_what_their_runs_did(seed, tmp_path):
    _, expected = assert_equal_outputs(seed, tmp_path)
    assert run("export", "run", "--onnx", cwd=tmp_path).returncode == 0
    near = load_model(tmp_path / "run", onnx=True).outputs(tmp_path / "new.csv")
    largest = max(1, np.abs(expected).max())  # of float32: after one round it may be 1,000
    np.testing.assert_allclose(near, expected, rtol=0, atol=1e-6 * largest)


def test_model_onnx_computes_the_same_without_fedpriv(world):
    model = load_model(world / "given")
    x = np.random.default_rng(0).normal(size=(9, 6)).astype(np.float32)
    session = onnxruntime.InferenceSession(world / "given" / "model.onnx")
    [found] = session.run(None, {"records": x})
    np.testing.assert_allclose(found, model.network(x), rtol=0, atol=1e-6)
    for count in (1, 2):
        np.testing.assert_allclose(
            session.run(None, {"records": x[:count]})[0], found[:count], atol=1e-6
        )


WITHOUT = """
import sys
sys.modules.update(dict.fromkeys(("torch", "hydra", "omegaconf")))
import pandas as pd
import fedpriv
rows = pd.DataFrame({"age": [70, 50], "sex": ["f", "m"], "smoker": ["no", "no"], "stay": [1.5, 2]})
print(fedpriv.load("given").predict_proba(rows).tolist())
from fedpriv.cli import main
main(["predict", "given", "visits.csv", "--out", "without.csv"])
"""
"""A program that uses a bundle where neither torch nor Hydra is installed."""


def test_a_bundle_with_a_model_onnx_needs_neither_torch_nor_hydra(world):
    command = [sys.executable, "-c", WITHOUT]
    done = subprocess.run(command, cwd=world, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = pd.DataFrame(
        {"age": [70, 50], "sex": ["f", "m"], "smoker": ["no", "no"], "stay": [1.5, 2]}
    )
    model = fedpriv.load(world / "given")
    printed, written = done.stdout.splitlines()
    expected = model.predict_proba(rows)
    np.testing.assert_allclose(json.loads(printed), expected, rtol=0, atol=1e-6)
    assert written == "without.csv"
    scores, _ = model.scores(world / "visits.csv")
    pd.testing.assert_frame_equal(
        pd.read_csv(world / "without.csv").drop(columns=["prediction", "problem"]),
        scores.drop(columns=["prediction", "problem"]),
        check_exact=False,
        atol=1e-6,
    )


def test_scores_say_which_rows_cannot_be_read(world):
    rows = ["stay,age,sex,smoker,shoe", "5,70,f,yes,1", "5,,m,no,1", "5,x,m,no,2", "2,60,d,no,3"]
    (world / "new.csv").write_text("\n".join([*rows, "1,50,m,no,4", ""]))
    for flag in ([], ["--onnx"]):
        done = success("predict", "given", "new.csv", *flag, cwd=world)
        assert "columns that the model does not read: shoe" in done.stderr
        assert "3 of 5 rows cannot be read: line 3: column age: a missing value" in done.stderr
        table = pd.read_csv(io.StringIO(done.stdout))
        assert table["line"].tolist() == [2, 3, 4, 5, 6]
        assert table["problem"].isna().tolist() == [True, False, False, False, True]
        assert table["prediction"].isna().tolist() == [False, True, True, True, False]
        assert table["problem"][2] == "column age: x: a number is expected"
        assert table["problem"][3] == "column sex: d: not in the public list (f, m)"
        sums = table["probability of 0"] + table["probability of 1"]
        np.testing.assert_allclose(sums.dropna(), 1)
        above = table["probability of 1"].dropna() > 0.3
        assert (table["prediction"].dropna() == above).all()


REFUSED = {
    "a missing column": ("age,sex,smoker\n70,f,yes\n", "wrong columns: missing stay"),
    "no rows": ("stay,age,sex,smoker\n", "no records"),
    "no readable row": ("stay,age,sex,smoker\n5,x,f,yes\n", "no row can be read"),
    "another width": ("stay,age,sex,smoker\n5,70,f\n", "line 2: 3 cells"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_file_that_does_not_fit_is_refused_in_one_line(case, world):
    text, part = REFUSED[case]
    (world / "odd.csv").write_text(text)
    refused(lambda: load_model(world / "given").scores(world / "odd.csv"), part)


def test_frames_and_arrays_are_read_as_scikit_learn_does(world):
    model = fedpriv.load(world / "given")
    frame = pd.DataFrame(
        {"age": [70, 50], "sex": ["f", "m"], "smoker": ["no", "no"], "stay": [1.5, 2]}
    )
    assert model.classes_.tolist() == ["0", "1"]
    expected = model.predict_proba(frame)
    assert expected.shape == (2, 2)
    np.testing.assert_array_equal(
        model.predict_proba(frame[["age", "sex", "smoker", "stay"]].to_numpy()), expected
    )
    refused(lambda: model.predict(frame[["age", "sex"]].to_numpy()), "expected (n, 4)")
    refused(
        lambda: model.predict(frame.assign(age=[70, "old"])), "1 of 2 rows cannot be read", "row 1"
    )


def test_a_row_without_finite_outputs_has_no_prediction(world):
    """Of a model that diverged, whose first class would be predicted."""
    outputs = np.array([[np.nan, 0], [0, 1], [np.inf, 0]], dtype=np.float32)
    model = Model(load_model(world / "given").bundle, lambda x: outputs)
    (world / "three.csv").write_text("stay,age,sex,smoker\n" + "5,70,f,yes\n" * 3)
    scores, _ = model.scores(world / "three.csv")
    assert scores["prediction"].isna().tolist() == [True, False, True]
    assert scores["problem"].str.contains("no finite output").tolist() == [True, False, True]
    refused(lambda: model.predict(pd.read_csv(world / "three.csv")), "2 of 3 rows", "no finite")


def test_a_date_is_one_in_the_card_and_where_it_is_refused(tmp_path):
    schema = Schema(
        (Number("weight", (0, 200)), Number("seen", (14610, 18627), "%d.%m.%Y")),
        Label("died", "classification", classes=("no", "yes")),
        9,
        user="patient",
        public=True,
        decimal=",",
    )
    (tmp_path / "schema.yaml").write_text(write_schema(schema))
    rows = [
        f"{user};{60 + user},5;0{user}.04.2020;{('no', 'yes')[user % 2]}" for user in range(1, 9)
    ]
    (tmp_path / "visits.csv").write_text("\n".join(["patient;weight;seen;died", *rows, ""]))
    words = ("data=table", "data.path=visits.csv", "data.schema=schema.yaml", "rounds=1")
    allocator = ("allocator=by_user", "allocator.n_silos=2", "data.rare=keep")
    success(*words, *allocator, "hydra.run.dir=run", cwd=tmp_path)
    card = (tmp_path / "run" / "bundle" / "README.md").read_text()
    assert "- seen: a date like 31.12.2020, from 2010-01-01 to 2020-12-31\n" in card
    new = ["weight;seen", "60,5;01.02.2020", "60,5;01.02.2021", "60.5;01.02.2020", ""]
    (tmp_path / "new.csv").write_text("\n".join(new))
    problems = load_model(tmp_path / "run").scores(tmp_path / "new.csv")[0]["problem"]
    assert problems.tolist()[1:] == [
        "column seen: 01.02.2021: outside 2010-01-01 to 2020-12-31",
        "column weight: 60.5: a number with a decimal comma is expected",
    ]


def test_a_frame_is_read_as_the_file_that_pandas_writes_of_it(tmp_path):
    """Also where files have decimal commas, and a point between thousands."""
    rng = np.random.default_rng(0)
    frame = random_table(rng, 30, {"weight": "number", "kind": "category"})
    frame["weight"] = rng.uniform(1, 99, 30).round(3)
    form = {"sep": ";", "decimal": ",", "index": False}
    frame.to_csv(tmp_path / "visits.csv", **form)
    words = (
        *("data=table", "data.path=visits.csv", "data.label=died", "data.user=id", "quiet=true"),
        *("data.silo=site", "data.drop=[days,cost]", "rounds=1", "hydra.run.dir=run"),
    )
    assert run(*words, cwd=tmp_path).returncode == 0
    model = load_model(tmp_path / "run")
    new = frame[["weight", "kind"]]
    new.to_csv(tmp_path / "new.csv", **form)
    new.to_parquet(tmp_path / "new.parquet")
    for records in (tmp_path / "new.csv", tmp_path / "new.parquet"):
        np.testing.assert_array_equal(model.outputs(records), model.outputs(new))


def test_a_bundle_says_what_was_read_off_private_records(world):
    card = (world / "given" / "README.md").read_text()
    assert card.startswith("---\nlicense: mit\n")
    assert "NOT private" in card  # noise from a seed
    said = json.loads((world / "given" / "bundle.json").read_text())
    for part in (
        "scale of age",
        "scale of stay",
        "categories of sex",
        "classes of died",
        "metrics",
    ):
        assert said["labels"][part].startswith("diagnostic"), part
        assert part in card
    assert said["labels"]["weights"] == "charged"
    text = json.dumps(said)
    assert not any(
        word in text for word in ("patient", "hospital", "P00")
    )  # neither users nor silos


def test_images_are_read_from_arrays(tmp_path):
    assert (
        run("data=digits", "rounds=1", "quiet=true", "hydra.run.dir=run", cwd=tmp_path).returncode
        == 0
    )
    shape = tuple(load_model(tmp_path / "run").bundle.network["shape"])
    np.save(tmp_path / "new.npy", np.zeros((3, *shape), dtype=np.float32))
    done = run("predict", "run", "new.npy", "--out", "scores.csv", cwd=tmp_path)
    assert done.stdout == "scores.csv\n"
    assert len(pd.read_csv(tmp_path / "scores.csv")) == 3
    np.save(tmp_path / "new.npy", np.zeros((3, 5), dtype=np.float32))
    assert "expected float32 of shape (n, " in refusal("predict", "run", "new.npy", cwd=tmp_path)
    np.save(tmp_path / "new.npy", np.array([print]), allow_pickle=True)
    refused(
        lambda: load_model(tmp_path / "run").scores(tmp_path / "new.npy"), "not a readable .npy"
    )


TWO, THREE = ["no", "yes"], ["a", "b", "c"]
MEANINGS = {
    # task, classes, threshold, outputs: predictions, probabilities of the second class
    "two classes": ("classes", TWO, 0.5, [[0, 0], [0, 1]], TWO, [0.5, 0.73106]),
    "a lower threshold": ("classes", TWO, 0.3, [[0, -1], [0, -0.5]], TWO, [0.26894, 0.37754]),
    "three classes": ("classes", THREE, 0.5, [[0, 0, 9], [5, 0, 0]], ["c", "a"], [1.2e-4, 6.65e-3]),
    "one logit": ("logit", TWO, 0.5, [[-1], [1]], TWO, [0.26894, 0.73106]),
    "a hazard": ("log_hazard", [], 0.5, [[-1], [1]], [-1, 1], None),
}


@pytest.mark.parametrize("case", MEANINGS)
def test_outputs_become_what_they_mean(case, world):
    task, classes, threshold, outputs, expected, second = MEANINGS[case]
    bundle = load_model(world / "given").bundle
    bundle = replace(
        bundle,
        task=task,
        classes=classes,
        threshold=threshold,
        outputs=len(outputs[0]),
        table=None,
        network={"shape": [1], "dtype": "float32"},
    )
    model = Model(bundle, lambda x: np.array(outputs, dtype=np.float32))
    assert model.predict(np.zeros((2, 1))).tolist() == expected
    if second is None:
        refused(lambda: model.predict_proba(np.zeros((2, 1))), "no probabilities")
    else:
        np.testing.assert_allclose(model.predict_proba(np.zeros((2, 1)))[:, 1], second, atol=1e-5)
