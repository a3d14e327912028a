"""Algorithms whose server or silos remember more than the model: whole commands, in one go and
resumed."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from command import success
from safetensors.numpy import load_file

from fedpriv.runs.folder import RunFolder

SILOS = ["silo0", "silo1", "silo2"]
REMEMBERED = {
    "fedprox": set(),
    "fedopt": {"slot/momentum", "slot/second_moment"},
    "scaffold": {"slot/control", *(f"silo/{silo}/control" for silo in SILOS)},
    "spider": {"slot/estimate", "slot/previous", "slot/output"},
    "prox_svrg": {"slot/anchor", "slot/anchor_gradient", "slot/output"},
    "localized_mb_sgd": {"slot/centre", "slot/output", "slot/phase"},
    "mr_mtl": {f"silo/{silo}/params" for silo in SILOS},
    "dp_erm": {"silo/silo2/model"},
}
GIVEN = [
    "algo.calibration=given",
    "algo.noise_multiplier=0.1",
    "algo.batch_size=10",
    "algo.rounds=2",
    "algo.clip=9",
]
ERM = [
    *("model=bounded_linear", "preset.n_silos=4", "allocator=equal", "allocator.n_users=4"),
    *("aggregation.cohort=3", "aggregation.threshold=3", "algo.rounds=4"),
    *("algo.calibration=given", "algo.noise_multiplier=1.0", "algo.local_steps=2"),
]
WORDS = {
    "spider": [*GIVEN, "algo.anchor_batch_size=20"],
    "prox_svrg": GIVEN,
    "localized_mb_sgd": [*GIVEN, "algo.phases=1"],
    "mr_mtl": ["algo.epsilons=[1,3,9]", "algo.rounds=2", "preset.batch_size=1000"],
    "dp_erm": ERM,
}
"""Of methods without local epochs; nothing may depend on the number of rounds, with which a run is
resumed."""


def train(*words, cwd):
    success(*words, cwd=cwd)


@pytest.fixture(scope="module", params=REMEMBERED)
def runs(request, tmp_path_factory):
    """An algorithm, and a folder with two runs of it: `whole` has two rounds, `first` one."""
    folder = tmp_path_factory.mktemp(request.param)
    for name, rounds in (("whole", 2), ("first", 1)):
        words = [f"algo={request.param}", "allocator.n_users=8", f"rounds={rounds}"]
        words += WORDS.get(request.param, ["algo.local_epochs=2"])
        train(*words, f"hydra.run.dir={name}", cwd=folder)
    return request.param, folder


@pytest.fixture
def cut(runs, tmp_path):
    """A copy of `first`, to go on from."""
    return shutil.copytree(runs[1] / "first", tmp_path / "cut")


def test_the_checkpoint_holds_all_that_is_remembered(runs):
    algo, folder = runs
    state = load_file(folder / "whole" / "checkpoint.safetensors")
    assert set(state) == {"params"} | REMEMBERED[algo]
    assert all(np.isfinite(array).all() and array.any() for array in state.values())
    for key in (key for key in state if key.endswith("/model")):
        assert state[key].shape == state["params"].shape
        assert np.abs(state[key] - state["params"]).max() > 1e-3


def test_nobody_keeps_anything_where_everybody_goes_on_from_the_average(tmp_path):
    words = ("algo=dp_erm", *ERM, "algo.broadcast_all=true", "rounds=2", "hydra.run.dir=run")
    train(*words, cwd=tmp_path)
    assert list(load_file(tmp_path / "run" / "checkpoint.safetensors")) == ["params"]


def test_a_resumed_run_ends_with_the_same_bits(runs, cut):
    train(f"resume={cut}", "rounds=2", cwd=cut.parent)
    for name in (
        "metrics.csv",
        "epsilon.csv",
        "traffic.csv",
        "model.safetensors",
        "checkpoint.safetensors",
    ):
        assert (cut / name).read_bytes() == (runs[1] / "whole" / name).read_bytes(), name
    status = json.loads((cut / "status.json").read_text())
    assert (status["state"], status["aborted_rounds"]) == ("done", {})


def test_whatever_is_forgotten_changes_the_end(runs, cut):
    """So a resumed run that ends with the same bits has brought all of it back."""
    checkpoint, whole = RunFolder(cut), (runs[1] / "whole" / "model.safetensors").read_bytes()
    saved = checkpoint.load_checkpoint()
    for key in saved.arrays.keys() - {
        "params",
        "slot/output",
    }:  # the last iterate takes its place anyway
        forgotten = {**saved.arrays, key: np.zeros_like(saved.arrays[key])}
        checkpoint.save_checkpoint(replace(saved, arrays=forgotten))
        train(f"resume={cut}", "rounds=2", cwd=cut.parent)
        assert (cut / "model.safetensors").read_bytes() != whole, key
