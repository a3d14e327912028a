"""The study of all papers' methods: noise, tuning, comparison, picture."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm, ttest_rel

from fedpriv.papers.reproduce import FIGURES
from fedpriv.papers.study import study
from fedpriv.papers.study.methods import METHODS, NOTHING, RECORD, RECORDS_PER_USER, USER
from fedpriv.papers.study.orders import check_orders
from fedpriv.papers.study.picture import draw
from fedpriv.papers.study.study import StudyProfile, StudySetting, Trial, choose
from fedpriv.papers.study.table import StudyRow, baselines, compare_with_reference, read, write
from fedpriv.runs.epsilon_forecast import EpsilonForecast
from fedpriv.settings.compose import one_experiment

WORDS = ("experiment=study/breast_cancer", "rounds=4")
PRIVATE = [(method, unit) for method in METHODS if method.private for unit in method.units]
BY_NAME = {method.name: method for method in METHODS}


ONE_EPSILON = StudyProfile((3,), (0.1,), (1,), (0,), (7,))


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
    assert found.exp.planner.plan(found.federation) is not None
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
    numbers = {
        "certified": 3.0,
        "server": 3.0,
        "claimed": math.nan,
        "train_loss": 0.1,
        "delta": 1e-5,
    }
    usual = StudyRow(
        unit=USER,
        method=method,
        paper="",
        protects=USER,
        epsilon=3.0,
        errors=tuple(errors),
        losses=tuple(errors),
        seeds=tuple(range(len(errors))),
        settings="algo.clip=1",
        rounds=4,
        records=10,
        **numbers,
    )
    return replace(usual, **changes)


REFERENCE = row("ULDP-AVG-w", [0.10, 0.12, 0.11, 0.13])
WORSE = row("ULDP-AVG", [0.20, 0.225, 0.21, 0.232])
ALIKE = row("MB-SGD", [0.10, 0.13, 0.10, 0.135])
FREE = row("FedAvg", [0.05, 0.05], unit=NOTHING, epsilon=math.inf, certified=math.inf)


def test_methods_are_told_apart_by_paired_tests_with_holms_correction():
    found = {
        one.row.method: one
        for one in compare_with_reference([WORSE, REFERENCE, ALIKE, FREE], USER, 3.0)
    }
    raw = {one: ttest_rel(one.errors, REFERENCE.errors).pvalue for one in (WORSE, ALIKE)}
    assert found["ULDP-AVG"].p == pytest.approx(2 * raw[WORSE])
    assert found["MB-SGD"].p == pytest.approx(raw[ALIKE])
    assert [found[name].verdict for name in ("ULDP-AVG", "MB-SGD", "ULDP-AVG-w")] == [
        "worse",
        *["not resolved"] * 2,
    ]
    assert list(found) == ["ULDP-AVG-w", "MB-SGD", "ULDP-AVG"]  # by their means


def test_who_hides_a_user_hides_its_records():
    record = row("MB-SGD", [0.1, 0.1, 0.2], unit=RECORD)
    variant = replace(ALIKE, method="MB-SGD with k=1")
    found = [
        one.row.method
        for one in compare_with_reference([WORSE, ALIKE, variant, record], RECORD, 3.0)
    ]
    assert sorted(found) == ["MB-SGD", "ULDP-AVG"]
    assert {
        one.row.errors for one in compare_with_reference([WORSE, ALIKE, record], RECORD, 3.0)
    } == {
        WORSE.errors,
        record.errors,
    }


def test_the_papers_orders_are_confirmed_refuted_or_not_resolved():
    alike = row("ULDP-SGD", [0.21, 0.22, 0.211, 0.231])
    record = [
        replace(one, unit=RECORD)
        for one in (row("SPIDER", WORSE.errors), row("MB-SGD", REFERENCE.errors))
    ]
    found = {
        (one.first, one.second): one for one in check_orders([WORSE, REFERENCE, alike, *record])
    }
    assert set(found) == {
        ("ULDP-AVG-w", "ULDP-AVG"),
        ("ULDP-AVG", "ULDP-SGD"),
        ("SPIDER", "MB-SGD"),
    }
    assert found["ULDP-AVG-w", "ULDP-AVG"].verdict == "confirmed"
    assert found["SPIDER", "MB-SGD"].verdict == "refuted"
    assert found["ULDP-AVG", "ULDP-SGD"].verdict == "not resolved"
    raw = ttest_rel(WORSE.errors, REFERENCE.errors).pvalue
    assert found["SPIDER", "MB-SGD"].p == pytest.approx(3 * raw)


def test_the_table_is_read_as_it_was_written(tmp_path):
    rows = [REFERENCE, FREE]
    write(rows, tmp_path / "study.csv")
    back = read(tmp_path / "study.csv")
    assert [vars(one) | {"claimed": 0} for one in back] == [
        vars(one) | {"claimed": 0} for one in rows
    ]
    assert math.isnan(back[0].claimed)
    assert baselines(back) == back[1:]


class Ended:
    def __init__(self, loss):
        self.loss = loss

    def final(self, metric):
        return {"train_loss": self.loss}[metric]


def test_settings_are_chosen_by_training_loss_and_never_ones_that_diverged():
    setting = StudySetting(BY_NAME["MB-SGD"], USER, 3.0, ())
    trials = [Trial(setting, (tuning,), seed) for tuning in ("a", "b", "c", "d") for seed in (0, 1)]
    losses = [0.5, 0.5, 0.1, 0.8, 0.01, None, math.nan, 0.0]
    assert choose(trials, [None if one is None else Ended(one) for one in losses]) == {
        setting: (("b",), 0.45)
    }


def test_every_method_gets_the_same_grid():
    profile = StudyProfile((1,), (0.1, 1), (0.3, 1), (0,), (1, 2))
    for method in METHODS:
        tunings = list(StudySetting(method, USER, 1, ()).grid(profile, 3))
        assert len(set(tunings)) == (4 if method.private else 2)


def test_errors_come_from_seeds_that_nothing_was_chosen_on():
    for profile in study.PROFILES.values():
        assert not set(profile.choosing) & set(profile.final)


def test_every_method_runs_with_its_words(tmp_path):
    settings = study.all_settings(
        (*WORDS, "rounds=1", "preset.local_epochs=1", "preset.silo_epochs=1"), ONE_EPSILON
    )
    trials = [
        Trial(setting, next(setting.grid(ONE_EPSILON, 3)), 0)
        for setting in settings
        if setting.unit != RECORD
    ]
    runs = study.run(trials, tmp_path)
    assert len(runs) == len(METHODS)
    assert all(run is not None and np.isfinite(run.final("train_loss")) for run in runs)
    variants = [method for method in METHODS if " with " in method.name]
    assert (
        len({run.label for run in runs}) == len(METHODS) - len(variants) + 1
    )  # ULDP-GROUP's label has its k


def test_a_small_study_is_run_and_drawn(tmp_path, monkeypatch):
    chosen = [BY_NAME[name] for name in ("ULDP-AVG-w", "MB-SGD", "FedAvg")]
    monkeypatch.setattr(study, "METHODS", chosen)
    rows = study.study(WORDS, tmp_path, StudyProfile((3,), (0.1, 1e9), (1,), (0,), (7, 8)))
    assert [(one.method, one.unit) for one in rows] == [
        ("ULDP-AVG-w", USER),
        ("MB-SGD", USER),
        ("MB-SGD", RECORD),
        ("FedAvg", NOTHING),
    ]
    for one in rows:
        assert one.seeds == (7, 8)
        assert np.isfinite(one.errors).all()
        assert one.settings.split()[0] in (
            "algo.global_lr=0.3",
            "algo.global_lr=0.1",
            "algo.local_lr=0.1",
        )
    assert math.isinf(rows[0].server)  # it sees the users' weights
    assert rows[1].certified == pytest.approx(3, rel=1e-3)
    assert rows[1].server > rows[1].certified
    assert rows[1].records < rows[2].records == rows[0].records
    assert math.isinf(rows[3].certified)
    draw(rows, tmp_path / "figure.png", title="small")
    assert (tmp_path / "figure.png").stat().st_size > 10_000
    again = study.study(WORDS, tmp_path, StudyProfile((3,), (0.1, 1e9), (1,), (0,), (7, 8)))
    assert [one.errors for one in again] == [one.errors for one in rows]


def test_the_figures_command_leaves_table_and_picture(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        study, "study", lambda *what: asked.append(what) or [REFERENCE, WORSE, FREE]
    )
    FIGURES["study/breast_cancer"](tmp_path, "paper")
    assert asked == [(("experiment=study/breast_cancer",), tmp_path, study.PROFILES["paper"])]
    assert [one.method for one in read(tmp_path / "study.csv")] == [
        "ULDP-AVG-w",
        "ULDP-AVG",
        "FedAvg",
    ]
    assert (tmp_path / "figure.png").exists()
