"""Verdicts about figures: every figure has one, its tests exist, its numbers are those of the
tables."""

import re
from pathlib import Path

import pytest

from fedpriv.papers.claimed_certified import all_counterexamples
from fedpriv.papers.reproduce import FIGURES
from fedpriv.papers.verdicts import VERDICTS, verdicts
from scripts import measured, measured_peers
from scripts.verdicts import PAPERS, STUDY, pages

ROOT = Path(__file__).resolve().parents[2]


def test_every_figure_has_a_verdict_and_no_other():
    assert set(verdicts()) == set(FIGURES)
    assert {name.partition("/")[0] for name in FIGURES if "/" in name} == {*PAPERS, STUDY}


@pytest.mark.parametrize("name", FIGURES)
def test_a_verdict_that_is_not_open_rests_on_tests_that_exist(name):
    one = verdicts()[name]
    assert one.verdict in VERDICTS
    assert one.reports
    assert one.found
    assert one.tests or one.verdict == "open"
    for test in one.tests:
        file, _, function = test.partition("::")
        assert re.search(
            rf"^def {re.escape(function)}\(", (ROOT / file).read_text(), re.MULTILINE
        ), test


@pytest.mark.parametrize("path", pages(), ids=lambda path: path.stem)
def test_pages_say_what_the_file_says(path):
    """Until they do: python -m scripts.verdicts."""
    assert path.read_text() == pages()[path]


def test_counterexamples_are_counted():
    rows = len(all_counterexamples())
    assert verdicts()["claimed_certified"].found.startswith(f"in {rows} rows ")
    by_fail = {one.name: one.fails for one in all_counterexamples()}
    assert set(by_fail.values()) <= {"number", "proof", "open"}


@pytest.mark.parametrize(("name", "silos"), [("lowy/fig5", 12), ("lowy/fig4", 25)])
def test_the_order_of_methods_is_that_of_the_table(name, silos):
    """The paper's order is refuted as soon as MB-SGD beats SPIDER anywhere; the text says at how
    many epsilons."""
    error = {(c.calibration, c.method, c.epsilon): c.error for c in measured.read()[silos]}
    wins = {
        noise: sum(
            value < error[noise, measured.SPIDER, epsilon]
            for (by, method, epsilon), value in error.items()
            if (by, method) == (noise, measured.MINIBATCH)
        )
        for noise in measured.NOISES
    }
    one = verdicts()[name]
    assert one.verdict == ("refuted" if any(wins.values()) else "confirmed")
    assert (
        f"MB-SGD beats SPIDER at {wins['certified']} of 7 epsilons at equal certificates"
        in one.found
    )
    assert f"at {wins['paper']} with the paper's noise" in one.found


def test_the_peers_differences_are_those_of_the_table():
    last = {
        (row["data"], row["peers"], row["method"]): float(row["last"])
        for row in measured_peers.read()
    }
    for name, place in (("fig3_femnist", "MNIST"), ("fig3_shakespeare", "Shakespeare")):
        said = verdicts()[f"secured_fl/{name}"].found
        for (data, peers, method), accuracy in last.items():
            if data.startswith(place) and method.startswith("SecureD-FL"):
                below = 100 * (last[data, peers, "FedAvg"] - accuracy)
                assert f"{below:.2f}" in said, (data, peers, method)
