"""Whole runs whose parties are actors of Ray: the bits of one process, and what happens when a
process dies."""

import json
import os
import sys
import time
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from mortal_methods import SICK, MortalAvg, MortalScaffold
from ray_clusters import STORE
from runs import experiment

from fedpriv.engines.ray import RayEngine
from fedpriv.runs.loop import train

pytestmark = [
    pytest.mark.xdist_group("ray"),
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
]

TWO = ["preset.n_silos=2", "rounds=2"]
PRIVATE = ["aggregation=private_weighting", "aggregation.key_bits=512", "aggregation.n_max=120"]
SETUPS = {
    "plain": [*TWO, "algo=uldp_avg", "algo.user_rate=0.5"],
    "masked": [*TWO, "algo=uldp_avg", "aggregation=masked", "data=digits"],
    "secagg": [*TWO, "algo=uldp_avg", "aggregation=secagg"],
    "private weighting": [*TWO, "algo=uldp_avg_w", *PRIVATE, "aggregation.count_cap=60"],
    "models that silos keep": [
        *[
            "algo=dp_erm",
            "model=bounded_linear",
            "preset.n_silos=3",
            "allocator=equal",
            "algo.local_steps=2",
        ],
        *["aggregation.cohort=2", "aggregation.threshold=2", "rounds=3"],
    ],
    "peers without a server": [
        *["preset.n_silos=3", "rounds=2", "algo=fedavg", "preset.silo_epochs=1"],
        *["aggregation=admm", "aggregation.beyond_safe=true"],
    ],
    "slots and silo states": [*TWO, "algo=scaffold", "aggregation=masked", "rounds=3"],
}


def finished(folder):
    status = json.loads((folder / "status.json").read_text())
    assert status["state"] == "done"
    return status


def actors():
    """Processes of the cluster in which a party lives."""
    mine, found = os.environ["RAY_TMPDIR"].encode(), []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if (
                b"ray::PartyProcess" in (path / "cmdline").read_bytes()
                and mine in (path / "environ").read_bytes()
            ):
                found.append(int(path.name))
        except OSError:
            continue
    return found


def nothing_is_left():
    end = time.monotonic() + 20
    while actors():
        assert time.monotonic() < end, "parties are left behind"
        time.sleep(0.05)


SHORT = "models that silos keep"
"""The set-up that has most of the steps of the others: keys, secure sums, states of silos."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == SHORT else pytest.mark.slow) for name in SETUPS]
)
def test_a_run_is_that_of_one_process_to_the_bit(name, cluster, tmp_path):
    exp = experiment(*SETUPS[name])
    train(exp, "", tmp_path / "one")
    train(replace(exp, engine=RayEngine(address=cluster.address)), "", tmp_path / "many")
    for file in (
        "metrics.csv",
        "epsilon.csv",
        "traffic.csv",
        "model.safetensors",
        "checkpoint.safetensors",
    ):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "many" / file).read_bytes(), (
            file
        )
    nothing_is_left()


def mortal(cls, exp):
    """The experiment with the method at which a silo's process ends in round 2."""
    values = {field.name: getattr(exp.algo, field.name) for field in fields(exp.algo)}
    return replace(exp, algo=cls(**values))


@pytest.mark.filterwarnings("ignore:silo1 is silent")
@pytest.mark.slow
@pytest.mark.parametrize("aggregation", ["plain", "secagg"])
def test_a_process_that_dies_costs_its_round_and_the_run_goes_on(aggregation, cluster, tmp_path):
    exp = experiment("preset.n_silos=2", "rounds=4", "algo=uldp_avg", f"aggregation={aggregation}")
    train(
        replace(mortal(MortalAvg, exp), engine=RayEngine(address=cluster.address)),
        "",
        tmp_path / "run",
    )
    status = finished(tmp_path / "run")
    assert list(status["aborted_rounds"]) == ["2"]
    assert SICK in status["aborted_rounds"]["2"]
    loss = pd.read_csv(tmp_path / "run" / "metrics.csv")["loss"].to_numpy()
    assert loss[2] == loss[1]
    assert len(set(loss)) == 4  # rounds 0, 1 = 2, 3, 4
    charged = pd.read_csv(tmp_path / "run" / "epsilon.csv").groupby("round")["certified"].min()
    assert (np.diff(charged) > 0).all()
    nothing_is_left()


@pytest.mark.filterwarnings("ignore:silo1 is silent")
def test_a_sum_over_fewer_silos_does_without_the_dead_one_which_comes_back_with_its_state(
    cluster, tmp_path
):
    words = [
        "preset.n_silos=3",
        "rounds=3",
        "algo=scaffold",
        "aggregation=secagg",
        "aggregation.cohort=2",
    ]
    exp = experiment(*words, "aggregation.threshold=2")
    train(
        replace(mortal(MortalScaffold, exp), engine=RayEngine(address=cluster.address)),
        "",
        tmp_path / "run",
    )
    status = finished(tmp_path / "run")
    assert status["aborted_rounds"] == {}
    assert "its process died" in status["lost_parties"]["2"][SICK]
    assert status["set_ups"] == 2  # before rounds 1 and 3; they send nothing
    assert len(set(pd.read_csv(tmp_path / "run" / "metrics.csv")["loss"])) == 4


@pytest.mark.slow
def test_a_second_node_takes_its_part(cluster, tmp_path):
    """Reserved cores do not fit one node of the two."""
    node = cluster.add_node(num_cpus=2, object_store_memory=STORE, include_dashboard=False)
    try:
        exp = experiment(*SETUPS["masked"])
        engine = RayEngine(address=cluster.address, cpus_per_party=1.0)
        train(replace(exp, engine=engine), "", tmp_path / "many")
        train(exp, "", tmp_path / "one")
    finally:
        cluster.remove_node(node)
    for file in ("metrics.csv", "traffic.csv", "model.safetensors"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "many" / file).read_bytes(), (
            file
        )
