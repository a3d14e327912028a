"""An algorithm of each kind whose messages are vectors, under every way to sum them."""

import json

import numpy as np
import pandas as pd
import pytest
from runs import experiment
from safetensors.numpy import load_file

from fedpriv.runs.loop import train

ALGORITHMS = ["fedopt", "scaffold", "uldp_naive", "uldp_group_2", "uldp_sgd", "uldp_avg_w"]
SECURE = ["aggregation=masked", "aggregation=secagg"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Runs an algorithm for two rounds with the given words, once: the folder."""
    done = {}

    def run(algo, *words):
        if (algo, *words) not in done:
            folder = done[algo, *words] = tmp_path_factory.mktemp(algo) / "run"
            train(experiment("rounds=2", f"algo={algo}", *words), "", folder)
            assert json.loads((folder / "status.json").read_text())["aborted_rounds"] == {}
        return done[algo, *words]

    return run


def model(folder):
    return np.concatenate(
        [part.ravel() for part in load_file(folder / "model.safetensors").values()]
    )


@pytest.mark.parametrize("aggregation", SECURE)
@pytest.mark.parametrize("algo", ALGORITHMS)
def test_a_secure_run_is_the_plain_run(algo, aggregation, run):
    plain, secure = run(algo), run(algo, aggregation)
    # The grid step is below 1e-11 here; a second round trains from weights that differ by as much,
    # in float32.
    np.testing.assert_allclose(model(secure), model(plain), rtol=1e-5, atol=1e-6)
    epsilons = [
        pd.read_csv(folder / "epsilon.csv")["certified"].to_numpy() for folder in (plain, secure)
    ]
    np.testing.assert_allclose(*epsilons, rtol=1e-9)
