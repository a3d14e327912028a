"""Runs side by side give what each gives alone."""

import pytest
from command import refusal, run
from fake_runs import read_status
from interrupted import Death, dies_in

from fedpriv.runs.folder import RunFolder

NETWORK = (
    "data=breast_cancer",
    "model=mlp",
    "model.hidden=[5]",
    "allocator=uniform",
    "allocator.n_silos=2",
)
SWEEP = ("-m", *NETWORK, "rounds=3", "algo.clip=0.5,2")
STACKED = "hydra/launcher=side_by_side"
JOBLIB = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=1")
SEARCH = ("hydra/sweeper=optuna", "hydra.sweeper.n_trials=4", "hydra.sweeper.direction=maximize")
GIVEN = ("algo.calibration=given", "algo.noise_multiplier=2")
"""Noise that need not be solved for an epsilon."""
FILES = (
    "metrics.csv",
    "epsilon.csv",
    "traffic.csv",
    "config.yaml",
    "model.safetensors",
    "checkpoint.safetensors",
)


def files(folder, runs, names=FILES):
    return {
        (number, name): (folder / str(number) / name).read_bytes()
        for number in range(runs)
        for name in names
    }


@pytest.mark.parametrize(
    "words",
    [
        ("algo=spider", "algo.batch_size=3,40", *GIVEN),
        ("algo=uldp_avg", "algo.global_lr=1,2", "preset.n_users=6", "preset.local_epochs=1"),
    ],
)
def test_every_run_has_the_bits_of_a_single_one(tmp_path, words):
    for name, launcher in (("alone", ()), ("side_by_side", (STACKED,))):
        assert (
            run(
                *SWEEP, *words, *launcher, f"hydra.sweep.dir={tmp_path / name}", cwd=tmp_path
            ).returncode
            == 0
        )
    assert files(tmp_path / "alone", 4) == files(tmp_path / "side_by_side", 4)
    for number in range(4):
        assert read_status(tmp_path / "side_by_side" / str(number))["state"] == "done"
        overrides = ".hydra/overrides.yaml"
        here, there = (
            tmp_path / name / str(number) / overrides for name in ("side_by_side", "alone")
        )
        assert sorted(here.read_text().splitlines()) == sorted(there.read_text().splitlines())


def test_a_sweep_that_died_goes_on(tmp_path):
    words = (*SWEEP, STACKED, "algo=minibatch_sgd", "algo.global_lr=0.1,0.5")
    assert run(*words, f"hydra.sweep.dir={tmp_path / 'whole'}", cwd=tmp_path).returncode == 0
    again = (*words, f"hydra.sweep.dir={tmp_path / 'broken'}")
    sums = []
    with dies_in(2, sums=sums), pytest.raises(Death):
        run(*again, cwd=tmp_path)
    assert sums.count(2) == 4
    assert not (tmp_path / "broken" / "0" / "model.safetensors").exists()
    assert run(*again, cwd=tmp_path).returncode == 0
    assert files(tmp_path / "whole", 4, FILES[:-1]) == files(tmp_path / "broken", 4, FILES[:-1])
    rounds = [
        row["round"] for row in RunFolder(tmp_path / "broken" / "3").tables.rows("rounds_begun.csv")
    ]
    assert rounds == ["1", "2", "2", "3"]
    assert run(*again, cwd=tmp_path).returncode == 0  # nothing is left to do
    assert files(tmp_path / "whole", 4, FILES[:-1]) == files(tmp_path / "broken", 4, FILES[:-1])


@pytest.mark.parametrize(
    ("launcher", "epsilons", "code"),
    [
        ((STACKED,), "100,0.001", 0),
        ((STACKED,), "0.001", 2),
        (JOBLIB, "0.001,100", 0),
        (JOBLIB, "0.001", 2),
        (SEARCH, "choice(100,0.001)", 0),
    ],
)
def test_a_run_that_diverges_is_named_and_fails_a_sweep_without_another(
    launcher, epsilons, code, tmp_path
):
    kind, _, plugin = launcher[0].removeprefix("hydra/").partition("=")
    if launcher != (STACKED,):
        pytest.importorskip(f"hydra_plugins.hydra_{plugin}_{kind}")
    far = ("algo=minibatch_sgd", "algo.global_lr=1e38", f"algo.epsilon={epsilons}")
    words = (*SWEEP[:-1], *launcher, *far)
    done = run(*words, f"hydra.sweep.dir={tmp_path / 'sweep'}", cwd=tmp_path)
    folders = [path.parent for path in (tmp_path / "sweep").glob("*/status.json")]
    failed = [
        read_status(folder)["reason"]
        for folder in folders
        if read_status(folder)["state"] == "failed"
    ]
    assert done.returncode == code
    assert failed
    assert all("the global model is not finite" in reason for reason in failed)
    assert ("MB-SGD" in done.stdout) == (code == 0)
    assert (f"{len(failed)} of {len(folders)} runs failed" in done.stderr) == (code == 2)


def test_wrong_numbers_of_runs_are_refused(tmp_path):
    assert "hydra.launcher.at_once=0" in refusal(
        *SWEEP, STACKED, "algo=minibatch_sgd", "hydra.launcher.at_once=0", cwd=tmp_path
    )
