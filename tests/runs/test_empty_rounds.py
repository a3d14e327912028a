"""Rounds that learn nothing are seen."""

import json
import re

import pytest
from command import run, success
from fake_runs import read_status

from fedpriv.runs.folder import RunFolder

BASE = ("data=breast_cancer", "preset.n_users=8", "preset.local_epochs=1", "preset.silo_epochs=1")


def trained(tmp_path, *words, name="run"):
    done = success(*BASE, *words, f"hydra.run.dir={tmp_path / name}", cwd=tmp_path)
    return tmp_path / name, done


@pytest.mark.parametrize("method", ["uldp_avg", "fedavg", "local_only", "secured_fl"])
def test_updates_that_are_all_dropped_are_marked(method, tmp_path):
    folder, done = trained(tmp_path, f"algo={method}", "algo.local_lr=1e300", "rounds=2")
    status = read_status(folder)
    assert list(status["empty_rounds"]) == ["1", "2"]
    warning = "2 of 2 rounds learned nothing; round 1: no contribution was finite"
    assert f"WARNING {warning}" in (folder / "run.log").read_text()
    assert "round 1 learned nothing" in done.stderr


@pytest.mark.parametrize(("rate", "reason"), [(1, None), (1e-9, "no records took part")])
def test_a_round_without_sampled_users_is_marked(rate, reason, tmp_path):
    folder, _ = trained(tmp_path, "algo=uldp_avg", f"algo.user_rate={rate}", "rounds=2")
    assert read_status(folder)["empty_rounds"].get("1") == reason


def contributions(folder):
    return [int(row["contributions"]) for row in RunFolder(folder).tables.rows("metrics.csv")[1:]]


@pytest.mark.parametrize("aggregation", ["plain", "shuffle"])
def test_one_pass_ends_where_the_records_do(aggregation, tmp_path):
    words = ("algo=prox_sgd", f"aggregation={aggregation}", "algo.rounds=3")
    words += ("mechanism=binomial",) if aggregation == "shuffle" else ()
    folder, _ = trained(tmp_path, *words, "rounds=9")
    batches = contributions(folder)
    assert len(set(batches)) == 1
    assert len(batches) < 9
    status = read_status(folder)
    assert status["state"] == "done"
    assert status["reason"] == f"round {len(batches) + 1} has no records left: one pass is over"
    assert not status["empty_rounds"]


def test_one_pass_over_the_records_that_a_user_keeps_has_no_more_rounds_than_they_allow(tmp_path):
    words = (*BASE, "algo=prox_sgd", "algo.records_per_user=3", "preset.n_users=20", "rounds=30")
    done = run(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert re.search(r"rounds=30: at most \d+, one pass over the smallest silo", done.stderr)


def test_a_resumed_pass_ends_where_the_records_do(tmp_path):
    folder, _ = trained(tmp_path, "algo=prox_sgd", "rounds=3")
    epsilons = (folder / "epsilon.csv").read_text().splitlines()[-3:]
    success(f"resume={folder}", "rounds=6", cwd=tmp_path)
    assert "one pass is over" in read_status(folder)["reason"]
    assert len(contributions(folder)) == 3
    assert (folder / "epsilon.csv").read_text().splitlines()[-3:] == epsilons
    assert json.loads((folder / "status.json").read_text())["state"] == "done"
