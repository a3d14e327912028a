"""The ledger: every figure has an entry, answers rest on tests or on results, seeds are apart."""

import re
from pathlib import Path

import pytest

from fedpriv.papers.claimed_certified import all_counterexamples
from fedpriv.papers.ledger import results
from fedpriv.papers.ledger.command import PROGRAMS
from fedpriv.papers.ledger.entries import entries
from fedpriv.papers.ledger.results import DECIDING, TUNING
from fedpriv.papers.reproduce import FIGURES
from scripts import measured_peers
from scripts.ledger import LEDGER, RESULTS, TITLES, numbers, pages

ROOT = Path(__file__).resolve().parents[3]
RUN = [entry.name for entry in entries().values() if entry.replication]


def rows(name):
    return results.read(results.path(name, RESULTS))


def test_every_figure_has_an_entry_and_every_paper_a_page():
    assert set(FIGURES) <= set(entries())
    assert {entry.paper for entry in entries().values()} == {*TITLES, "study"}


@pytest.mark.parametrize("name", entries())
def test_an_answer_rests_on_tests_that_exist_or_on_results(name):
    entry = entries()[name]
    assert entry.claim
    assert entry.place
    for question, one in entry.answers.items():
        run = entry.replication and question in entry.replication.cases
        program = name in PROGRAMS
        assert one.tests or run or program or one.answer in ("not run", "not resolved"), question
        for test in one.tests:
            file, _, function = test.partition("::")
            text = (ROOT / file).read_text()
            assert re.search(rf"^def {re.escape(function)}\(", text, re.MULTILINE), test
    if any(one.answer == "not run" for one in entry.answers.values()):
        assert entry.hours is not None or name in ("uldp_fl/fig4_embedded", "uldp_fl/fig9")


@pytest.mark.parametrize("name", RUN)
def test_an_answer_of_a_replication_is_what_its_results_decide(name):
    """Until it is: `fedpriv replicate` prints the answer."""
    entry = entries()[name]
    for question in entry.replication.cases:
        found = results.decide(entry, question, rows(name))
        decided = results.decided_answer(entry, question, found)
        assert entry.answers[question].answer == decided, question


@pytest.mark.parametrize("name", RUN)
def test_the_seeds_that_choose_do_not_decide(name):
    run = entries()[name].replication
    found = {
        phase: {row.seed for row in rows(name) if row.phase == phase}
        for phase in (TUNING, DECIDING)
    }
    assert not found[TUNING] & found[DECIDING]
    assert found[TUNING] <= {*run.tuning_seeds}
    assert found[DECIDING] <= {*run.seeds}


@pytest.mark.parametrize("name", RUN)
def test_the_settings_that_decide_have_the_least_mean_loss_on_the_tuning_seeds(name):
    losses, deciding = {}, {}
    for row in rows(name):
        key = (row.question, row.method, row.place)
        if row.phase == TUNING:
            losses.setdefault(key, {}).setdefault(row.settings, []).append(row.value)
        elif row.settings:
            deciding.setdefault(key, set()).add(row.settings)
    assert {*deciding} == {*losses}
    for key, by_settings in losses.items():
        most = max(map(len, by_settings.values()))
        means = {
            one: sum(values) / len(values)
            for one, values in by_settings.items()
            if len(values) == most
        }
        [chosen] = deciding[key]
        assert means[chosen] == min(means.values()), key


@pytest.mark.parametrize("name", RUN)
def test_every_method_runs_on_the_same_seeds_at_equal_certificates(name):
    run = entries()[name].replication
    for question in {row.question for row in rows(name)}:
        here = [row for row in rows(name) if (row.question, row.phase) == (question, DECIDING)]
        seeds = {}
        for row in here:
            seeds.setdefault((row.method, row.place), set()).add(row.seed)
        assert {method for method, _ in seeds} == {*run.methods}
        assert len({frozenset(each) for each in seeds.values()}) == 1
        if question == "conclusion":
            for place in {row.place for row in here}:
                certified = [row.certified for row in here if row.place == place]
                assert max(certified) <= min(certified) * 1.001


@pytest.mark.parametrize("path", pages(), ids=lambda path: path.stem)
def test_pages_say_what_the_ledger_and_the_results_say(path):
    """Until they do: python -m scripts.ledger."""
    assert path.read_text() == pages()[path]


def test_every_number_of_a_paper_stands_on_the_page():
    text = LEDGER.read_text()
    assert numbers() in text
    for entry in entries().values():
        assert all(one.paper in text for one in entry.numbers)
        assert f"`{entry.name}`" in text


def test_counterexamples_are_counted():
    number = len(all_counterexamples())
    [one] = entries()["claimed_certified"].answers.values()
    assert one.found.startswith(f"in {number} rows ")
    by_fail = {one.name: one.fails for one in all_counterexamples()}
    assert set(by_fail.values()) <= {"number", "proof", "open"}


def test_the_peers_differences_are_those_of_the_table():
    last = {
        (row["data"], row["peers"], row["method"]): float(row["last"])
        for row in measured_peers.read()
    }
    for name, place in (("fig3_femnist", "MNIST"), ("fig3_shakespeare", "Shakespeare")):
        said = entries()[f"secured_fl/{name}"].answers["curve"].found
        for (data, peers, method), accuracy in last.items():
            if data.startswith(place) and method.startswith("SecureD-FL"):
                below = 100 * (last[data, peers, "FedAvg"] - accuracy)
                assert f"{below:.2f}" in said, (data, peers, method)
