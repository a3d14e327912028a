"""The study of all papers' methods: noise, tuning, comparison, picture."""

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm, ttest_rel

from fedpriv.comparisons.request import Method, Request
from fedpriv.comparisons.trials import finished, reported_trials
from fedpriv.papers.reproduce import FIGURES
from fedpriv.papers.study import study
from fedpriv.papers.study.methods import METHODS, NOTHING, RECORD, RECORDS_PER_USER, USER
from fedpriv.papers.study.study import QUICK
from fedpriv.papers.study.table import (
    baselines,
    compare_with_reference,
    read,
    table_of,
    write,
)
from fedpriv.runs.epsilon_forecast import EpsilonForecast
from fedpriv.settings.compose import one_experiment

WORDS = ("experiment=study/breast_cancer", "rounds=4", "preset.silo_epochs=5")
PRIVATE = [(method, unit) for method in METHODS if method.private for unit in method.units]
BY_NAME = {method.name: method for method in METHODS}


def planned(method, unit, *words):
    return EpsilonForecast.of(
        one_experiment(*WORDS, "seed=3", *method.words, *method.units[unit], *words)
    )


def delta_of(mu, epsilon):
    """Of mu-Gaussian differential privacy."""
    return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)


@pytest.mark.parametrize(("method", "unit"), PRIVATE, ids=lambda one: getattr(one, "name", one))
def test_the_noise_of_every_method_keeps_the_epsilon_of_its_unit(method, unit):
    """On other records than those that it may have been made with, too: the split is another
    seed's."""
    words = (*method.rate(1.0, 3), *method.clip(1.0), *method.noise(WORDS, unit, 3.0))
    found = planned(method, unit, *words)
    assert 2.9 < method.certified(found, unit) <= 3.003
    assert method.certified(found, unit, "server") >= method.certified(found, unit) * 0.999


@pytest.mark.parametrize(
    ("name", "unit", "moved"),
    [
        (
            "ULDP-NAIVE",
            USER,
            1,
        ),  # noise is made for 2 C in each silo, which is all that replacement can do
        ("ULDP-AVG", USER, 2),
        ("ULDP-GROUP", USER, 2 * RECORDS_PER_USER * math.sqrt(5)),  # five full steps a round
        ("ULDP-GROUP", RECORD, 2 * math.sqrt(5)),
        ("DP-ERM", USER, 2 * RECORDS_PER_USER * math.sqrt(5)),
    ],
)
def test_noise_that_is_searched_for_is_that_of_the_gaussian_mechanism(name, unit, moved):
    """Four rounds of `moved` sensitivities: the exact curve of the Gaussian mechanism (Balle, Wang
    2018)."""
    [word] = BY_NAME[name].noise(WORDS, unit, 3.0)
    mu = moved * math.sqrt(4) / float(word.partition("=")[2])
    assert delta_of(mu, 3.0) == pytest.approx(1e-5, rel=0.03)


def row(method, errors, **changes):
    usual = {"unit": USER, "method": method, "paper": "", "protects": USER, "epsilon": 3.0}
    usual |= {"certified": 3.0, "server": 3.0, "claimed": math.nan, "errors": tuple(errors)}
    usual |= {"losses": tuple(errors), "seeds": tuple(range(len(errors))), "validation": 0.1}
    usual |= {"step": 1.0, "steps": (0.3, 1.0, 3.0)}
    return usual | {"settings": "", "delta": 1e-5, "rounds": 4, "records": 10} | changes


REFERENCE = row("ULDP-AVG-w", [0.10, 0.12, 0.11, 0.13])
WORSE = row("ULDP-AVG", [0.20, 0.225, 0.21, 0.232])
ALIKE = row("MB-SGD", [0.10, 0.13, 0.10, 0.135])
FREE = row("FedAvg", [0.05, 0.05], unit=NOTHING, epsilon=math.inf, certified=math.inf)


def test_methods_are_told_apart_by_paired_tests_with_holms_correction():
    table = table_of([WORSE, REFERENCE, ALIKE, FREE])
    found = compare_with_reference(table, USER, 3.0).set_index("method")
    raw = [ttest_rel(one["errors"], REFERENCE["errors"]).pvalue for one in (WORSE, ALIKE)]
    assert found["p"][["ULDP-AVG", "MB-SGD"]].tolist() == pytest.approx([2 * raw[0], raw[1]])
    assert found["verdict"].to_dict() == {
        "ULDP-AVG-w": "not resolved",
        "MB-SGD": "not resolved",
        "ULDP-AVG": "worse",
    }
    assert list(found.index) == ["ULDP-AVG-w", "MB-SGD", "ULDP-AVG"]  # by their means


def test_who_hides_a_user_hides_its_records():
    record = row("MB-SGD", [0.1, 0.1, 0.2], unit=RECORD)
    found = compare_with_reference(table_of([WORSE, ALIKE, record]), RECORD, 3.0)
    errors = dict(zip(found["method"], found["errors"]))
    assert errors == {"MB-SGD": record["errors"], "ULDP-AVG": WORSE["errors"]}


def test_the_table_is_read_as_it_was_written(tmp_path):
    table = table_of([REFERENCE, FREE])
    write(table, tmp_path / "study.csv")
    back = read(tmp_path / "study.csv")
    back = back.fillna({"paper": "", "settings": ""})
    pd.testing.assert_frame_equal(back, table, check_dtype=False)
    assert baselines(back)["method"].tolist() == ["FedAvg"]


@pytest.mark.parametrize(
    ("means", "further"),
    [
        ({0.3: 0.2, 1.0: 0.1, 3.0: 0.2}, ()),
        ({0.3: 0.1, 1.0: 0.2, 3.0: 0.3}, (0.1,)),
        ({0.3: 0.3, 1.0: 0.2, 3.0: 0.1}, (10.0,)),
        ({0.3: 0.2, 1.0: math.inf, 3.0: math.inf}, (0.1,)),
        ({study.STEPS[0]: 0.1, study.STEPS[1]: 0.2}, ()),
    ],
)
def test_a_best_step_size_at_an_end_is_followed_by_its_neighbour(means, further):
    assert study.next_steps(means) == further


def test_errors_come_from_seeds_that_nothing_was_chosen_on():
    for profile in study.PROFILES.values():
        assert not set(profile.choosing) & set(profile.final)


def test_every_method_runs_with_its_words(tmp_path):
    """With the noise of its file: that of an epsilon is another test's."""
    words = (*WORDS, "preset.local_epochs=1", "preset.silo_epochs=1", "preset.n_users=10")
    own = {one.name: (*one.words, *next(iter(one.units.values()))) for one in METHODS}
    request = Request(tuple(map(Method, own, own.values())), words, math.inf, (0,), (), tmp_path)
    steps = {one.name: one.rate(0.1, 3) for one in METHODS}
    runs = list(finished(request, reported_trials(request, steps), quiet=True))
    assert len(runs) == len(METHODS)
    assert all(np.isfinite(run.final("loss")) for run in runs)


FEW = (*WORDS, "preset.n_users=20")
THREE = [BY_NAME[name] for name in ("ULDP-AVG-w", "MB-SGD", "FedAvg")]
TWO_SEEDS = replace(QUICK, final=(7, 8))


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A study of three methods: its folder and its table."""
    folder = tmp_path_factory.mktemp("small")
    return folder, study.study(FEW, folder, TWO_SEEDS, THREE)


def test_a_small_study_has_a_row_for_each_method_and_unit(small):
    table = small[1]
    assert [*zip(table["method"], table["unit"])] == [
        ("ULDP-AVG-w", USER),
        ("MB-SGD", USER),
        ("MB-SGD", RECORD),
        ("FedAvg", NOTHING),
    ]
    assert {*table["seeds"]} == {(7, 8)}
    assert np.isfinite(table["mean"]).all()
    certified, server, records = (table[key] for key in ("certified", "server", "records"))
    assert math.isinf(server[0])  # it sees the users' weights
    assert certified[1] == pytest.approx(3, rel=1e-3)
    assert server[1] > certified[1]
    assert records[1] < records[2] == records[0]
    assert math.isinf(certified[3])


def test_chosen_step_sizes_lie_between_others(small):
    for row in small[1].itertuples():
        assert row.steps[0] < row.step < row.steps[-1] or row.steps[0] == study.STEPS[0]


def test_step_sizes_are_chosen_on_a_fifth_of_the_training_records(small):
    folder = small[0]
    tuning, final = (
        {json.loads(file.read_text())["records"] for file in (folder / part).rglob("status.json")}
        for part in ("tuning", "runs")
    )
    assert max(tuning) == 364 == 455 - 455 // 5
    assert max(final) == 455


def test_the_figures_command_leaves_table_and_picture(tmp_path, monkeypatch):
    asked = []
    table = table_of([REFERENCE, WORSE, FREE])
    monkeypatch.setattr(study, "study", lambda *what: asked.append(what) or table)
    FIGURES["study/breast_cancer"](tmp_path, "paper")
    assert asked == [(("experiment=study/breast_cancer",), tmp_path, study.PROFILES["paper"])]
    assert read(tmp_path / "study.csv")["method"].tolist() == table["method"].tolist()
    assert (tmp_path / "figure.png").exists()
