"""A sweep that was stopped and is started again does what is left, and comes to the same."""

import importlib.util
import json
from pathlib import Path

import pandas as pd
import pytest
import yaml
from command import refusal, run, run_child, success
from fake_runs import read_status
from interrupted import Death, watched

from fedpriv.runs.folder import RunFolder

RUN = (
    "rounds=2",
    "allocator.n_users=6",
    "allocator.n_silos=2",
    "algo.local_epochs=1",
    "accountant=rdp",
)


def sweep(settings, seeds):
    return (
        "-m",
        *RUN,
        f"algo.clip={','.join(map(str, settings))}",
        f"seed={','.join(map(str, seeds))}",
    )


def attempts(folder):
    """How often rounds were begun in each run."""
    return {
        path.parent.name: len(path.read_text().splitlines()) - 1
        for path in folder.glob("*/rounds_begun.csv")
    }


def dies_after(sums):
    """The process dies once so many sums are known."""
    seen = []

    def after(number):
        seen.append(number)
        if len(seen) == sums:
            raise Death

    return watched(lambda number: None, after)


def results(folder):
    return run("table", str(folder), "--out", "t.csv", cwd=folder), pd.read_csv(folder / "t.csv")


@pytest.mark.parametrize("size", [2, pytest.param(12, marks=pytest.mark.slow)])
def test_what_is_done_is_not_run_again(size, tmp_path):
    words = sweep(range(1, size + 1), (0, 1))
    done = success(*words, f"hydra.sweep.dir={tmp_path / 'whole'}", cwd=tmp_path)
    assert f"{2 * size} done" in done.stdout
    assert "±" in done.stdout
    again = (*words, f"hydra.sweep.dir={tmp_path / 'broken'}")
    with dies_after(2 * size + 1), pytest.raises(Death):
        run(*again, cwd=tmp_path)
    finished = {
        name
        for name in attempts(tmp_path / "broken")
        if read_status(tmp_path / "broken" / name)["state"] == "done"
    }
    assert len(finished) == size
    assert run(*again, cwd=tmp_path).returncode == 0
    times = attempts(tmp_path / "broken")
    assert {name: times[name] for name in finished} == dict.fromkeys(finished, 2)
    assert sorted(times.values()) == [2] * (2 * size - 1) + [3]
    for number in range(2 * size):
        for name in ("metrics.csv", "epsilon.csv", "config.yaml", "model.safetensors"):
            there = tmp_path / "whole" / str(number) / name
            assert (tmp_path / "broken" / str(number) / name).read_bytes() == there.read_bytes()
    assert results(tmp_path / "whole")[1].equals(results(tmp_path / "broken")[1])


def test_a_failure_is_named_and_tried_again(tmp_path):
    words = (
        "-m",
        *RUN,
        "data=breast_cancer,mnist",
        "data.root=data",
        "hydra.sweep.dir=sweep",
        "seed=0",
    )
    (tmp_path / "data").mkdir()
    done = run(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert "1 of 2 runs failed: sweep/1: data.root=data" in done.stderr
    assert "1 done, 1 failed" in done.stdout
    before = attempts(tmp_path / "sweep")
    assert run(*words, cwd=tmp_path).returncode == 2
    assert attempts(tmp_path / "sweep") == before == {"0": 2}


def test_a_folder_of_other_settings_is_refused(tmp_path):
    words = ("-m", *RUN, "hydra.sweep.dir=sweep", "seed=0")
    assert run(*words, cwd=tmp_path).returncode == 0
    done = run(*words, "algo.clip=7", cwd=tmp_path)
    assert done.returncode == 2
    assert "other settings (algo, mechanism)" in done.stderr
    assert run(*words, "rounds=3", cwd=tmp_path).returncode == 0  # more of the same
    assert [
        row["round"] for row in RunFolder(tmp_path / "sweep" / "0").tables.rows("timings.csv")
    ] == [
        "1",
        "2",
        "3",
    ]
    config = tmp_path / "sweep" / "0" / "config.yaml"
    config.write_text("".join([*config.open(), "stop: 3\n"]).replace("stop:\n", "ended:\n"))
    done = run(*words, "rounds=3", cwd=tmp_path)
    assert done.returncode == 2
    assert "other settings (ended, stop)" in done.stderr


def test_a_killed_run_is_called_so(tmp_path):
    with dies_after(1), pytest.raises(Death):
        run("-m", *RUN, "seed=0,1", "hydra.sweep.dir=sweep", cwd=tmp_path)
    from rich.console import Console

    from fedpriv.reports.sweep_states import print_sweep

    [state] = print_sweep(tmp_path / "sweep", Console(quiet=True))
    assert (state.state, json.loads((state.folder / "status.json").read_text())["state"]) == (
        "killed",
        "running",
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("launcher", "plugin", "told"),
    [
        (("hydra/launcher=joblib", "hydra.launcher.n_jobs=2"), "hydra_joblib_launcher", "none"),
        (("hydra/launcher=submitit_local",), "hydra_submitit_launcher", "exact"),
    ],
)
def test_the_same_with_other_launchers(launcher, plugin, told, tmp_path):
    if importlib.util.find_spec(f"hydra_plugins.{plugin}") is None:
        pytest.skip(f"needs {plugin}")
    words = [*sweep((1, 2), (0, 1)), f"evaluation={told}"]
    assert run(*words, "hydra.sweep.dir=alone", cwd=tmp_path).returncode == 0
    done = run_child(*words, *launcher, "hydra.sweep.dir=launched", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for number in range(4):
        here, there = (
            Path(tmp_path / name / str(number) / "metrics.csv") for name in ("alone", "launched")
        )
        assert here.read_bytes() == there.read_bytes()
    before = attempts(tmp_path / "launched")
    assert run_child(*words, *launcher, "hydra.sweep.dir=launched", cwd=tmp_path).returncode == 0
    assert attempts(tmp_path / "launched") == before


def test_optuna_searches_by_the_last_metric_and_a_repeated_search_continues(tmp_path):
    if importlib.util.find_spec("hydra_plugins.hydra_optuna_sweeper") is None:
        pytest.skip("needs hydra_optuna_sweeper")
    search = ("hydra/sweeper=optuna", "hydra.sweeper.n_jobs=1", "hydra.sweeper.direction=maximize")
    words = ("-m", *RUN, *search, "algo.clip=interval(0.1,1)", "hydra.sweep.dir=search")
    success(*words, "hydra.sweeper.n_trials=2", cwd=tmp_path)
    success(*words, "hydra.sweeper.n_trials=3", cwd=tmp_path)
    assert attempts(tmp_path / "search") == {"0": 2, "1": 2, "2": 2}
    finals = [pd.read_csv(tmp_path / f"search/{n}/metrics.csv").accuracy.iloc[-1] for n in range(3)]
    found = yaml.safe_load((tmp_path / "search/optimization_results.yaml").read_text())
    assert found["best_value"] == pytest.approx(max(finals))
    assert 0.1 <= found["best_params"]["algo.clip"] <= 1


@pytest.mark.parametrize("words", [("-m", "hydra.sweep.dir=sweep"), ()])
def test_a_search_needs_a_sweeper_that_searches(words, tmp_path):
    line = refusal(*words, *RUN, "algo.clip=interval(0.1,1)", cwd=tmp_path)
    assert line.startswith("fedpriv: algo.clip=interval(0.1,1): a value, unless")
    assert not list(tmp_path.iterdir())
