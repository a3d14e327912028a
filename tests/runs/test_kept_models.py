"""Runs whose silos keep models of their own between rounds: and resumed."""

import numpy as np
import pytest
from runs import experiment
from safetensors.numpy import load_file

from fedpriv.runs.loop import train

WORDS = [
    "algo=dp_erm",
    "model=bounded_linear",
    "preset.n_silos=4",
    "allocator=equal",
    "aggregation.cohort=3",
]
WORDS += [
    "aggregation.threshold=3",
    "algo.calibration=given",
    "algo.noise_multiplier=1.0",
    "algo.local_steps=2",
]


def run(folder, rounds, *words, resume=False):
    train(experiment(f"rounds={rounds}", "algo.rounds=4", *WORDS, *words), "", folder, resume)
    return load_file(folder / "checkpoint.safetensors")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The state after four rounds in one go."""
    return run(tmp_path_factory.mktemp("whole") / "run", 4)


def same(one, other):
    assert {key: value.tobytes() for key, value in one.items()} == {
        key: value.tobytes() for key, value in other.items()
    }


def test_the_checkpoint_holds_the_models_that_silos_keep(whole):
    """Four silos, three in a sum: one keeps its own."""
    params, [left_out] = whole["params"], set(whole) - {"params"}
    assert left_out in {f"silo/silo{silo}/model" for silo in range(4)}
    assert params.shape == whole[left_out].shape
    assert np.abs(params - whole[left_out]).max() > 1e-3


def test_a_resumed_run_ends_with_the_same_bits(whole, tmp_path):
    first = run(tmp_path / "run", 2)
    assert len(first) == 2
    same(run(tmp_path / "run", 4, resume=True), whole)


def test_nobody_keeps_anything_where_everybody_goes_on_from_the_average(tmp_path):
    assert list(run(tmp_path / "run", 2, "algo.broadcast_all=true")) == ["params"]
