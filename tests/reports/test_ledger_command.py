"""`fedpriv ledger`: what a data protection officer asks."""

import json

import pytest
import yaml
from command import refusal, run
from dp_accounting import get_epsilon_gaussian
from runs import experiment

from fedpriv.ledgers.data_ledger import DataLedger
from fedpriv.reports.assessment.contents import contents
from fedpriv.reports.assessment.page import page
from fedpriv.runs.loop import train
from fedpriv.runtime import prepare

WORDS = ("algo=cdp_fedavg", "randomness=system", "accountant=rdp", "references=false", "rounds=2")


@pytest.fixture
def ledger(tmp_path, monkeypatch):
    """Says `fedpriv ledger` something about a ledger that has paid for a run."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "clinic").mkdir()
    (tmp_path / "clinic").chmod(0o755)  # as folders are on an ordinary day

    def say(action, *words):
        return run("ledger", action, "clinic/l.jsonl", *words, cwd=tmp_path)

    populations = ("--population=ward:record:50", "--population=tests:record:2:1e-6")
    done = say("init", *populations, "--name", "clinic", "--overlap", "ward,tests")
    assert done.returncode == 0
    say.path = tmp_path / "clinic" / "l.jsonl"
    say.folder = tmp_path / "run"
    return say


def charged(ledger):
    words = (*WORDS, f"ledger={ledger.path}", "population=ward")
    with DataLedger(ledger.path) as open_ledger:  # the budget of the tests is for both
        grant = {"kind": "grant", "population": "tests", "epsilon": 48.0}
        open_ledger.add(grant)
    train(experiment(*words), yaml.safe_dump({"rounds": 2}), ledger.folder, quiet=True)


def test_it_says_what_was_released_to_whom_since_when_and_what_is_left(ledger):
    charged(ledger)
    told = json.loads(ledger("show", "--json").stdout)
    with prepare(experiment(*WORDS)) as prepared:
        [query] = prepared.queries(1)
    noise = min(event.certified.noise_multiplier for event in query.seen_by("released model"))
    spent = {one["name"]: one["spent"] for one in told["populations"]}
    assert spent["ward"] == pytest.approx(get_epsilon_gaussian(noise / 2**0.5, 0.5e-5))
    assert spent["tests"] == pytest.approx(get_epsilon_gaussian(noise / 2**0.5, 0.5e-6))
    for one in told["populations"]:
        assert one["left"] == one["budget"] - one["spent"] > 0
    [found] = told["runs"]
    assert (found["observer"], found["state"]) == ("released model", "settled")
    assert (found["words"], found["queries"]) == ("CDP-FedAvg tau=10 on BreastCancer", 2)
    assert found["since"].startswith("20")
    table = ledger("show").stdout
    for word in ("ward", "tests", "released model", "BreastCancer", f"{spent['ward']:.4g}"):
        assert word in table


def test_a_report_shows_the_state_of_the_ledger(ledger):
    charged(ledger)
    facts = contents(ledger.folder)
    [row] = facts["runs"][0]["ledger"]
    assert (row["ledger"], row["population"], row["unit"]) == ("clinic", "ward", "record")
    assert row["left"] == row["budget"] - row["spent"]
    shown = page(facts).decode()
    assert "What all runs on these persons have cost" in shown
    assert f'<td data-name="left">{row["left"]:.4g}' in shown


def test_check_says_what_has_changed_and_show_what_a_copy_tells(ledger, tmp_path):
    assert "1 lines, unaltered" in ledger("check").stdout
    assert ledger("grant", "tests", "0.5").returncode == 0
    assert "2.5" in ledger("show").stdout
    (tmp_path / "copy").mkdir()
    copy = tmp_path / "copy" / "l.jsonl"
    copy.write_bytes(ledger.path.read_bytes())
    copy.chmod(0o600)
    assert run("ledger", "show", str(copy), cwd=tmp_path).returncode == 0
    assert "without its counter" in refusal("ledger", "check", str(copy), cwd=tmp_path)
    ledger.path.write_bytes(ledger.path.read_bytes().replace(b",2.0,", b",9.0,"))
    assert "was altered: line 2" in ledger("show").stderr
    assert "not as it was last used" in ledger("check").stderr


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("init", "--population=a:user:1"), "is there already"),
        (("grant", "nobody", "1"), "population=nobody: ward, tests"),
        (("grant", "ward", "-1"), "a positive epsilon"),
    ],
)
def test_a_wrong_word_is_one_line(words, why, ledger):
    done = ledger(*words)
    assert (done.returncode, done.stderr.count("\n"), why in done.stderr) == (2, 1, True)


@pytest.mark.parametrize(
    "word",
    [
        *("--population=a", "--population=a:user", "--population=a:user:x", "--population=a:cat:1"),
        *("--population=a:user:-1", "--population=a:user:inf", "--population=a:user:1:2"),
        *("--overlap=a,b", "--overlap=a", "--population=p:user:1", "--population= :user:1"),
        "--overlap=p,q",
    ],
)
def test_a_ledger_that_makes_no_sense_is_not_made(word, tmp_path):
    words = ("--population=p:user:3", "--population=q:record:3", word)
    refusal("ledger", "init", "new.jsonl", *words, cwd=tmp_path)
    assert not (tmp_path / "new.jsonl").exists()
