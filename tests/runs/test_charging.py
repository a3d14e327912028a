"""Runs that a ledger pays for: none is uncharged, and no round is charged twice."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import yaml
from command import refusal, run, success
from dp_accounting import get_epsilon_gaussian
from interrupted import Death, watched
from new_ledgers import new_ledger
from runs import experiment

from fedpriv.errors import FedprivError
from fedpriv.ledgers.data_ledger import DataLedger
from fedpriv.runs.charging import LEDGER
from fedpriv.runs.journal import attempts
from fedpriv.runs.loop import train
from fedpriv.runs.tables import Tables
from fedpriv.runtime import prepare

WORDS = ("algo=cdp_fedavg", "randomness=system", "accountant=rdp", "references=false", "rounds=4")
"""Its certificate is of records, with Gaussian noise and no sample."""
record_ledger = partial(new_ledger, epsilon=50.0, unit="record")


@pytest.fixture(autouse=True)
def _counters(tmp_path, monkeypatch):
    """Counters of this test alone."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def path(tmp_path):
    return record_ledger(tmp_path / "clinic" / "ledger.jsonl")


def charged(path, *words):
    return experiment(*WORDS, f"ledger={path}", *words)


def trained(folder, exp, *, resume=False, on_round=None):
    config = yaml.safe_dump({"rounds": exp.options.rounds})
    train(exp, config, folder, resume, quiet=True, on_round=on_round)


def rounds(path):
    """How many rounds stay charged, by the process: each is one query."""
    return [run.texts.total() for run in DataLedger.seen(path).runs.values()]


def test_a_run_is_charged_what_its_rounds_cost(path, tmp_path):
    exp = charged(path)
    trained(tmp_path / "run", exp)
    balance = DataLedger.seen(path)
    [found] = balance.runs.values()
    assert (found.texts.total(), found.settled, found.population) == (4, True, "patients")
    assert (found.observer, found.words) == (
        "released model",
        "CDP-FedAvg tau=10 on BreastCancer",
    )
    with prepare(experiment(*WORDS)) as prepared:
        [query] = prepared.queries(1)
    noises = [event.certified.noise_multiplier for event in query.seen_by("released model")]
    told = json.loads((tmp_path / "run" / LEDGER).read_text())
    exact = get_epsilon_gaussian(min(noises) / 4**0.5, 1e-5 / 2)
    assert told["spent"] == balance.spent("patients") == pytest.approx(exact)
    # A line for the ledger, for each round and for the end.
    assert (told["entries"], told["digest"]) == (6, balance.digest)


def test_a_run_beyond_the_budget_is_refused_with_what_would_fit(tmp_path):
    """A target that fits, and the grant that allows it."""
    path = record_ledger(tmp_path / "small.jsonl", epsilon=3.0)
    with pytest.raises(FedprivError) as refusal:
        trained(
            tmp_path / "run", charged(path, "rounds=3", "accountant=pld", "accountant.target=3")
        )
    text = str(refusal.value)
    assert "epsilon 3 of 3 is left for patients (record)" in text
    assert "\n" not in text
    assert not (tmp_path / "run").exists()
    assert DataLedger.seen(path).entries == 1
    [smaller] = [word for word in text.split() if word.startswith("accountant.target=")]
    trained(tmp_path / "fits", charged(path, "rounds=3", "accountant=pld", smaller))
    command = text[text.index("fedpriv ledger grant") : text.index(" allows it")].split()
    assert run(*command[1:], cwd=tmp_path).returncode == 0
    with pytest.raises(FedprivError, match="is left for patients"):
        trained(
            tmp_path / "run", charged(path, "rounds=3", "accountant=pld", "accountant.target=3")
        )


REFUSED = {
    "ledger=.*a ledger is of persons": ("randomness=simulation",),
    "algo=FedAvg: a method with a certificate for each record": ("algo=fedavg",),
    "algo=UldpAvg: a method with a certificate for each record": ("algo=uldp_avg",),
    "no ledger is there": ("ledger=/nowhere/ledger.jsonl",),
    "population=staff: one of .*: patients": ("population=staff",),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_a_ledger_cannot_pay_for_is_refused_in_one_line(why, path, tmp_path):
    with pytest.raises(FedprivError, match=why) as refusal:
        trained(tmp_path / "run", charged(path, *REFUSED[why]))
    assert "\n" not in str(refusal.value)
    assert DataLedger.seen(path).entries == 1
    assert not (tmp_path / "run").exists()


def test_of_several_populations_a_run_names_its_own(tmp_path):
    path = record_ledger(tmp_path / "l.jsonl", "ward", "tests")
    with pytest.raises(FedprivError, match=r"population=null: one of .*: ward, tests"):
        trained(tmp_path / "run", charged(path))
    trained(tmp_path / "run", charged(path, "population=tests"))
    balance = DataLedger.seen(path)
    assert balance.spent("ward") == 0 < balance.spent("tests")


TABLE = """\
patient,hospital,age,died
a,east,50,1
b,east,70,0
c,west,60,1
d,west,40,0
e,west,45,1
f,east,66,0
"""
OF_PERSONS = ("data=table", "data.user=patient", "data.silo=hospital", "data.label=died")
NO_COVER = {
    "an allocator of the users that the data name": ("allocator=zipf", "preset.invent_users=true"),
    "null, because no epsilon": (),
}


@pytest.mark.parametrize("why", NO_COVER)
def test_what_no_epsilon_covers_is_not_paid_for(why, tmp_path):
    """Invented persons, and what was read off the records without noise."""
    (tmp_path / "people.csv").write_text(TABLE)
    path = record_ledger(tmp_path / "l.jsonl", unit="user")
    words = (*OF_PERSONS, f"data.path={tmp_path / 'people.csv'}", "algo=uldp_avg", *NO_COVER[why])
    exp = experiment(*words, "randomness=system", "rounds=1", f"ledger={path}")
    with pytest.raises(FedprivError, match=why):
        trained(tmp_path / "run", exp)
    assert DataLedger.seen(path).entries == 1


def test_only_runs_have_their_parties_paid(path):
    with pytest.raises(FedprivError, match=r"ledger=.*: null: only runs charge a ledger"):
        prepare(charged(path))


# -- ends ------------------------------------------------------------------------------------------


def stops_in(number, end):
    def stop(at):
        if at == number:
            raise end

    return watched(stop, lambda at: None)


@pytest.mark.parametrize("end", [KeyboardInterrupt(), Death(), RuntimeError("it broke")], ids=repr)
def test_a_run_that_ends_early_gives_back_what_it_has_not_begun(end, path, tmp_path):
    """The round in which it ended stays charged: a message may have left."""
    with stops_in(3, end), pytest.raises(type(end)):
        trained(tmp_path / "run", charged(path))
    assert rounds(path) == [3]
    trained(tmp_path / "run", charged(path), resume=True)
    started = attempts(tmp_path / "run")
    assert sum(rounds(path)) == started.total() >= 5
    trained(tmp_path / "run", charged(path), resume=True)
    assert sum(rounds(path)) == started.total()


def killed_in(number, path, folder, tmp_path):
    """Leave the files as a kill in this round leaves them: as they were then."""
    places = (path.parent, folder, tmp_path / "state")

    def keep(at):
        if at == number:
            for place in places:
                # A file that is being replaced may go while it is copied.
                ignore = shutil.ignore_patterns("*.tmp")
                shutil.copytree(place, tmp_path / "kept" / place.name, ignore=ignore)

    with watched(keep, lambda at: None):
        trained(folder, charged(path))
    for place in places:
        shutil.rmtree(place)
        shutil.copytree(tmp_path / "kept" / place.name, place)


def test_a_killed_run_stays_charged_and_goes_on_under_another_name(path, tmp_path, caplog):
    killed_in(3, path, tmp_path / "run", tmp_path)
    assert rounds(path) == [3]
    trained(tmp_path / "run", charged(path), resume=True)
    assert "3 queries of a killed process stay charged" in caplog.text
    assert sum(rounds(path)) == attempts(tmp_path / "run").total() >= 5
    assert [run.settled for run in DataLedger.seen(path).runs.values()] == [False, True]


def test_two_copies_of_a_killed_run_are_both_charged(path, tmp_path):
    killed_in(3, path, tmp_path / "run", tmp_path)
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    for folder in ("run", "copy"):
        trained(tmp_path / folder, charged(path), resume=True)
    total = attempts(tmp_path / "run").total() + attempts(tmp_path / "copy").total()
    assert sum(rounds(path)) == total - 3  # which were begun once


def test_a_copy_of_a_run_that_goes_on_takes_nothing_from_it(path, tmp_path):
    """It has other noise, and pays for its own rounds."""

    def copy(at):
        if at == 3 and not (tmp_path / "copy").exists():
            ignore = shutil.ignore_patterns("*.tmp")
            shutil.copytree(tmp_path / "run", tmp_path / "copy", ignore=ignore)
            trained(tmp_path / "copy", charged(path), resume=True)

    with watched(copy, lambda at: None):
        trained(tmp_path / "run", charged(path))
    found = [attempts(tmp_path / folder).total() for folder in ("run", "copy")]
    assert sum(rounds(path)) == sum(found) - 3
    assert all(found.settled for found in DataLedger.seen(path).runs.values())


def test_what_a_folder_says_of_its_charge_brings_nothing_back(path, tmp_path):
    killed_in(3, path, tmp_path / "run", tmp_path)
    other = tmp_path / "other"
    trained(other, charged(path))
    before = rounds(path)
    (tmp_path / "run" / LEDGER).write_text((other / LEDGER).read_text())
    trained(tmp_path / "run", charged(path), resume=True)
    assert rounds(path)[:2] == before


def test_a_run_ends_early_where_others_have_spent_the_budget(tmp_path):
    """Both fit when they begin. The tables show the last round, whichever that is."""
    path = record_ledger(tmp_path / "l.jsonl", epsilon=3.0)
    words = ("rounds=3", "accountant=pld", "accountant.target=2.5", "evaluate_every=3")

    def spend(at):
        if at == 2 and not (tmp_path / "other").exists():
            trained(tmp_path / "other", charged(path, "accountant=pld", "accountant.target=1.5"))

    with watched(spend, lambda at: None):
        trained(tmp_path / "run", charged(path, *words))
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert status["reason"] == (
        "round 3 would exceed epsilon 3 at delta 1e-05 of patients in the ledger"
    )
    assert DataLedger.seen(path).spent("patients") <= 3
    tables = Tables(tmp_path / "run")
    assert [row["round"] for row in tables.rows("metrics.csv")] == ["0", "2"]
    assert {row["round"] for row in tables.rows("epsilon.csv")} == {"2"}


def test_a_run_goes_on_with_its_own_ledger_only(path, tmp_path):
    other = record_ledger(tmp_path / "other.jsonl")
    with stops_in(3, KeyboardInterrupt()), pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "run", charged(path))
    with pytest.raises(FedprivError, match="ledger=null: the file of ledger ledger"):
        trained(tmp_path / "run", experiment(*WORDS), resume=True)
    with pytest.raises(FedprivError, match=r"ledger=.*other\.jsonl: ledger, as in"):
        trained(tmp_path / "run", charged(other), resume=True)
    assert DataLedger.seen(other).entries == 1


def test_no_ledger_pays_for_the_end_of_a_run_alone(path, tmp_path):
    """It would name a run of which it has charged a part."""
    with stops_in(3, KeyboardInterrupt()), pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "run", experiment(*WORDS))
    with pytest.raises(FedprivError, match="run has begun 3 rounds that no ledger was charged for"):
        trained(tmp_path / "run", charged(path), resume=True)
    assert DataLedger.seen(path).entries == 1
    trained(tmp_path / "run", experiment(*WORDS), resume=True)


def test_a_folder_chooses_no_ledger(path, tmp_path):
    """Its settings name one, but a resume must type it."""
    folder = tmp_path / "run"
    words = (*WORDS, "rounds=2", f"ledger={path}", f"hydra.run.dir={folder}")
    assert run(*words, cwd=tmp_path).returncode == 0
    assert "a folder chooses no place" in refusal(f"resume={folder}", "rounds=3", cwd=tmp_path)
    success(f"resume={folder}", "rounds=3", f"ledger={path}", cwd=tmp_path)
    assert rounds(path) == [2, 1]


@pytest.mark.slow
def test_a_real_process_is_killed_and_resumed(path, tmp_path):
    folder = tmp_path / "run"
    words = [*WORDS, "rounds=400", "accountant=pld", f"ledger={path}", f"hydra.run.dir={folder}"]
    command = [sys.executable, "-m", "fedpriv", *words]
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    with subprocess.Popen(command, env=environment) as process:
        while attempts(folder).total() < 20:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    [paid] = rounds(path)
    assert 20 <= paid <= attempts(folder).total() + 20
    success(f"resume={folder}", f"ledger={path}", "quiet=true", cwd=tmp_path)
    assert 400 <= attempts(folder).total() <= sum(rounds(path)) < attempts(folder).total() + 20
