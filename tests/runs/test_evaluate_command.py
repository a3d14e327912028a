"""`fedpriv evaluate`: what it leaves, whom it charges, and a training that tells no test metric."""

from __future__ import annotations

import json
import re

import pandas as pd
import pytest
from command import run, success
from interrupted import Death, dies_in
from new_ledgers import new_ledger
from omegaconf import OmegaConf

import fedpriv
from fedpriv.errors import FedprivError
from fedpriv.ledgers.data_ledger import DataLedger
from fedpriv.runs.evaluate_command import RunEvaluation, evaluate
from fedpriv.runs.run_or_resume import resume
from fedpriv.runs.tables import STATISTICS
from fedpriv.settings.compose import CommandLine, compose_jobs
from fedpriv.settings.experiment import resolved
from fedpriv.settings.words import conf_dir

WORDS = ("rounds=2", "preset.n_users=8", "algo.local_epochs=1", "accountant=rdp")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a run that tells nothing of its test records."""
    folder = tmp_path_factory.mktemp("study") / "run"
    fedpriv.run(*WORDS, "evaluation=none", folder=folder)
    return folder


def test_a_training_may_tell_no_number_of_a_test_record(trained, tmp_path):
    fedpriv.run(*WORDS, folder=tmp_path / "exact")
    for name in ("model.safetensors", "epsilon.csv"):
        assert (trained / name).read_bytes() == (tmp_path / "exact" / name).read_bytes()
    told, untold = (pd.read_csv(path / "metrics.csv") for path in (tmp_path / "exact", trained))
    assert set(told) - set(untold) == {"accuracy", "error", "balanced_accuracy", "loss"} | {
        name for name in told if name.startswith("local_")
    }
    assert not (trained / "utility.csv").exists()
    assert (tmp_path / "exact" / "utility.csv").exists()
    assert json.loads((trained / "bundle" / "bundle.json").read_text())["metrics"] == {}
    row = run("table", str(trained), cwd=tmp_path)
    assert "no test metric (evaluation=none)" in row.stdout
    assert not re.search("nan|accuracy is", row.stdout)


def test_an_evaluation_leaves_its_table_and_charges_the_population_that_is_named(
    trained, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path, folder = tmp_path / "ledger.jsonl", tmp_path / "found"
    new_ledger(path, "patients", "tests", epsilon=2.0, unit="user")
    words = ("target=1", f"ledger={path}", "population=tests", f"hydra.run.dir={folder}")
    evaluate([str(trained), *words], quiet=True)
    balance = DataLedger.seen(path)
    assert balance.spent("patients") == 0
    assert 0.9 < balance.spent("tests") < 1.1
    left = {one.name for one in folder.iterdir()}
    assert {STATISTICS, "epsilon.csv"} <= left
    assert not {"metrics.csv", "model.safetensors", "bundle", "utility.csv"} & left
    assert "gaussian.Gaussian" in (folder / "config.yaml").read_text()  # as ledgers add up
    status = json.loads((folder / "status.json").read_text())
    assert status["dp_valid"] is True
    assert status["epsilon"] <= 1
    assert "a user is a test person" in (folder / "assumptions.csv").read_text()
    with pytest.raises(FedprivError, match="ledger"):
        evaluate([str(trained), *words[:3], "target=1.9", f"hydra.run.dir={tmp_path / 'more'}"])
    assert not (tmp_path / "more").exists()


def test_delta_is_of_who_evaluates(tmp_path):
    """The run may come from somebody else, who chose another one."""
    folder = stored(tmp_path / "run", "accountant.delta=0.1")
    asked = [
        RunEvaluation.parse([str(folder), "target=1", *more])
        for more in ((), ("accountant.delta=1e-6",))
    ]
    assert [one.experiment.accountant.delta for one in asked] == [1e-5, 1e-6]


def test_an_evaluation_resumes_with_the_same_model_only(trained, tmp_path):
    folder = tmp_path / "found"
    copy = tmp_path / "run"
    copy.mkdir()
    for name in ("config.yaml", "model.safetensors"):
        (copy / name).write_bytes((trained / name).read_bytes())
    words = [str(copy), "target=1", "randomness=simulation"]
    whole = evaluate([*words, f"hydra.run.dir={tmp_path / 'whole'}"], quiet=True)
    with dies_in(1, sums=[]), pytest.raises(Death):
        evaluate([*words, f"hydra.run.dir={folder}"], quiet=True)
    assert not (folder / STATISTICS).exists()
    line = CommandLine.parse([f"resume={folder}"])
    resume(line, str(folder), quiet=True)
    assert (folder / STATISTICS).read_bytes() == (whole / STATISTICS).read_bytes()
    (copy / "model.safetensors").write_bytes(b"another")
    with pytest.raises(FedprivError, match="it has changed since the evaluation began"):
        resume(line, str(folder), quiet=True)


def stored(folder, *words):
    """A folder with the settings of a run that was never begun."""
    [config] = compose_jobs(CommandLine.parse(list(words)), conf_dir())
    folder.mkdir()
    OmegaConf.save(OmegaConf.create(resolved(config)), folder / "config.yaml")
    (folder / "model.safetensors").write_bytes(b"")
    return folder


REFUSED = [
    ((), (), "target=: the epsilon that the evaluation may cost"),
    (("algo=local_only",), ("target=1",), "a run that releases one model"),
    (("data=tcga_brca",), ("target=1",), "a task whose loss compares no records"),
    ((), ("target=1", "data.seed=3"), "data.seed=3: left out: it follows from the run"),
    ((), ("target=1", "seed=3"), "seed=3: left out: it follows from the run"),
    ((), ("target=1,2",), "several values need -m"),
    ((), ("target=1",), "model.safetensors"),
]


@pytest.mark.parametrize(("trained_by", "words", "line"), REFUSED)
def test_refused_in_one_line(trained_by, words, line, tmp_path):
    folder = stored(tmp_path / "run", *trained_by)
    with pytest.raises(FedprivError) as refusal:
        evaluate([str(folder), *words, f"hydra.run.dir={tmp_path / 'found'}"], quiet=True)
    assert line in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "found").exists()


def test_the_command_line(trained, tmp_path):
    done = run("evaluate", "nowhere", "target=1", cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    done = success("evaluate", str(trained), "target=1", cwd=tmp_path)
    assert "accuracy" in done.stdout
    assert [*tmp_path.glob("outputs/evaluations/*/statistics.csv")]
