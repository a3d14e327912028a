"""utility.csv: the model beside a trivial one and one without privacy, by part."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import mean_absolute_error, roc_auc_score

import fedpriv
from fedpriv.errors import ConfigError, FedprivError
from fedpriv.projects.patients import COLUMNS, visits
from fedpriv.runtime import prepare
from fedpriv.runtime.utility import utility_rows
from fedpriv.testing import experiment

WORDS = ("data=table", "data.user=patient", "data.silo=hospital", "rounds=1", "quiet=true")
PATIENTS = pd.DataFrame(visits(patients=200), columns=COLUMNS)
RNG = np.random.default_rng(0)
PATIENTS["event"] = RNG.integers(0, 2, len(PATIENTS))
PATIENTS["months"] = 200 * RNG.exponential(np.exp(-0.1 * PATIENTS["age"].astype(float))) + 0.1


def utility(folder, *words):
    done = fedpriv.run(*WORDS, *words, frame=PATIENTS, folder=folder)
    table = pd.read_csv(folder / "utility.csv")
    return done, table.set_index(["part", "metric"])


@pytest.fixture
def table(tmp_path):
    PATIENTS.to_csv(tmp_path / "visits.csv", index=False)
    return lambda *words: prepare(experiment(*WORDS, f"data.path={tmp_path}/visits.csv", *words))


def records(prepared):
    x, y = (np.concatenate([getattr(silo, n).numpy() for silo in prepared.silo_data]) for n in "xy")
    return x, y, prepared.evaluation.test


def rows_of(prepared, **options):
    params = prepared.algo.evaluated(prepared.state, prepared.standing.silo_states)
    found = utility_rows(params, prepared.evaluation, references=True, **options)
    return pd.DataFrame(found).set_index(["part", "metric"])


def test_classes(table):
    with table("data.label=died", "data.drop=[stay,event,months]") as prepared:
        x, y, test = records(prepared)
        found = rows_of(prepared).loc["all"]
    p = LogisticRegression(max_iter=1000).fit(x, y).predict_proba(test.x)[:, 1]
    assert found["without_privacy"]["auc"] == pytest.approx(roc_auc_score(test.y, p), abs=1e-6)
    share = y.mean()
    assert found["trivial"]["auc"] == 0.5
    assert found["trivial"]["brier"] == pytest.approx(((share - test.y) ** 2).mean(), rel=1e-5)
    assert found["trivial"]["accuracy"] == pytest.approx(max(test.y.mean(), 1 - test.y.mean()))


def test_numbers(table):
    with table("data.label=stay", "data.drop=[died,event,months]") as prepared:
        x, y, test = records(prepared)
        unit = PATIENTS["stay"].astype(float).std(ddof=0)
        found = rows_of(prepared).loc["all"]
    fitted = Ridge().fit(x, y).predict(test.x)
    error = unit * mean_absolute_error(test.y, fitted)
    assert found["without_privacy"]["mae"] == pytest.approx(error, rel=1e-5)
    error = unit * np.sqrt(((y.mean() - test.y) ** 2).mean())
    assert found["trivial"]["rmse"] == pytest.approx(error, rel=1e-5)
    assert found["trivial"]["r2"] < 0.01


def test_hazards(table):
    with table("data.label=event", "data.time=months", "data.drop=[died,stay]") as prepared:
        found = rows_of(prepared).loc["all"]
        _, y, test = records(prepared)
        rate = y[:, 0].sum() / y[:, 1].sum()
    hazard = (rate * test.y[:, 1] - np.log(rate) * test.y[:, 0]).mean()
    assert found["trivial"]["loss"] == pytest.approx(hazard, rel=1e-5)
    assert found["trivial"]["c_index"] == 0.5
    assert found["without_privacy"]["c_index"] > 0.7
    assert found["without_privacy"]["loss"] < found["trivial"]["loss"]


def test_silos_and_groups_have_rows_of_their_own(tmp_path):
    words = ("data.label=died", "data.drop=[stay,event,months,sex]", "data.groups=[sex]")
    done, found = utility(tmp_path / "run", *words)
    assert found["model"]["all"]["auc"] == pytest.approx(done.metrics["auc"].iloc[-1])
    records = found["records"].xs("auc", level="metric")
    hospitals = records[records.index.str.startswith("silo ")]
    assert set(hospitals.index) == {f"silo {name}" for name in PATIENTS["hospital"].unique()}
    assert records["sex f"] + records["sex m"] == records["all"] == hospitals.sum()
    hits = found["model"].xs("true_positives", level="metric")
    assert hits["sex f"] + hits["sex m"] == hits["all"]


@pytest.mark.parametrize("column", ["patient", "nobody"])
def test_groups_need_a_column_of_few_texts(tmp_path, column):
    with pytest.raises(ConfigError, match=rf"data.groups={column}: columns of .* at most 50"):
        utility(tmp_path / "run", "data.label=died", f"data.groups=[{column}]")


def test_references_can_be_left_out(tmp_path):
    _, found = utility(tmp_path / "run", "data.label=died", "references=false")
    assert found[["trivial", "without_privacy"]].isna().all(axis=None)
    assert found["model"]["all"].notna().all()


def test_models_of_silos_score_the_records_of_their_own_silo(tmp_path):
    """The metric of a round is the mean over silos, by their numbers of records."""
    done, found = utility(tmp_path / "run", "data.label=died", "algo=local_only")
    silos = found.xs("accuracy", level="metric").drop("all")
    mean = np.average(silos["model"], weights=silos["records"])
    assert done.metrics["accuracy"].iloc[-1] == pytest.approx(mean)
    assert found["model"]["all"]["accuracy"] == pytest.approx(mean)
    with pytest.raises(FedprivError, match="no network to predict with: each silo keeps its own"):
        fedpriv.load(tmp_path / "run" / "bundle")


NO_SILO = {
    "any": ["data=breast_cancer"],
    "of a person without training records": [
        *("data=table", "data.user=patient", "data.label=died", "data.drop=[hospital]"),
        *("data.split=record", "allocator=by_user", "allocator.n_silos=3"),
    ],
}


@pytest.mark.parametrize("words", NO_SILO.values(), ids=NO_SILO)
def test_models_of_silos_are_in_no_table_where_a_record_has_no_silo(words, tmp_path):
    words = [*words, "algo=local_only", "rounds=1", "quiet=true"]
    fedpriv.run(*words, frame=PATIENTS, folder=tmp_path / "run")
    assert not (tmp_path / "run" / "utility.csv").exists()
