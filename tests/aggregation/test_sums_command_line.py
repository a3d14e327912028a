"""Masked and secure sums at the command line, beside sums in the clear."""

import json
import re

import command
import numpy as np
import pandas as pd
import pytest

from fedpriv.accountants.pld import gaussian_epsilon


def fedpriv(folder, *words):
    small = ("rounds=1", "algo.local_epochs=1", "allocator.n_users=8", f"hydra.run.dir={folder}")
    return command.run(*words, *small, cwd=folder.parent)


def done(folder, *words):
    """The folder of a run that ends well."""
    ended = fedpriv(folder, *words)
    assert ended.returncode == 0, ended.stderr
    assert json.loads((folder / "status.json").read_text())["state"] == "done"
    return folder


def test_a_range_that_messages_can_exceed_is_refused_before_data_are_read(tmp_path):
    """Otherwise whether a run fails, and who sees that, depends on the data."""
    word, nowhere = "aggregation=masked", ("data=creditcard", "data.root=nowhere")
    ended = fedpriv(tmp_path / "out", word, *nowhere, "aggregation.range=0.001")
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert "aggregation.range=0.001" in ended.stderr
    assert "nowhere" in fedpriv(tmp_path / "out", word, *nowhere).stderr
    refused = fedpriv(tmp_path / "out", word, "aggregation.range=0.001").stderr
    least = float(re.search(r"at least (\S+), which messages can reach", refused)[1])
    below = float(np.nextafter(least, 0))
    assert (
        f"at least {least!r},"
        in fedpriv(tmp_path / "out", word, f"aggregation.range={below!r}").stderr
    )
    assert not (tmp_path / "out").exists()
    assert fedpriv(tmp_path / "out", word, f"aggregation.range={least!r}").returncode == 0


def test_command_line_tells_an_overflow_in_one_line_a_round(tmp_path):
    """Nothing bounds the messages of federated averaging."""
    ended = fedpriv(
        tmp_path / "out", "algo=fedavg", "aggregation=masked", "aggregation.range=0.001"
    )
    assert ended.returncode == 2
    in_round, in_run = [
        line for line in ended.stderr.splitlines() if "aggregation.range=0.001" in line
    ]
    assert in_round.startswith("round 1 released nothing: ")
    assert in_run.startswith("fedpriv: no round had a sum; round 1: ")
    assert "Traceback" not in ended.stderr


def test_a_run_over_part_of_the_silos_repeats(tmp_path):
    words = ["aggregation=secagg"]
    words += [f"aggregation.{key}=2" for key in ("cohort", "threshold", "candidates")]
    one, two = (done(tmp_path / name, *words) for name in ("one", "two"))
    models = [(folder / "model.safetensors").read_bytes() for folder in (one, two)]
    assert models[0] == models[1]
    table = pd.read_csv(one / "epsilon.csv").set_index(["observer", "method"])["certified"]
    assert table["released model", "pld"] == pytest.approx(0.72552, 1e-4)
    # One of the two shares that make up the noise is known to a silo.
    assert table["silo", "pld"] == pytest.approx(gaussian_epsilon(np.sqrt(2) / 5, 1e-5), 1e-4)
