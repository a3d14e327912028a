"""`fedpriv audit analyse` and `fedpriv audit evaluate`: the very run that the command would make,
attacked. Trials are counted, not timed.
"""

import json

import numpy as np
import pandas as pd
import pytest
from command import refusal, run
from new_ledgers import new_ledger

import fedpriv
from fedpriv.algorithms.sums_of_parts import SumsOfParts
from fedpriv.audit import audit as audits
from fedpriv.audit import command
from fedpriv.audit.audit import Effort
from fedpriv.ledgers.data_ledger import DataLedger
from fedpriv.mechanisms.base import clipped_rows
from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.mechanisms.laplace import Laplace
from fedpriv.projects.patients import csv_text
from fedpriv.rounds.contributors import HomeWeighting

MEAN = ("analyse", "data.path=visits.csv", "data.user=patient", "bounds.age=0,110", "target=1")
MEAN += ("statistics=mean", "seed=3", "randomness=simulation")
MORE = (*MEAN, "statistics=count,mean,histogram", "bins=4", "categories.sex=f,m", "target=3")
GAUSSIAN, LAPLACE = ("mechanism=gaussian", "target=3"), ("mechanism=laplace",)
SILOS = ("allocator=by_user", "allocator.n_silos=2", "allocator.local_test=0")
EVALUATE = ("evaluate", "run", "target=3", "randomness=simulation")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a table, and a run with a model."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "visits.csv").write_text(csv_text(patients=40))
    small = ("rounds=1", "preset.n_users=8", "algo.local_epochs=1", "evaluation=none")
    fedpriv.run(*small, folder=folder / "run")
    return folder


@pytest.fixture
def _short(monkeypatch):
    monkeypatch.setattr(command, "QUICK", Effort(1e9, 60))
    monkeypatch.setattr(audits, "NOISE_VALUES", 4)
    monkeypatch.setattr(audits, "FILE_SHARE", 0.0)


def half_of_the_noise(patch):
    for mechanism in (Laplace, Gaussian):
        share = mechanism.noise_share

        def half(self, *given, share=share, **more):
            return share(self, *given, **more) / 2

        patch.setattr(mechanism, "noise_share", half)


def a_bound_in_l2_for_noise_in_l1(patch):
    patch.setattr(SumsOfParts, "share", lambda self, mechanism: len(self.placed) ** -0.5)
    patch.setattr(Laplace, "bound", lambda self, vectors: clipped_rows(vectors, self.clip))


def a_user_counts_twice(patch):
    patch.setattr(
        HomeWeighting, "own_weights", lambda self, silo, shape: np.broadcast_to(2.0, shape[1])
    )


def a_missing_value_becomes_the_mean_of_all(patch):
    values = SumsOfParts.values

    def filled(self, silo, *given):
        x, everybody = values(self, silo, *given), silo.data.x.numpy()
        return np.where(np.isnan(x), np.nan_to_num(everybody).mean(axis=0), x)

    patch.setattr(SumsOfParts, "values", filled)


CASES = [  # words, what is planted, trials after which the attack's bound refutes by itself
    ((*MEAN, "target=3"), None, None),
    ((*MORE, *SILOS, *GAUSSIAN), None, None),
    (EVALUATE, None, None),
    (MEAN, half_of_the_noise, 300),
    ((*MEAN, *GAUSSIAN), half_of_the_noise, 120),
    ((*MORE, *LAPLACE), a_bound_in_l2_for_noise_in_l1, None),
    (MEAN, a_user_counts_twice, None),
    ((*MEAN, "bounds.glucose=0,50", *GAUSSIAN), a_missing_value_becomes_the_mean_of_all, None),
]


@pytest.mark.usefixtures("_short")
@pytest.mark.parametrize(("words", "plant", "trials"), CASES)
def test_a_planted_fault_is_found_and_right_code_is_not(
    words, plant, trials, folder, monkeypatch, request
):
    if plant is not None:
        plant(monkeypatch)
    if trials is not None:
        request.getfixturevalue("no_premises")
        monkeypatch.setattr(command, "QUICK", Effort(1e9, trials))
    done = run("audit", "--quick", *words, "hydra.run.dir=found", cwd=folder)
    row = pd.read_csv(folder / "found" / "audit.csv").set_index("observer").loc["released model"]
    target = 3 if "target=3" in words else 1
    assert 0.96 * target < row["certified"] <= target
    assert done.returncode == (plant is not None), done.stderr
    assert (row["audited"] > row["certified"]) == (trials is not None)
    assert row["any_mechanism"] < row["provable"]


@pytest.mark.usefixtures("_short")
def test_a_ledger_chooses_the_noise_and_is_not_charged(folder, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    new_ledger(folder / "l.jsonl", "patients", epsilon=9.0, unit="user")
    words = (*MEAN, "randomness=system", "ledger=l.jsonl", "population=patients")
    # So few trials with noise of the system raise an alarm by chance, once in hundreds of runs.
    run("audit", "--quick", *words, "hydra.run.dir=kept", cwd=folder)
    [job] = json.loads((folder / "kept" / "audit.json").read_text())["jobs"]
    assert job["settings"]["mechanism"]["_target_"].endswith("gaussian.Gaussian")
    assert DataLedger.seen(folder / "l.jsonl").spent("patients") == 0


REFUSED = [
    ((*MEAN, "--one-run"), "--one-run=statistics: one that releases a model"),
    ((*MEAN, "--colluding", "2"), "--colluding=2: at most 1"),
    (MEAN[:4], "target="),
    ((*MEAN, "hydra.run.dir=visits.csv"), "visits.csv: a folder"),
    (("evaluate",), "expected a run's folder"),
    (("evaluate", "visits.csv", "target=1"), "run=visits.csv: the folder of a run"),
]


@pytest.mark.parametrize(("words", "line"), REFUSED)
def test_a_mistake_is_one_line(words, line, folder):
    assert line in refusal("audit", *words, cwd=folder)
