"""`fedpriv analyse`: what an analysis leaves, and a schema whose scales it has released."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from command import refusal, run, success
from public_schema import SCHEMA

import fedpriv
from fedpriv.projects.patients import csv_text
from fedpriv.reports.finished_runs import read_run
from fedpriv.runs.tables import STATISTICS

SCALING = "splits, scaling and sub-sampling of the data set are not accounted"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a table, its schema, and an analysis by it."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "visits.csv").write_text(csv_text(patients=120))
    (folder / "schema.yaml").write_text(SCHEMA)
    words = ("data=table", "data.path=visits.csv", "data.schema=schema.yaml", "statistics=mean")
    done = success("analyse", *words, "target=3", "hydra.run.dir=found", cwd=folder)
    assert "Schema with released scales" in done.stdout
    return folder


def test_an_analysis_leaves_its_table_and_no_model(folder):
    left = {path.name for path in (folder / "found").iterdir()}
    assert {STATISTICS, "epsilon.csv", "status.json", "schema.yaml"} <= left
    assert not {"metrics.csv", "model.safetensors", "bundle", "utility.csv"} & left
    found = pd.read_csv(folder / "found" / STATISTICS)
    assert found["column"].tolist() == ["age", "age", "pressure", "pressure"]
    assert found["statistic"].tolist() == ["mean", "deviation"] * 2
    assert ((found["low"] <= found["value"]) & (found["value"] <= found["high"])).all()
    config = (folder / "found" / "config.yaml").read_text()
    assert "fedpriv.mechanisms.laplace.Laplace" in config  # of two means
    status = json.loads((folder / "found" / "status.json").read_text())
    assert status["dp_valid"] is True
    assert status["epsilon"] <= 3
    assert status["labels"][STATISTICS]["value"] == "charged"
    assert SCALING not in status["not_covered"]
    lines: list[str] = []
    assert read_run(folder / "found", lines.append) is None
    assert lines == [f"left out: {folder / 'found'} (an analysis)"]


def test_released_scales_scale_and_say_what_they_cost(folder):
    words = ("data=table", "data.path=visits.csv", "rounds=1", "algo.local_epochs=1")
    words += ("allocator=by_user", "allocator.n_silos=2", "data.outside=accept", "accountant=rdp")
    trained = {}
    for name, schema in (("scaled", "found/schema.yaml"), ("plain", "schema.yaml")):
        success(*words, f"data.schema={schema}", f"hydra.run.dir={name}", cwd=folder)
        trained[name] = (folder / name / "metrics.csv").read_text()
        status = json.loads((folder / name / "status.json").read_text())
        assert SCALING not in status["not_covered"]
        epsilons = pd.read_csv(folder / name / "epsilon.csv")
        assert (epsilons["certified"] < 100).any()
    assert trained["scaled"] != trained["plain"]
    assumed = (folder / "scaled" / "assumptions.csv").read_text()
    assert "scales were released by an analysis, which has cost epsilon 2.99" in assumed
    found = pd.read_csv(folder / "found" / STATISTICS)["value"].tolist()
    shown = run("data", "data=table", "data.path=visits.csv", "allocator=by_user",
                "allocator.n_silos=2", "data.schema=found/schema.yaml", cwd=folder)  # fmt: skip
    assert f"released mean {found[0]:g} and deviation {found[1]:g}" in shown.stdout


def test_python_gives_the_table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    numbers = list(map(float, range(50)))
    frame = pd.DataFrame({"who": [f"p{number:g}" for number in numbers], "x y": numbers})
    words = ("data.user=who", "bounds.x y=0,50", "statistics=count,mean", "target=100")
    found = fedpriv.analyse(*words, frame=frame, folder=tmp_path / "here").set_index("statistic")
    assert found.loc["count", "value"] == pytest.approx(50, abs=3)
    assert found.loc["mean", "value"] == pytest.approx(24.5, abs=2)


REFUSED = [
    (["data.schema=draft.yaml"], "public: true"),
    (["-m", "seed=0,1"], "expected key=value"),
    (["target=1,2"], "several values need -m"),
    (["hydra.mode=MULTIRUN", "seed=0,1"], "fedpriv analyse runs once; name one value of each key"),
    ([], "columns=: names of columns, with bounds.NAME or categories.NAME"),
]


@pytest.mark.parametrize(("words", "line"), REFUSED)
def test_refused_in_one_line(words, line, tmp_path):
    (tmp_path / "draft.yaml").write_text(SCHEMA.replace("public: true", "public: false"))
    target = () if any("target" in word for word in words) else ("target=1",)
    bounds = () if not words else ("bounds.age=0,110",)
    told = refusal("analyse", "data.path=v.csv", "data.user=patient", *bounds, *target, *words,
               cwd=tmp_path)  # fmt: skip
    assert line in told
    assert not (tmp_path / "outputs").exists()
