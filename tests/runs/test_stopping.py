"""Early stopping by private scores: what is released, who pays for how many rounds, and runs that
end in between."""

import shutil
from itertools import count

import pandas as pd
import pytest
from fake_runs import read_status
from interrupted import Death, dies_in, watched
from new_ledgers import new_ledger
from public_schema import SCHEMA

import fedpriv
from fedpriv.accountants.filters import Budget
from fedpriv.bundles.bundle import read_bundle
from fedpriv.errors import FedprivError
from fedpriv.ledgers.data_ledger import DataLedger
from fedpriv.ledgers.entries import Population
from fedpriv.projects.patients import csv_text
from fedpriv.runs.checkpoint import Checkpoint
from fedpriv.runs.epsilon_command import main as epsilon
from fedpriv.runs.folder import CHECKPOINT

WORDS = (
    *("rounds=8", "algo.local_epochs=1", "algo.noise_multiplier=5", "accountant=rdp"),
    *("preset.n_users=8", "evaluation=none"),
)
STOP = ("stop.target=20", "stop.every=2", "stop.patience=1", "stop.metric=loss")


def scores(folder):
    """The private loss after each evaluated round."""
    table = pd.read_csv(folder / "stopping" / "statistics.csv")
    table = table[table.statistic == "loss"]
    return {int(name.split()[1]): value for name, value in zip(table.column, table.value)}


def last(folder):
    """The last rows of epsilon.csv: rounds that they cover, and the released model's epsilon."""
    table = pd.read_csv(folder / "epsilon.csv")
    table = table[(table.observer == "released model") & (table["round"] == table["round"].max())]
    return table["round"].iloc[-1], table.certified.min()


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stopped") / "run"
    fedpriv.run(*WORDS, *STOP, folder=folder)
    return folder


def test_a_run_ends_when_scores_have_not_improved_and_releases_the_best(stopped, tmp_path):
    found = scores(stopped)
    best = min(found, key=found.get)
    assert max(found) == best + 2 < 8
    assert read_status(stopped)["reason"] == f"no evaluation since round {best} was better"
    fedpriv.run(*WORDS, f"rounds={best}", folder=tmp_path / "best")
    for name in ("model.safetensors", "bundle/model.safetensors"):
        assert (stopped / name).read_bytes() == (tmp_path / "best" / name).read_bytes()
    assert f"the model of round {best} is released" in (stopped / "run.log").read_text()
    told = read_bundle(stopped / "bundle").metrics["loss"]
    assert told.startswith(f"{found[best]:.4g} (charged, of test persons, 95 % from ")


def test_its_epsilons_are_those_of_all_planned_rounds(stopped, tmp_path):
    fedpriv.run(*WORDS, folder=tmp_path / "whole")
    assert last(stopped) == last(tmp_path / "whole")
    assert read_status(stopped)["epsilon"] == read_status(tmp_path / "whole")["epsilon"]
    rounds, epsilon = last(stopped / "stopping")
    assert rounds == 4
    assert 19 < epsilon <= 20
    units = {row["unit"]: row["round"] for row in read_bundle(stopped / "bundle").certificate}
    assert units == {"user": "8", "test person": "4"}
    assert pd.read_csv(stopped / "metrics.csv")["round"].max() < 8


def test_epsilon_shows_what_test_persons_pay(stopped, tmp_path):
    sweep = ("-m", *WORDS, *STOP, "stop.target=20,10", "--out", str(tmp_path / "both.csv"))
    for words in (sweep, (f"resume={stopped}", "--out", str(tmp_path / "one.csv"))):
        epsilon(list(words))
    both, one = pd.read_csv(tmp_path / "both.csv"), pd.read_csv(tmp_path / "one.csv")
    one = one[(one.unit == "test person") & (one.observer == "released model")]
    rounds, paid = last(stopped / "stopping")
    assert ({*one["round"]}, one.certified.min()) == ({rounds}, paid)
    assert both["test persons"][0] == paid
    assert 9 < both["test persons"][1] <= 10


@pytest.mark.parametrize("round", [1, 2, 4])
def test_a_run_that_dies_goes_on_to_the_same_end(round, stopped, tmp_path):
    """Also where an evaluation dies: its rounds are those of a run."""
    with pytest.raises(Death), dies_in(round, sums=[]):
        fedpriv.run(*WORDS, *STOP, folder=tmp_path / "run")
    fedpriv.run(f"resume={tmp_path / 'run'}")
    for name in ("model.safetensors", "epsilon.csv", "stopping/statistics.csv"):
        assert (stopped / name).read_bytes() == (tmp_path / "run" / name).read_bytes()


def test_a_score_names_its_model_also_in_a_copy_whose_evaluations_are_older(tmp_path):
    run, older = tmp_path / "run", tmp_path / "older"
    with pytest.raises(Death), dies_in(3, sums=[]):
        fedpriv.run(*WORDS, *STOP, "stop.patience=9", folder=run)
    shutil.copytree(run / "stopping", older)
    with pytest.raises(Death), dies_in(7, sums=[]):
        fedpriv.run(f"resume={run}")
    shutil.rmtree(run / "stopping")
    older.rename(run / "stopping")
    fedpriv.run(f"resume={run}")
    found = scores(run)
    assert [*found] == [2, 6, 8]
    best = min(found, key=found.get)
    fedpriv.run(*WORDS, f"rounds={best}", folder=tmp_path / "best")
    models = [(one / "model.safetensors").read_bytes() for one in (run, tmp_path / "best")]
    assert models[0] == models[1]


def test_no_training_goes_on_before_its_score_is_on_disk(tmp_path):
    place, kept = tmp_path / "run" / "stopping" / CHECKPOINT, {}

    def look(number):
        kept[number] = Checkpoint.read(place).round

    with watched(look, lambda round: None):
        fedpriv.run(*WORDS, *STOP, "stop.patience=9", "rounds=6", folder=tmp_path / "run")
    assert [kept[number] for number in (4, 5, 6)] == [1, 2, 2]  # there are three evaluations


def test_a_copy_without_its_evaluations_is_refused(tmp_path):
    """What they have cost is unknown."""
    with pytest.raises(Death), dies_in(3, sums=[]):
        fedpriv.run(*WORDS, *STOP, folder=tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "stopping")
    with pytest.raises(FedprivError, match=r"stopping/rounds_begun\.csv: No such file"):
        fedpriv.run(f"resume={tmp_path / 'run'}")


@pytest.mark.parametrize(
    ("resumed", "line"),
    [
        ((".", "rounds=6"), "config.yaml differs in rounds"),
        ((".", "rounds=12"), "config.yaml differs in rounds"),
        (("stopping",), "evaluations of the run above; continue with resume="),
    ],
)
def test_its_planned_rounds_stay_and_its_evaluations_go_on_with_it(resumed, line, stopped):
    """Fewer planned rounds would lower the epsilon of rounds that were planned."""
    before = {path: path.read_bytes() for path in stopped.rglob("*") if path.is_file()}
    with pytest.raises(FedprivError) as refusal:
        fedpriv.run(f"resume={stopped / resumed[0]}", *resumed[1:])
    assert line in str(refusal.value)
    assert before == {path: path.read_bytes() for path in stopped.rglob("*") if path.is_file()}


def test_who_interrupts_a_score_is_told_to_resume_the_run(tmp_path):
    run, messages = tmp_path / "stopping", count(1)  # the name of the folder of scores

    def interrupt_the_first_score(round):
        if next(messages) == 3:  # two rounds of the training come before it
            raise KeyboardInterrupt

    with watched(interrupt_the_first_score, lambda round: None), pytest.raises(KeyboardInterrupt):
        fedpriv.run(*WORDS, *STOP, folder=run)
    for folder in (run, run / "stopping"):
        assert read_status(folder)["reason"] == f"continue with resume={run}"


def test_a_ledger_is_charged_the_rounds_that_were_begun(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = new_ledger(tmp_path / "ledger.jsonl", "train", "tests", epsilon=30.0, unit="user")
    paid = (f"ledger={path}", "population=train", "stop.population=tests", "randomness=system")
    fedpriv.run(*WORDS, *STOP, *paid, "algo.global_lr=100", folder=tmp_path / "run")
    runs = {run.population: run for run in DataLedger.seen(path).runs.values()}
    number = len(scores(tmp_path / "run"))
    assert runs["train"].texts.total() == 2 * number
    assert runs["tests"].texts.total() == number
    assert all(run.settled for run in runs.values())


def test_nothing_is_left_uncovered(tmp_path):
    (tmp_path / "patients.csv").write_text(csv_text())
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    table = (
        *("data=table", f"data.path={tmp_path / 'patients.csv'}", "data.outside=accept"),
        *(f"data.schema={tmp_path / 'schema.yaml'}", "allocator=by_user", "allocator.n_silos=2"),
    )
    needed = ("randomness=system", "private=all", "rounds=4")
    words = [word for word in WORDS if not word.startswith("preset")]
    fedpriv.run(*table, *words, *STOP, *needed, folder=tmp_path / "run")
    bundle = read_bundle(tmp_path / "run" / "bundle")
    assert (bundle.valid, bundle.not_covered) == (True, [])
    assert {row["unit"] for row in bundle.certificate} == {"user", "test person"}
    assert bundle.labels["metrics"] == "charged"
    assert read_status(tmp_path / "run" / "stopping")["not_covered"] == []


@pytest.mark.parametrize("epsilon", [{"train": 30.0, "tests": 1.0}, {"train": 1.0, "tests": 30.0}])
def test_who_cannot_pay_is_told_before_anything_is_written(epsilon, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = tmp_path / "ledger.jsonl"
    people = [Population(name, "user", Budget(own, 1e-5)) for name, own in epsilon.items()]
    DataLedger.begin(path, "clinic", people)
    paid = (f"ledger={path}", "population=train", "stop.population=tests", "randomness=system")
    with pytest.raises(FedprivError, match="epsilon 1 of 1 is left"):
        fedpriv.run(*WORDS, *STOP, *paid, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert not DataLedger.seen(path).runs


REFUSED = {
    "exact metrics": (("evaluation=exact",), "evaluation=exact: none, since stop.target evaluates"),
    "no round": (("stop.every=9",), "stop.every=9: 1 to 8, the number of rounds"),
    "no patience": (("stop.patience=0",), "stop.patience=0: a number of evaluations"),
    "another score": (("stop.metric=f1",), "stop.metric=f1: loss, accuracy, auc"),
    "nobody pays": (("stop.population=tests",), "stop.population=tests: the population of the"),
    "a budget": (("accountant.budget=1",), "accountant.budget=1.0: null: early stopping costs all"),
    "no effect": (("stop.target=null",), "stop.target=null: the epsilon that all evaluations may"),
}


@pytest.mark.parametrize(("words", "line"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_refused_before_anything_is_written(words, line, tmp_path):
    given = {word.partition("=")[0]: word for word in (*WORDS, *STOP, *words)}
    with pytest.raises(FedprivError) as refusal:
        fedpriv.run(*given.values(), folder=tmp_path / "run")
    assert line in str(refusal.value)
    assert not (tmp_path / "run").exists()
