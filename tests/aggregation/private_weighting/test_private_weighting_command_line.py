"""Whole runs: what private weighting leaves in a run's folder, beside the same run in the clear."""

import json

import command
import numpy as np
import pandas as pd
import pytest

PRIVATE = ["aggregation=private_weighting", "aggregation.key_bits=512", "aggregation.n_max=150"]


def run(folder, *words):
    return command.run(*words, f"hydra.run.dir={folder}", cwd=folder.parent)


def metrics(folder, *words):
    done = run(folder, "algo.weighting=records", *words)
    assert done.returncode == 0, done.stderr
    return pd.read_csv(folder / "metrics.csv"), done


def columns_alike(one, other):
    for name in ("loss", "accuracy", "c_index", "update_norm"):
        if name in one:
            np.testing.assert_allclose(one[name], other[name], rtol=1e-4, err_msg=name)


def certified(folder):
    rows = pd.read_csv(folder / "epsilon.csv")
    return rows[rows["round"] == rows["round"].max()].groupby("observer")["certified"].min()


def test_a_run_agrees_with_plain_and_certifies_server_and_silos(tmp_path):
    common = ["rounds=1", "algo.local_epochs=1"]
    plain, _ = metrics(tmp_path / "plain", *common)
    secret, done = metrics(tmp_path / "secret", *common, *PRIVATE, "aggregation.key_bits=2048")
    columns_alike(plain, secret)
    assert "2048-bit key" in done.stderr
    assert "MB" in done.stderr
    seen, unseen = certified(tmp_path / "plain"), certified(tmp_path / "secret")
    assert np.isinf(seen["server"])
    assert np.isfinite(unseen).all()
    np.testing.assert_allclose(unseen["server"], seen["released model"], rtol=1e-4)


def test_sampled_users_are_the_same_in_the_clear_and_hidden(tmp_path):
    common = ["rounds=1", "algo=uldp_sgd", "allocator.n_users=20", "algo.user_rate=0.5"]
    plain, _ = metrics(tmp_path / "plain", *common)
    secret, _ = metrics(tmp_path / "secret", *common, *PRIVATE)
    columns_alike(plain, secret)
    assert secret["contributions"][1] > plain["contributions"][1]  # silos train everybody
    metrics(tmp_path / "oblivious", *common, *PRIVATE, "aggregation.oblivious=true")
    known, hidden = certified(tmp_path / "secret"), certified(tmp_path / "oblivious")
    assert hidden["server"] == known["released model"] < known["server"]


def test_discrete_noise_goes_with_it(tmp_path):
    common = ["rounds=1", "algo.local_epochs=1", "mechanism=discrete_gaussian"]
    metrics(tmp_path / "secret", *common, *PRIVATE, "aggregation.key_bits=2048")
    assert np.isfinite(certified(tmp_path / "secret")).all()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            [
                "algo=uldp_avg_w",
                "mechanism=discrete_gaussian",
                "aggregation.key_bits=2048",
                "aggregation.precision=52",
            ],
            "aggregation.precision=52: too many digits",
        ),
        (["algo=uldp_avg_w", "aggregation.n_max=6", "allocator.n_users=12"], "more than 2 records"),
        (["algo=uldp_avg"], "algo.weighting=records"),
        (["algo=fedavg"], "algo.weighting=records"),
        (
            ["algo=uldp_avg_w", "mechanism=none"],
            "aggregation=private_weighting: needs contributions of bounded norm",
        ),
        (
            ["algo=uldp_avg_w", "aggregation.n_max=400"],
            "lower n_max or precision, or take a longer key",
        ),
    ],
)
def test_what_cannot_work_is_told_in_one_line(words, text, tmp_path):
    done = run(tmp_path / "out", *PRIVATE, "rounds=1", *words)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    assert text in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize("data", ["heart_disease", "tcga_brca"])
def test_real_records_give_the_metrics_of_plain(data, real_root, tmp_path):
    common = ["algo=uldp_avg", f"data={data}", f"data.root={real_root}", "rounds=3"]
    plain, _ = metrics(tmp_path / "plain", *common)
    secret, _ = metrics(tmp_path / "secret", *common, "aggregation=private_weighting")
    columns_alike(plain, secret)
    status = json.loads((tmp_path / "secret" / "status.json").read_text())
    assert status["aborted_rounds"] == {}
