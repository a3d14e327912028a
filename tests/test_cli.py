import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

TINY = ["rounds=3", "algo.local_epochs=1", "allocator.n_users=8"]


def fedpriv(*words, cwd, **options):
    return subprocess.run(
        [sys.executable, "-m", "fedpriv", *words], cwd=cwd, capture_output=True, text=True, check=False, **options
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    done = fedpriv(*TINY, "hydra.run.dir=out", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "out", done


def test_help_names_groups_and_examples_quickly_enough(tmp_path):
    done = fedpriv("--help", cwd=tmp_path)
    assert done.returncode == 0
    groups = "data allocator model algo mechanism accountant aggregation engine experiment"
    for group in groups.split():
        assert f"\n  {group} " in done.stdout
    assert done.stdout.split("Examples:")[1].count("\n  fedpriv") >= 5
    assert "uldp_avg" in done.stdout


@pytest.mark.parametrize(
    "words", [["--help"], ["--cfg", "job"], ["epsilon", "rounds=100"], ["epsilon", "algo=uldp_group", "rounds=2"]]
)
def test_help_and_accounting_never_load_torch(words, tmp_path):
    program = (
        "import sys; sys.argv = ['fedpriv', *sys.argv[1:]]\n"
        "from fedpriv.cli import main\n"
        "try: main()\nexcept SystemExit as stop: assert not stop.code, stop.code\n"
        "assert 'torch' not in sys.modules, 'torch was imported'"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "outputs").exists()


def test_cfg_job_prints_what_a_user_can_set(tmp_path):
    done = fedpriv("data=creditcard", "--cfg", "job", cwd=tmp_path)
    for line in ("rounds: 100", "noise_multiplier: 5.0", "delta: 1.0e-05", "n_silos: 5"):
        assert line in done.stdout, done.stdout


def test_epsilon_prints_every_observer(tmp_path):
    done = fedpriv("epsilon", "data=creditcard", "algo=uldp_avg", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for text in ("released model", "server", "silo", "user", "add/remove", "10.7255", "9.9973"):
        assert text in done.stdout, done.stdout


def test_epsilon_prints_a_grid(tmp_path):
    done = fedpriv("epsilon", "-m", "algo.noise_multiplier=5,10", "rounds=2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "algo.noise_multiplier=5" in done.stdout
    assert "algo.noise_multiplier=10" in done.stdout


def test_epsilon_solves_for_rounds_and_noise(tmp_path):
    done = fedpriv("epsilon", "data=creditcard", "accountant.budget=9.9973", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    # ALGORITHMS 9, row 3: sigma 5 and 100 rounds cost exactly this
    assert "epsilon 9.9973: 100 rounds at noise 5\n" in done.stdout
    assert "epsilon 9.9973: 100 rounds at noise 5" in done.stdout.split("at noise 5\n", 1)[1]


def test_a_budget_ends_the_run_at_the_last_round_that_fits(tmp_path):
    done = fedpriv("rounds=9", "accountant.budget=1.4", "algo.local_epochs=1", "hydra.run.dir=out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    epsilon = pd.read_csv(tmp_path / "out" / "epsilon.csv")
    certified = epsilon[(epsilon["observer"] == "released model") & (epsilon["method"] == "pld")]["certified"]
    # one round 0.7255, two 1.0608, three 1.3258, four 1.5545
    assert list(epsilon["round"].unique()) == [1, 2, 3]
    assert certified.iloc[-1] <= 1.4
    status = json.loads((tmp_path / "out" / "status.json").read_text())
    assert status["state"] == "done"
    assert "round 4" in status["reason"]


def test_rounds_between_evaluations_still_train_and_time(tmp_path):
    done = fedpriv("rounds=5", "evaluate_every=2", "checkpoint_every=3", *TINY[1:], "hydra.run.dir=out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    out = tmp_path / "out"
    assert list(pd.read_csv(out / "metrics.csv")["round"]) == [0, 2, 4, 5]
    assert list(pd.read_csv(out / "epsilon.csv")["round"].unique()) == [2, 4, 5]
    timings = pd.read_csv(out / "timings.csv")
    assert list(timings["round"]) == [1, 2, 3, 4, 5]
    assert (timings["evaluation"] > 0).tolist() == [False, True, False, True, True]


def test_allocation_prints_and_draws(tmp_path):
    done = fedpriv("allocation", "allocator.n_users=9", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    pictures = list((tmp_path / "outputs").glob("*.png"))
    assert len(pictures) == 1
    assert pictures[0].stat().st_size > 5000


def test_a_run_leaves_its_folder(finished):
    out, done = finished
    metrics = pd.read_csv(out / "metrics.csv")
    assert list(metrics["round"]) == [0, 1, 2, 3]
    assert {"loss", "accuracy", "update_norm", "contribution_norm"} <= set(metrics.columns)
    epsilon = pd.read_csv(out / "epsilon.csv")
    columns = "round observer unit adjacency method certified claimed assumptions"
    assert list(epsilon.columns) == columns.split()
    assert set(epsilon["observer"]) == {"released model", "server", "silo"}
    assert set(epsilon["method"]) == {"rdp", "pld"}
    assert list(pd.read_csv(out / "timings.csv")["round"]) == [1, 2, 3]
    status = json.loads((out / "status.json").read_text())
    assert status["state"] == "done"
    assert status["dp_valid"] is False
    assert (out / "config.yaml").exists()
    assert all(np.isfinite(tensor).all() for tensor in load_file(out / "model.safetensors").values())
    assert "epsilon" in done.stdout
    assert not list(out.glob("*.tmp"))


def test_the_same_seed_repeats_bit_for_bit_and_another_differs(finished, tmp_path):
    out, _ = finished
    assert fedpriv(*TINY, "hydra.run.dir=same", cwd=tmp_path).returncode == 0
    assert fedpriv(*TINY, "hydra.run.dir=other", "seed=1", cwd=tmp_path).returncode == 0
    for name in ("metrics.csv", "epsilon.csv", "model.safetensors"):
        assert (tmp_path / "same" / name).read_bytes() == (out / name).read_bytes()
    assert (tmp_path / "other" / "metrics.csv").read_bytes() != (out / "metrics.csv").read_bytes()


def test_killed_and_resumed_equals_uninterrupted(tmp_path):
    words = ["data=digits", "rounds=6", "algo=uldp_avg_w", "algo.user_rate=0.7", "algo.local_epochs=20"]
    assert fedpriv(*words, "hydra.run.dir=whole", cwd=tmp_path).returncode == 0
    out = tmp_path / "cut"
    process = subprocess.Popen(
        [sys.executable, "-m", "fedpriv", *words, "hydra.run.dir=cut"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_for(lambda: lines(out / "timings.csv") >= 3, process)
    process.kill()
    process.wait()
    # A torn line, as a kill in the middle of a write would leave it.
    with open(out / "metrics.csv", "a") as file:
        file.write("5,0.3")
    assert json.loads((out / "status.json").read_text())["state"] == "running"
    resumed = fedpriv("resume=cut", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    for name in ("metrics.csv", "epsilon.csv", "traffic.csv", "model.safetensors", "config.yaml"):
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    assert json.loads((out / "status.json").read_text())["state"] == "done"


def test_resume_refuses_other_settings(finished, tmp_path):
    out, _ = finished
    done = fedpriv(f"resume={out}", "algo.clip=3", cwd=tmp_path)
    assert done.returncode == 2
    assert "algo.clip=3" in done.stderr


def test_system_randomness_is_private_and_differs(tmp_path):
    for name in ("one", "two"):
        done = fedpriv(*TINY, "randomness=system", f"hydra.run.dir={name}", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two")]
    assert models[0] != models[1]
    assert json.loads((tmp_path / "one" / "status.json").read_text())["dp_valid"] is True


def lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


def wait_for(condition, process, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, "ended before it could be killed"
        assert time.monotonic() < end, "took too long"
        time.sleep(0.02)
