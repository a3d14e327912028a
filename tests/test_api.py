"""The library gives what the command gives, as tables, and prints nothing."""

import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from command import run

import fedpriv
from fedpriv.errors import FedprivError
from fedpriv.runs.tables import METRICS

TINY = (
    "rounds=2",
    "allocator.n_users=6",
    "allocator.n_silos=2",
    "algo.local_epochs=1",
    "accountant=rdp",
)


def test_importing_loads_next_to_nothing(tmp_path):
    program = (
        "import sys, fedpriv; before = set(sys.modules)\n"
        "assert not {'torch', 'hydra', 'pandas', 'numpy'} & before, before\n"
        "table = fedpriv.epsilon('rounds=2', 'accountant=rdp')\n"
        "assert 'torch' not in sys.modules and len(table) > 2\n"
        "assert 'torch' not in sys.modules and fedpriv.load\n"
        "try: fedpriv.nothing\n"
        "except AttributeError: pass\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_run_is_that_of_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = fedpriv.run(*TINY, "seed=3", folder=tmp_path / "here")
    assert capsys.readouterr() == ("", "")
    assert run(*TINY, "seed=3", "hydra.run.dir=there", cwd=tmp_path).returncode == 0
    assert (tmp_path / "here" / METRICS).read_bytes() == (tmp_path / "there" / METRICS).read_bytes()
    there = pd.read_csv(tmp_path / "there" / METRICS)
    pd.testing.assert_frame_equal(done.metrics[list(there.columns)], there)
    assert (done.metrics["seed"] == 3).all()
    assert set(done.epsilon["observer"]) == {"released model", "server", "silo", "cheating server"}
    longer = fedpriv.run(f"resume={tmp_path / 'here'}", "rounds=3")
    assert longer.metrics["round"].tolist() == [0, 1, 2, 3]
    log = (tmp_path / "here" / "run.log").read_text()
    assert "INFO round 2/2  loss" in log
    assert "from round 2" in log


def test_a_sweep_is_a_table(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runs = fedpriv.sweep(*TINY, "algo.noise_multiplier=5,10", "seed=0,1", folder=tmp_path / "sweep")
    assert capsys.readouterr() == ("", "")
    table = runs.table()
    assert table[["noise_multiplier", "n"]].to_numpy().tolist() == [[5, 2], [10, 2]]
    again = fedpriv.load(tmp_path / "sweep").table()
    pd.testing.assert_frame_equal(table, again)
    epsilons = fedpriv.epsilon(*TINY, "algo.noise_multiplier=5,10")
    last = epsilons[(epsilons["round"] == 2) & (epsilons["observer"] == "released model")]
    assert last.set_index("algo.noise_multiplier")["certified"].tolist() == pytest.approx(
        table["certified"].tolist()
    )
    assert runs.figure(tmp_path / "figure.png").stat().st_size > 5000


def test_mistakes_are_raised(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for call in (fedpriv.run, fedpriv.sweep, fedpriv.epsilon):
        with pytest.raises(FedprivError, match=r"algo\.clipp"):
            call("algo.clipp=1")
    with pytest.raises(FedprivError, match=r"fedpriv\.sweep"):
        fedpriv.run("-m", "seed=0,1")
    with pytest.raises(FedprivError, match="no finished run"):
        fedpriv.load("nowhere")


def test_records_as_a_run_has_them(tmp_path):
    made = fedpriv.federation("data=digits", "allocator.n_users=6", "allocator.n_silos=2")
    assert len(made.silos) == 2
    assert sum(len(records) for records, _ in made.silos) == int(made.allocation.trains.sum())
    for records, owners in made.silos:
        assert len(records.x) == len(records.y) == len(owners)
        assert owners.max() < 6
    assert len(np.unique(made.train.y)) == 10


def test_a_quiet_command_says_nothing(tmp_path):
    done = run(*TINY, "quiet=true", "hydra.run.dir=out", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert "done" in (tmp_path / "out" / "run.log").read_text()


def test_a_sweep_has_the_results_of_the_runs_that_do_not_diverge(tmp_path):
    words = (*TINY, "algo.noise_multiplier=5", "algo.global_lr=1,1e60")
    [run] = fedpriv.sweep(*words, folder=tmp_path / "some").runs
    assert run.folder == tmp_path / "some" / "0"
    with pytest.raises(FedprivError, match=r"no finished run at or below .*/none"):
        fedpriv.sweep(*words[:-1], "algo.global_lr=1e60", folder=tmp_path / "none")


def test_loading_says_nothing_about_runs_that_are_left_out_but_in_the_log(tmp_path, capfd, caplog):
    done, cut = tmp_path / "done", tmp_path / "cut"
    fedpriv.run(*TINY, folder=done)
    shutil.copytree(done, cut)
    (cut / "status.json").write_text(
        (cut / "status.json").read_text().replace('"done"', '"interrupted"')
    )
    with caplog.at_level("INFO", "fedpriv"):
        assert len(fedpriv.load(tmp_path).runs) == 1
    assert capfd.readouterr() == ("", "")
    assert f"left out: {cut} (interrupted)" in caplog.text
