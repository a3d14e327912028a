"""The audit in one run against code that is right, and faults planted in it."""

import numpy as np
import pandas as pd
import pytest
from command import run, success
from dp_accounting import get_sigma_gaussian

from fedpriv.audit.audit import CONFIDENCE
from fedpriv.audit.bounds import guess_bound
from fedpriv.audit.families import GaussianFamily
from fedpriv.audit.guessing import best_number
from fedpriv.audit.one_run import THOROUGH_CANARIES, audit_in_one_run
from fedpriv.audit.orthogonal_canaries import orthogonal_canaries
from fedpriv.errors import ConfigError
from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.testing import experiment

pytestmark = pytest.mark.usefixtures("no_premises")


def audited(*words, canaries=300):
    rows = audit_in_one_run(experiment("accountant=pld", *words), canaries)
    return {(row.observer, row.unit): row for row in rows}


AVG = ["algo=uldp_avg", "algo.noise_multiplier=1", "seed=2"]


@pytest.mark.parametrize("mechanism", ["gaussian", "adaptive"])
def test_bounds_are_positive_and_below_the_certificate(mechanism):
    rows = audited(*AVG, f"mechanism={mechanism}", "rounds=2")
    observers = ("released model", "server", "silo", "cheating server")
    assert set(rows) == {(observer, "user") for observer in observers}
    for row in rows.values():
        assert 0.5 < row.bound.epsilon < row.bound.within < row.certified
        assert row.assumed == "GDP"
        assert 0.7 * row.certified < row.estimate < 1.3 * row.certified


def test_half_of_a_certificate_of_eight_can_be_proven():
    """Scores as distant as the certificate allows, and as many correct guesses as expected."""
    family = GaussianFamily()
    number = best_number(THOROUGH_CANARIES, 8.0, delta=1e-5, confidence=CONFIDENCE, family=family)
    mu = 1 / get_sigma_gaussian(8.0, 1e-5)
    rng = np.random.default_rng(0)
    proven = []
    for _ in range(5):
        coins = rng.random(THOROUGH_CANARIES) < 0.5
        scores = rng.standard_normal(THOROUGH_CANARIES) + mu * coins
        bound = guess_bound(
            scores, coins, n_guesses=number, delta=1e-5, confidence=CONFIDENCE, family=family
        )
        assert bound.epsilon <= bound.within <= bound.provable
        proven.append(bound.audited)
    assert min(proven) > 4.0
    assert max(proven) < 8.0


def test_too_few_canaries_say_what_they_can_prove():
    row = audited(*AVG, "rounds=1", canaries=20)["released model", "user"]
    assert row.powerless
    assert row.bound.audited <= row.bound.provable < row.certified


def test_a_run_without_its_noise_is_caught(monkeypatch):
    words = ["algo=uldp_avg", "algo.noise_multiplier=5", "rounds=2"]
    assert not any(row.alarm for row in audited(*words).values())
    monkeypatch.setattr(Gaussian, "share_deviation", lambda self, shares, sensitivity=1.0: 0.0)
    row = audited(*words)["released model", "user"]
    assert row.alarm
    assert row.bound.evidence.correct_guesses == row.bound.evidence.guesses
    assert row.estimate == np.inf


def test_a_sample_that_is_hidden_is_part_of_the_family():
    rows = audited(
        "algo=uldp_sgd", "algo.noise_multiplier=1", "algo.user_rate=0.5", "rounds=2", canaries=200
    )
    hidden, seen = rows["released model", "user"], rows["server", "user"]
    assert hidden.assumed == "sampled"
    assert 0 < hidden.bound.audited < hidden.certified < seen.certified
    assert 0 < seen.bound.audited < seen.certified


@pytest.mark.parametrize(
    ("words", "units", "adjacency"),
    [
        (
            [
                "algo=uldp_group_2",
                "algo.noise_multiplier=1",
                "algo.local_epochs=1",
                "accountant=rdp",
            ],
            {"record", "user"},
            "add/remove",
        ),
        (["algo=dp_sgd"], {"record"}, "replace"),
        (["algo=cdp_fedavg"], {"record"}, "replace"),
        (["algo=dp_erm", "aggregation=masked"], {"record"}, "replace"),
    ],
)
def test_units_among_records_whose_number_is_public(words, units, adjacency):
    rows = audited(*words, "rounds=1", canaries=100)
    assert {unit for _, unit in rows} == units
    for row in rows.values():
        assert row.adjacency == adjacency
        assert row.bound.audited <= row.certified
        assert row.bound.evidence.canaries <= 100


def test_every_canary_has_a_direction_of_its_own_and_leaves_when_its_coin_says_so():
    exp = experiment("algo=uldp_avg")
    people = orthogonal_canaries(exp, "user", "add/remove", wanted=30, colluding=1)
    assert people.directions @ people.directions.T == pytest.approx(np.eye(30), abs=1e-9)
    coins = np.arange(30) < 10
    _, allocation = people.records(coins)
    there = set(allocation.user[allocation.trains].tolist())
    assert set(range(10)) <= there
    assert not there & set(range(10, 30))
    assert there >= set(range(30, allocation.n_users))  # ordinary users stay


def test_opposite_faces_keep_all_records_and_turn_their_slopes():
    people = orthogonal_canaries(
        experiment("algo=cdp_fedavg"), "record", "replace", wanted=20, colluding=1
    )
    coins = np.arange(20) % 2 == 0
    (one, allocation), (other, _) = (people.records(who) for who in (coins, ~coins))
    own = people.owner >= 0
    assert allocation.trains[own].all()
    assert (one.y[own, 0] == -other.y[own, 0]).all()
    assert (one.y[~own] == other.y[~own]).all()
    assert (one.y[own, 0] != 0).all()


def test_contributions_that_share_one_bound_are_refused():
    with pytest.raises(
        ConfigError, match="--one-run=ULDP-NAIVE: a method that bounds units one by one"
    ):
        audited("algo=uldp_naive", "rounds=1")


def test_the_command_writes_one_schema_for_both_audits(tmp_path):
    words = ["algo=uldp_sgd", "algo.noise_multiplier=5", "rounds=1", "hydra.run.dir=here"]
    done = success("audit", "--one-run", "--canaries=60", *words, cwd=tmp_path)
    assert "certified ┃ claimed ┃ audited ┃ any" in done.stdout  # whole, in 80 columns
    assert "guesses about 60 canaries are right" in done.stdout
    table = pd.read_csv(tmp_path / "here" / "audit.csv")
    assert (table["canaries"] == 60).all()
    assert (table["correct_guesses"] <= table["guesses"]).all()
    assert table["estimate"].notna().all()
    assert table["positives"].isna().all()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--canaries=50"], "--canaries=50: for --one-run only"),
        (["--one-run", "--canaries=5"], "--canaries=5: a number from 10 on"),
        (["--one-run", "--canaries=many"], "--canaries=many: a number from 10 on"),
        (["--one-run", "algo=fedavg"], "--one-run=FedAvg: a method that bounds units one by one"),
    ],
)
def test_a_mistake_is_one_line_here_too(words, line, tmp_path):
    done = run("audit", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert line in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())
