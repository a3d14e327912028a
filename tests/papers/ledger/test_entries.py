"""The ledger: every figure has an entry, answers rest on tests or on results, seeds are apart."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

from fedpriv.data.cifar10 import Cifar10Clients
from fedpriv.data.femnist import MnistWriters
from fedpriv.data.shakespeare import Shakespeare
from fedpriv.papers.claimed_certified import all_counterexamples
from fedpriv.papers.ledger import results
from fedpriv.papers.ledger.command import PROGRAMS
from fedpriv.papers.ledger.entries import entries
from fedpriv.papers.ledger.results import DECIDING, TUNING
from fedpriv.papers.reproduce import FIGURES
from fedpriv.papers.uldp_fl.protocol_time import (
    BLINDING,
    DECRYPTION,
    KEYS,
    PHE,
    TRAINING,
    WEIGHTING,
)
from fedpriv.util.streams import Streams
from scripts import measured_peers
from scripts.ledger import (
    LEDGER,
    PICTURES,
    PLACES,
    RESULTS,
    TITLES,
    measured_entries,
    numbers,
    pages,
    picture_name,
)

ROOT = Path(__file__).resolve().parents[3]
EPSILONS = ("certified", "claimed")
RUN = [entry.name for entry in entries().values() if entry.replication]


def rows(name):
    return results.read(results.path(name, RESULTS))


def test_every_figure_has_an_entry_and_every_paper_a_page():
    ours = {"uldp_fl/fig4_embedded"}  # no paper claims anything about it
    assert set(FIGURES) - ours <= set(entries())
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
        assert entry.hours is not None or name == "uldp_fl/fig9"


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
        assert f"`{entry.name}`" in PLACES[entry.paper].read_text()


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


def test_partitions_grow_with_the_peers():
    """SecureD-FL, Fig. 6 with the authors' draws; 4 for 9 peers and 5 for 15 (section VI-A)."""
    counts = {}
    for row in rows("secured_fl/fig6"):
        size, peers = (int(word.partition("=")[2]) for word in row.place.split(", "))
        counts.setdefault((row.method, size), {}).setdefault(peers, []).append(row.value)
    for size in (3, 4):
        by_peers = counts["with rollback", size]
        means = [sum(values) / len(values) for _, values in sorted(by_peers.items())]
        assert all(one < other for one, other in pairwise(means))
    assert set(counts["with rollback", 3][9]) == {4}
    assert set(counts["with rollback", 3][15]) == {5}
    assert max(counts["with rollback", 3][57]) == 19
    found = [one for n, values in counts["as printed", 3].items() if n >= 15 for one in values]
    assert (min(found), max(found)) == (1, 6)


def test_a_silos_work_dominates_private_weighting_and_grows():
    """Uldp-FL, Fig. 11: what the paper calls local training includes work on ciphertexts."""
    seconds = {}
    for row in rows("uldp_fl/fig11"):
        seconds.setdefault((row.place, row.method), []).append(row.value)
    means = {key: sum(values) / len(values) for key, values in seconds.items()}
    for phe in (False, True):
        weighting, server = PHE if phe else (WEIGHTING, DECRYPTION)
        for data in ("heart_disease", "tcga_brca"):
            silos = []
            for users in (10, 100):
                place = f"data={data}, users={users}"
                silos.append(means[place, TRAINING] + means[place, weighting])
                others = [means[place, phase] for phase in (KEYS, BLINDING, server)]
                assert silos[-1] > max(others)
            assert silos[0] < silos[1]


def test_a_silos_work_grows_linearly_with_parameters_and_users():
    """Uldp-FL, Fig. 12, with the library that the authors use."""
    seconds = {}
    for row in rows("uldp_fl/fig12"):
        seconds.setdefault(row.place, {}).setdefault(row.method, []).append(row.value)
    rates = []
    for place, measured in seconds.items():
        parameters, users = (int(word.partition("=")[2]) for word in place.split(", "))
        means = {method: sum(values) / len(values) for method, values in measured.items()}
        weighting, server = PHE
        silo = means[TRAINING] + means[weighting]
        assert silo > max(means[KEYS], means[BLINDING], means[server])
        rates.append(1000 * silo / (parameters * users))
    assert len(rates) == 16
    said = entries()["uldp_fl/fig12"].answers["curve"].found
    assert f"{min(rates):.1f} to {max(rates):.1f} milliseconds" in said


def test_accuracies_beside_table_ii_are_those_of_the_peers_results():
    for name, data in (("fig3_femnist", "MNIST"), ("fig3_shakespeare", "Shakespeare")):
        for number in entries()[f"secured_fl/{name}"].numbers:
            own = {
                row["method"]: f"{100 * float(row['best']):.2f} ± "
                f"{100 * float(row['best deviation']):.2f}"
                for row in measured_peers.read()
                if row["data"].startswith(data) and row["peers"] == number.what.split()[0]
            }
            texts = [own[method] for method in ("Local-only", "FedAvg", "SecureD-FL") if own]
            assert ", ".join(texts) in number.ours
            assert bool(number.ours) == bool(own)


@pytest.mark.slow
def test_the_records_beside_table_i_are_those_that_are_loaded(real_root):
    ours = [number.ours for number in entries()["secured_fl/table1"].numbers]
    for text, data in zip(
        ours, (MnistWriters(real_root), Shakespeare(real_root), Cifar10Clients(real_root))
    ):
        corpus = data.load(Streams(0))
        counted = corpus.train.user.max() + 1, len(corpus.train), len(corpus.test)
        assert text.endswith(": " + " / ".join(f"{number:,}" for number in counted))


@pytest.mark.parametrize("name", [name for name in RUN if rows(name)])
def test_no_run_counts_twice(name):
    keys = [
        tuple(value for key, value in vars(row).items() if key not in ("value", *EPSILONS))
        for row in rows(name)
    ]
    assert len(set(keys)) == len(keys)


def test_every_result_has_a_picture():
    for entry in measured_entries():
        assert (PICTURES / picture_name(entry)).stat().st_size > 10_000
