"""Huang's figures: what is run, what is measured, which lines are drawn."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from runs import experiment

from fedpriv.aggregation.secagg.aggregation import SecAgg
from fedpriv.papers import experiments
from fedpriv.papers.huang import excess_risk
from fedpriv.reports.finished_runs import find_runs
from fedpriv.runs.loop import train


def finished(folder, *words):
    """A run of the tiniest kind, with its resolved configuration."""
    from omegaconf import OmegaConf

    from fedpriv.settings.compose import CommandLine, compose_jobs, without_hydra
    from fedpriv.settings.words import conf_dir

    few = [
        "algo=dp_erm",
        "model=bounded_linear",
        "allocator=equal",
        "allocator.n_silos=4",
        "rounds=2",
        *words,
    ]
    few += ["aggregation.cohort=3", "aggregation.threshold=3", "preset.silo_clip=2"]
    [config] = compose_jobs(CommandLine.parse(few), conf_dir())
    train(experiment(*few), OmegaConf.to_yaml(without_hydra(config), resolve=True), folder)


def test_excess_risk_is_measured_and_bounded(tmp_path):
    for calibration in ("certified", "given"):
        epsilon = 8 if calibration == "certified" else 1  # as in the file: given noise has none
        words = [f"algo.calibration={calibration}", "algo.broadcast_all=true"]
        words += [f"algo.epsilon={epsilon}"]
        finished(tmp_path / calibration, *words)
    optima = {}
    rows = excess_risk.measure(find_runs([tmp_path]), optima)
    found = {row["curve"]: row["mean"] for row in rows}
    assert set(found) == set(excess_risk.CURVES)
    assert list(optima) == [0]
    untrained = np.log(2) - optima[0].value  # of a model that knows nothing
    assert max(found["given"], found["certified"]) < untrained
    assert 0 < found["given"] < found["bound"] < found["noisy drift"]
    assert 0 < found["certified"] < found["bound"] < found["printed"]
    assert all(np.isnan(row["std"]) for row in rows)  # a single seed


@pytest.mark.parametrize("profile", ["quick", "paper"])
def test_every_point_of_excess_risk_has_settings_that_are_allowed(profile):
    for n_summed in excess_risk.SUMMED[profile]:
        words = excess_risk.overrides(profile, local_steps=5, n_summed=n_summed)
        values = dict(word.split("=") for word in words if "=" in word)
        if "aggregation" in values:
            continue
        cohort, most = (int(values[f"aggregation.{key}"]) for key in ("cohort", "candidates"))
        size = SecAgg(cohort=cohort, candidates=most).cohort_size(excess_risk.SILOS)
        assert size.least == n_summed


def test_the_committed_excess_risks_are_below_the_bound_and_those_of_the_page():
    root = Path(__file__).parents[2]
    table = pd.read_csv(root / "results" / "huang_excess_risk.csv")
    curves = table.pivot(index=["varied", "value"], columns="curve", values="mean")
    shown = {("K", k) for k in excess_risk.LOCAL_STEPS}
    assert {*curves.index} == shown | {("E", e) for e in excess_risk.SUMMED["quick"]}
    ordered = curves[["given", "certified", "bound", "noisy drift"]]
    assert (ordered["given"] > 0).all()
    assert (ordered.diff(axis=1).iloc[:, 1:3] > 0).all(axis=None)
    assert (ordered["bound"] <= ordered["noisy drift"]).all()
    assert (ordered["certified"] - ordered["given"] < 1e-4).all()
    page = (root / "docs" / "papers" / "huang.md").read_text()
    measured = curves["certified"]
    assert f"between {measured.min():.4f} and {measured.max():.4f}" in page
    bounds = [curves["bound"]["K", k] for k in (1, 5, 20)]
    told = f"{bounds[0]:.2f} for K = 1, {bounds[1]:.0f} for K = 5 and {bounds[2]:,.0f} for K = 20"
    assert told in page


def test_excess_risk_runs_the_same_steps_at_every_point(tmp_path, monkeypatch):
    commands = []

    def run(command, check):
        commands.append(dict(word.split("=") for word in command[3:] if "=" in word))
        (tmp_path / "out" / command[4].rpartition("/")[2]).mkdir(parents=True)
        return type("Done", (), {"returncode": 0})

    curves = [{"curve": name, "mean": 1.0, "std": 0.1} for name in excess_risk.CURVES]
    monkeypatch.setattr(experiments.subprocess, "run", run)
    monkeypatch.setattr(excess_risk, "find_runs", list)
    monkeypatch.setattr(excess_risk, "measure", lambda runs, optima: curves)
    figure = excess_risk.draw(tmp_path / "out")
    steps = {int(words["rounds"]) * int(words["algo.local_steps"]) for words in commands}
    assert steps == {excess_risk.STEPS["quick"]}
    assert len(commands) == 5 + 4 - 1  # K = 5, E = 12 is in both panels
    assert [words["aggregation"] for words in commands if "aggregation" in words] == ["masked"]
    assert (tmp_path / "out" / "figure.png").stat().st_size > 10_000
    assert len(pd.read_csv(tmp_path / "out" / "excess_risk.csv")) == 9 * len(excess_risk.CURVES)
    assert [len(axis.lines) for axis in figure.axes] == [5, 5]
