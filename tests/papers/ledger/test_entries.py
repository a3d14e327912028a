"""The ledger: every figure has an entry, answers rest on tests or on results, seeds are apart."""

import re
from functools import cache
from itertools import product
from pathlib import Path

import pandas as pd
import pytest
from scipy.stats import t

from fedpriv.data.cifar10 import Cifar10Clients
from fedpriv.data.femnist import MnistWriters
from fedpriv.data.shakespeare import Shakespeare
from fedpriv.papers.ledger import figures, results
from fedpriv.papers.ledger.command import PROGRAMS
from fedpriv.papers.ledger.entries import ANSWERS, QUESTIONS, by_key, entries
from fedpriv.papers.ledger.results import AUTHORS, DECIDING, TUNING
from fedpriv.papers.reproduce import FIGURES
from fedpriv.papers.secured_fl.peer_groups import NUMBERS
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
    epsilons_name,
    has_epsilons,
    measured_entries,
    numbers,
    pages,
    picture_name,
)
from scripts.ledger_epsilons import by_round, experiment

ROOT = Path(__file__).resolve().parents[3]
RUN = [entry.name for entry in entries().values() if entry.replication]


@cache
def stored(name):
    return results.read(results.path(name, RESULTS))


@cache
def decisions(name, question):
    return results.decide(entries()[name], question, stored(name))


def rows(name, phase=DECIDING):
    return stored(name)[stored(name)["phase"] == phase]


def test_every_figure_has_an_entry_and_every_paper_a_page():
    ours = {"uldp_fl/fig4_embedded", "claimed_certified"}  # no paper claims anything about them
    papers = {name for name in FIGURES if not name.startswith("study/")}
    assert papers - ours <= set(entries())
    assert {entry.paper for entry in entries().values()} == {*TITLES}


@pytest.mark.parametrize("name", entries())
def test_an_answer_rests_on_tests_that_exist_or_on_results(name):
    entry = entries()[name]
    assert entry.claim
    assert entry.place
    for question, one in entry.answers.items():
        assert one.answer in ANSWERS
        run = entry.replication and question in entry.replication.cases
        program = name in PROGRAMS
        unanswered = one.answer in ("not run", "not resolved", "unknown setting")
        assert one.tests or run or program or unanswered, question
        assert one.answer != "misprint" or "Mend: " in one.found
        for test in one.tests:
            file, _, function = test.partition("::")
            text = (ROOT / file).read_text()
            assert re.search(rf"^def {re.escape(function)}\(", text, re.MULTILINE), test
        lost = "our copy lacks the text" in one.found
        assert one.answer != "not run" or entry.hours is not None or lost, question


def test_a_replication_is_fair():
    """Its claims name its methods, what is tuned has seeds for it, and nothing is set twice."""
    for run in (entries()[name].replication for name in RUN):
        assert {*run.cases} <= {*QUESTIONS}
        for one in run.comparisons:
            assert {one.first, one.second} <= {*run.methods}
            assert one.says in ("lower", "higher")
            assert one.quantifier in ("every", "most", "mean", "close")
        for question, method in product(run.cases, run.methods):
            alternatives, grid = run.alternatives(question, method), run.grid(question, method)
            assert not grid or run.chosen_by or len(run.tuning_seeds) >= 5
            assert not (grid and run.open)
            assert grid or len(alternatives) == 1
            for words in alternatives:
                every = [*words, *grid, *run.places]
                assert len(by_key(every)) == len(every)


@pytest.mark.parametrize("name", RUN)
def test_an_answer_of_a_replication_is_what_its_results_decide(name):
    """Until it is: `fedpriv replicate` prints the answer."""
    entry = entries()[name]
    for question in entry.replication.cases:
        decided = results.decided_answer(entry, question, decisions(name, question))
        assert entry.answers[question].answer == decided, question


@pytest.mark.parametrize("name", RUN)
def test_the_seeds_that_choose_do_not_decide(name):
    run = entries()[name].replication
    assert not {*run.tuning_seeds} & {*run.seeds}
    assert {*rows(name, TUNING)["seed"]} <= {*run.tuning_seeds}
    assert {*rows(name)["seed"]} <= {*run.seeds}


@pytest.mark.parametrize("name", RUN)
def test_no_tuned_method_is_worse_than_the_authors_setting(name):
    """On the seeds that decide, by more than the interval; else its comparison is not answered."""
    run, table = entries()[name].replication, stored(name)
    for question in run.cases:
        here = table[table["question"] == question]
        beside = here[here["phase"] == AUTHORS]
        if beside.empty:  # untuned, tuned as the paper does, or not run by the rule
            beside = table[(table["question"] == "curve") & (table["phase"] == DECIDING)]
        untuned = not run.grid(question, entry_method(run)) or run.chosen_by
        for decision in [] if untuned else decisions(name, question):
            one = decision.comparison
            if decision.answer == "not run":
                continue
            for method in (one.first, one.second):
                best = results.chosen(run, one, method, here[here["phase"] == TUNING])
                for place, settings in best.items():
                    at = {"method": method, "place": place, "metric": one.metric}
                    own = values(here[here["phase"] == DECIDING], **at, settings=settings)[
                        one.round
                    ]
                    apart = (own - values(beside, **at)[one.round]).dropna()
                    sign = -1 if one.metric in results.LOWER else 1
                    reach = t.ppf(0.975, len(apart) - 1) * apart.std() / len(apart) ** 0.5
                    assert sign * apart.mean() + reach >= 0, (question, method, place)


def entry_method(run):
    return next(iter(run.methods))


def values(table, **at):
    """By round and seed."""
    rows = table[(table[[*at]] == pd.Series(at)).all(axis=1)]
    return rows.set_index(["round", "seed"])["value"]


@pytest.mark.parametrize("name", RUN)
def test_no_chosen_value_lies_at_an_end_unless_the_answer_says_so(name):
    run, table = entries()[name].replication, stored(name)
    for question in run.cases:
        tuning = table[(table["question"] == question) & (table["phase"] == TUNING)]
        for decision in decisions(name, question):
            one = decision.comparison
            identical = all(each.low == each.high == 0 for each in decision.found)
            ends_are_the_papers = bool(run.chosen_by)
            if tuning.empty or decision.answer == "not run" or identical or ends_are_the_papers:
                continue
            for method in (one.first, one.second):
                tried = pd.DataFrame(map(by_number, tuning[tuning["method"] == method]["settings"]))
                for settings in results.chosen(run, one, method, tuning).values():
                    for key, number in by_number(settings).items():
                        assert tried[key].min() < number < tried[key].max(), (method, settings)


def by_number(settings):
    words = (word.partition("=") for word in settings.split(", "))
    return {key: float(value) for key, _, value in words}


@pytest.mark.parametrize("name", RUN)
def test_every_method_runs_on_the_same_seeds_at_equal_certificates(name):
    run = entries()[name].replication
    for question, here in rows(name).groupby("question"):
        seeds = here.groupby(["method", "place"])["seed"].agg(frozenset)
        assert {*seeds.index.get_level_values("method")} == {*run.methods}
        assert seeds.nunique() == 1
        if question == "conclusion":
            at = ["place", "settings"] if run.open else ["place"]
            certified = here.groupby(at)["certified"].agg(["min", "max"])
            assert (certified["max"] <= certified["min"] * 1.001).all()


def test_pages_say_what_the_ledger_and_the_results_say():
    """Until they do: python -m scripts.ledger."""
    for path, text in pages().items():
        assert path.read_text() == text, path


def test_every_number_of_a_paper_stands_on_the_page():
    text = LEDGER.read_text()
    assert numbers() in text
    for entry in entries().values():
        assert all(one.paper in text for one in entry.numbers)
        assert f"`{entry.name}`" in PLACES[entry.paper].read_text()


def test_the_peers_differences_are_those_of_the_table():
    measured = measured_peers.read()
    for name, place in (("fig3_femnist", "MNIST"), ("fig3_shakespeare", "Shakespeare")):
        said = entries()[f"secured_fl/{name}"].answers["curve"].found
        tasks = measured[measured["data"].str.startswith(place)].groupby("peers")
        for _, task in tasks:
            last = 100 * task.set_index("method")["last"]
            for method in last.index[last.index.str.startswith("SecureD-FL")]:
                assert f"{last['FedAvg'] - last[method]:.2f}" in said, method
                assert last[method] > last["Local-only"]


def by_place(name):
    """The values of each method, with the numbers in the name of the place as columns."""
    table = rows(name)
    return table.join(table["place"].str.extractall(r"(\w+)=(\d+)").pipe(numbers_of))


def numbers_of(found):
    return found.droplevel(1).pivot(columns=0)[1].astype(int)


def test_partitions_grow_with_the_peers():
    """SecureD-FL, Fig. 6 with the authors' draws; 4 for 9 peers and 5 for 15 (section VI-A)."""
    table = by_place("secured_fl/fig6")
    counts = table.groupby(["method", "size", "peers"])["value"].agg(["min", "mean", "max"])
    for size, peers in NUMBERS.items():
        assert [*counts.loc["with rollback", size].index] == [*peers]
        assert counts.loc["with rollback", size]["mean"].diff()[1:].gt(0).all()
    rollback = counts.loc["with rollback", 3]
    assert rollback.loc[9].tolist() == [4, 4, 4]
    assert rollback.loc[15].tolist() == [5, 5, 5]
    assert rollback.loc[57, "max"] == 19
    printed = counts.loc["as printed", 3].loc[15:]
    assert (printed["min"].min(), printed["max"].max()) == (1, 6)


def test_a_silos_work_dominates_private_weighting_and_grows():
    """Uldp-FL, Fig. 11: what the paper calls local training includes work on ciphertexts."""
    means = rows("uldp_fl/fig11").groupby(["place", "method"])["value"].mean().unstack()
    for weighting, server in ((WEIGHTING, DECRYPTION), PHE):
        silo = means[TRAINING] + means[weighting]
        assert (silo > means[[KEYS, BLINDING, server]].max(axis=1)).all()
        for data in ("heart_disease", "tcga_brca"):
            assert silo[f"data={data}, users=10"] < silo[f"data={data}, users=100"]


def test_a_silos_work_grows_linearly_with_parameters_and_users():
    """Uldp-FL, Fig. 12, with the library that the authors use."""
    table = by_place("uldp_fl/fig12")
    means = table.groupby(["parameters", "users", "method"])["value"].mean().unstack()
    weighting, server = PHE
    silo = means[TRAINING] + means[weighting]
    assert (silo > means[[KEYS, BLINDING, server]].max(axis=1)).all()
    rates = 1000 * silo / [parameters * users for parameters, users in silo.index]
    assert len(rates) == 16
    said = entries()["uldp_fl/fig12"].answers["curve"].found
    assert f"{rates.min():.1f} to {rates.max():.1f} milliseconds" in said


def test_accuracies_beside_table_ii_are_those_of_the_peers_results():
    measured = measured_peers.read()
    for name, data in (("fig3_femnist", "MNIST"), ("fig3_shakespeare", "Shakespeare")):
        for number in entries()[f"secured_fl/{name}"].numbers:
            peers = int(number.what.split()[0])
            own = measured[measured["data"].str.startswith(data) & (measured["peers"] == peers)]
            assert bool(number.ours) == bool(len(own))
            if len(own):
                best = dict(zip(own["method"], measured_peers.cell(own, "best")))
                shown = (best[method] for method in ("Local-only", "FedAvg", "SecureD-FL"))
                assert ", ".join(shown) in number.ours


@pytest.mark.slow
def test_the_records_beside_table_i_are_those_that_are_loaded(real_root):
    ours = [number.ours for number in entries()["secured_fl/table1"].numbers]
    for text, data in zip(
        ours, (MnistWriters(real_root), Shakespeare(real_root), Cifar10Clients(real_root))
    ):
        corpus = data.load(Streams(0))
        counted = corpus.train.user.max() + 1, len(corpus.train), len(corpus.test)
        assert text.endswith(": " + " / ".join(f"{number:,}" for number in counted))


@pytest.mark.parametrize("name", RUN)
def test_no_run_counts_twice(name):
    assert not stored(name).drop(columns=["value", "certified", "claimed"]).duplicated().any()


def test_every_result_has_a_picture():
    for entry in measured_entries():
        names = [picture_name(entry)] + [epsilons_name(entry)] * has_epsilons(entry)
        assert all((PICTURES / name).stat().st_size > 10_000 for name in names)


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("hu/fig3", ["training loss", "test accuracy"]),  # nothing compares the accuracy
        ("hu/fig7", ["test accuracy\nas in the paper", "test accuracy\nequal certificates"]),
    ],
)
def test_rows_of_a_picture_say_their_metric_and_which_question_they_answer(name, labels, tmp_path):
    figure = figures.draw(entries()[name], stored(name), tmp_path / "figure.png")
    assert [*filter(None, (axis.get_ylabel() for axis in figure.axes))] == labels


def test_the_epsilons_that_are_drawn_end_where_those_of_the_runs_do():
    run = entries()["uldp_fl/fig6"].replication
    for question, method in product(run.cases, run.methods):
        last = by_round(experiment(run, question, method)).iloc[-1]
        here = rows("uldp_fl/fig6")
        own = here[(here["question"] == question) & (here["method"] == method)]
        for name in ("certified", "claimed"):
            assert own[name].unique() == pytest.approx([last[name]], rel=1e-5)
