import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from command import run, run_child, success
from safetensors.numpy import load_file

import fedpriv
from fedpriv.parties.messages import size_of
from fedpriv.parties.post import Message
from fedpriv.rounds.query import Broadcast

TINY = ["rounds=3", "algo.local_epochs=1", "allocator.n_users=8"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    done = success(*TINY, "hydra.run.dir=out", cwd=folder)
    return folder / "out", done


def test_help_names_groups_components_and_examples(tmp_path):
    done = success("--help", cwd=tmp_path)
    assert run("help", cwd=tmp_path).stdout == done.stdout
    assert run("--version", cwd=tmp_path).stdout == f"fedpriv {fedpriv.__version__}\n"
    groups = (
        "data allocator model algo optimizer mechanism accountant aggregation engine experiment"
    )
    for group in groups.split():
        assert f"\n  {group} " in done.stdout
    assert done.stdout.split("Examples:")[1].count("\n  fedpriv") >= 5
    [algorithms] = [line for line in done.stdout.splitlines() if line.startswith("  algo ")]
    names = algorithms.removeprefix("  algo ").strip().split(", ")
    assert {"uldp_avg", "fedprox", "fedopt", "scaffold"} <= set(names)


def test_help_and_accounting_never_load_torch(tmp_path):
    commands = [
        ["--help"],
        ["analyse", "--help"],
        ["evaluate", "--help"],
        ["--cfg", "job"],
        ["epsilon", "rounds=100"],
        ["epsilon", "algo=uldp_group", "rounds=2"],
    ]
    program = (
        "import sys; sys.argv = ['fedpriv']\n"
        "from fedpriv.cli import main\n"
        f"for words in {commands}:\n"
        "    try: main(words)\n"
        "    except SystemExit as stop: assert not stop.code, (words, stop.code)\n"
        "    late = {'torch', 'scipy.stats', 'scipy.signal', 'pandas', 'matplotlib'}\n"
        "    assert words[-1] == 'rounds=2' or not late & set(sys.modules), words\n"
        "    assert 'torch' not in sys.modules, f'{words} imported torch'"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("released model") >= 2
    assert not (tmp_path / "outputs").exists()


def test_epsilon_prints_a_grid(tmp_path):
    done = success("epsilon", "-m", "algo.noise_multiplier=5,10", "rounds=2", cwd=tmp_path)
    rows = [line.split("│")[1:-1] for line in done.stdout.splitlines() if line.startswith("│")]
    cells = [[cell.strip() for cell in row] for row in rows]
    assert [row[:4] for row in cells] == [["5", "2", "5", "user"], ["10", "2", "10", "user"]]
    assert "algo.noise_multiplier" in done.stdout
    # each assumption once, whole
    assert done.stdout.count("semi-honest parties") == 1
    assert "…" not in done.stdout


def test_epsilon_as_files(tmp_path):
    words = ("epsilon", "-m", "algo=uldp_avg,uldp_group_max", "rounds=2")
    for name in ("a.json", "a.csv", "a.md"):
        assert run(*words, f"--out={name}", cwd=tmp_path).returncode == 0
    found = json.loads((tmp_path / "a.json").read_text())
    assert found == json.loads(run(*words, "--json", cwd=tmp_path).stdout)
    assert [one["method"] for one in found] == ["ULDP-AVG", "ULDP-GROUP-max"]
    assert found[0]["noise"] == {"update": 5.0}
    assert {row["certified"] for row in found[1]["epsilons"]} == {None}  # nothing is certified
    table = pd.read_csv(tmp_path / "a.csv", float_precision="round_trip")
    words = ["algo", "rounds", "noise", "unit", "adjacency", "delta"]  # a row for each setting
    assert list(table.columns) == [*words, "released model", "server", "silo", "cheating server"]
    assert list(table["algo"]) == ["uldp_avg", "uldp_group_max"]
    last = [row["certified"] for row in found[0]["epsilons"] if row["round"] == 2]
    assert table["silo"][0] in last
    assert np.isinf(table["silo"][1])
    assert table["cheating server"].notna().tolist() == [
        True,
        False,
    ]  # no row, as nothing is certified
    assert len((tmp_path / "a.md").read_text().splitlines()) == len(table) + 2
    assert run("epsilon", "rounds=2", "--out", "b.csv", cwd=tmp_path).returncode == 0
    alone = pd.read_csv(tmp_path / "b.csv")
    assert list(alone.columns[:3]) == ["noise", "round", "observer"]
    assert set(alone["round"]) == {1, 2}
    refused = run("epsilon", "--out", "a.pdf", cwd=tmp_path)
    assert refused.stderr == "fedpriv: --out=a.pdf: a file that ends in .json, .csv, .md\n"


OBSERVERS = ("released model", "server", "silo", "user", "add/remove", "10.7255", "9.9973")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (
            "data=creditcard --cfg job",
            ("rounds: 100", "noise_multiplier: 5.0", "delta: 1.0e-05", "n_silos: 5"),
        ),
        ("epsilon rounds=7 --cfg job", ("rounds: 7\n",)),
        ("epsilon data=creditcard algo=uldp_avg", OBSERVERS),
        (  # ALGORITHMS 9, row 3: sigma 5 and 100 rounds cost exactly this
            "epsilon data=creditcard accountant.budget=9.9973",
            (
                "epsilon 9.9973: 100 rounds at noise 5\n",
                "epsilon 9.9973: 100 rounds at noise 5.",
                "(accountant.target=9.9973)",
            ),
        ),
    ],
)
def test_what_a_command_prints(words, found, tmp_path):
    done = success(*words.split(), cwd=tmp_path)
    for text in found:
        assert text in done.stdout, done.stdout


def test_a_budget_ends_the_run_at_the_last_round_that_fits(tmp_path):
    success(
        "rounds=9",
        "accountant.budget=1.4",
        "algo.local_epochs=1",
        "hydra.run.dir=out",
        cwd=tmp_path,
    )
    epsilon = pd.read_csv(tmp_path / "out" / "epsilon.csv")
    certified = epsilon[(epsilon["observer"] == "released model") & (epsilon["method"] == "pld")][
        "certified"
    ]
    # one round 0.7255, two 1.0608, three 1.3258, four 1.5545
    assert list(epsilon["round"].unique()) == [1, 2, 3]
    assert certified.iloc[-1] <= 1.4
    status = json.loads((tmp_path / "out" / "status.json").read_text())
    assert status["state"] == "done"
    assert "round 4" in status["reason"]


def test_rounds_between_evaluations_still_train_and_time(tmp_path):
    success(
        "rounds=5",
        "evaluate_every=2",
        "checkpoint_every=3",
        *TINY[1:],
        "hydra.run.dir=out",
        cwd=tmp_path,
    )
    out = tmp_path / "out"
    assert list(pd.read_csv(out / "metrics.csv")["round"]) == [0, 2, 4, 5]
    assert list(pd.read_csv(out / "epsilon.csv")["round"].unique()) == [2, 4, 5]
    timings = pd.read_csv(out / "timings.csv")
    assert list(timings["round"]) == [1, 2, 3, 4, 5]
    assert (timings["evaluation"] > 0).tolist() == [False, True, False, True, True]


def test_data_shows_and_draws_the_allocation(tmp_path):
    done = success("data", "allocator.n_users=9", "--allocation", "drawn.png", cwd=tmp_path)
    assert "Picture: drawn.png" in done.stdout
    assert (tmp_path / "drawn.png").stat().st_size > 5000


def test_a_run_leaves_its_folder(finished):
    out, done = finished
    assert done.stdout.endswith(f"Results: {out}\n")
    assert "┃ round 0 ┃ round 3 ┃" in done.stdout
    metrics = pd.read_csv(out / "metrics.csv")
    assert list(metrics["round"]) == [0, 1, 2, 3]
    assert {"loss", "accuracy", "update_norm", "contribution_norm"} <= set(metrics.columns)
    epsilon = pd.read_csv(out / "epsilon.csv")
    columns = "round observer unit adjacency method certified claimed assumptions status group"
    assert list(epsilon.columns) == columns.split()
    assert set(epsilon["observer"]) == {"released model", "server", "silo", "cheating server"}
    assert set(epsilon["method"]) == {"rdp", "pld"}
    assert set(epsilon["status"]) == {"enforced"}
    assert list(pd.read_csv(out / "timings.csv")["round"]) == [1, 2, 3]
    status = json.loads((out / "status.json").read_text())
    assert status["state"] == "done"
    assert status["dp_valid"] is False
    assert status["trainer"].startswith(("compiled: every layer", "batched: users"))
    assert f"local training of users: {status['trainer']}" in (out / "run.log").read_text()
    assert (out / "config.yaml").exists()
    assert all(
        np.isfinite(tensor).all() for tensor in load_file(out / "model.safetensors").values()
    )
    assert "epsilon" in done.stdout
    assert not list(out.glob("*.tmp"))


def test_everything_that_is_sent_is_counted(finished):
    """What is sent down too, and it is all of the server's first step; silos send one vector
    each.
    """
    out, _ = finished
    traffic = pd.read_csv(out / "traffic.csv")
    assert list(traffic.columns) == ["round", "query", "step", "party", "messages", "bytes"]
    size = sum(tensor.size for tensor in load_file(out / "model.safetensors").values())
    # A stamp: 17 bytes for class and fields, 21 for the session, 6 each for round and place, 5 and
    # its letters for the phase, 69 for the signature; an array has 7 for type and length.
    broadcast = Broadcast({"params": np.zeros(size)})
    down = size_of(Message(bytes(16), 1, 0, "broadcast", broadcast, bytes(64)))
    up = size_of(Message(bytes(16), 1, 0, "message", np.zeros(size), bytes(64)))
    assert (down - size_of(broadcast), up - (8 * size + 7)) == (
        124 + len("broadcast"),
        124 + len("message"),
    )
    silos = ["silo0", "silo1", "silo2"]
    for number in (1, 2, 3):
        sent = traffic[(traffic["round"] == number) & (traffic["bytes"] > 0)]
        rows = [
            tuple(row) for row in sent[["query", "step", "party", "messages", "bytes"]].to_numpy()
        ]
        assert rows == [
            ("update", 0, "server", 3, 3 * down),
            *(("update", 1, silo, 1, up) for silo in silos),
        ]
    assert set(traffic["round"]) == {1, 2, 3}  # uniform weights need no set-up


def test_the_same_seed_repeats_bit_for_bit_and_another_differs(finished, tmp_path):
    out, _ = finished
    assert run(*TINY, "hydra.run.dir=same", cwd=tmp_path).returncode == 0
    assert run(*TINY, "hydra.run.dir=other", "seed=1", cwd=tmp_path).returncode == 0
    for name in ("metrics.csv", "epsilon.csv", "model.safetensors"):
        assert (tmp_path / "same" / name).read_bytes() == (out / name).read_bytes()
    assert (tmp_path / "other" / "metrics.csv").read_bytes() != (out / "metrics.csv").read_bytes()


@pytest.mark.parametrize(
    ("words", "private"),
    [
        ([], True),
        (["algo.weighting=records"], True),
        (["algo.noise_multiplier=0"], False),
        (["algo=fedavg"], False),
    ],
)
def test_private_is_a_run_that_certifies_something(words, private, tmp_path):
    """To whoever gets the model: under `plain` the server, which sees record counts, is certified
    nothing. And a run with noise is another one each time."""
    words = (*TINY, "rounds=1", "randomness=system", *words)
    models = []
    for name in ("one", "two"):
        success(*words, f"hydra.run.dir={name}", cwd=tmp_path)
        models.append((tmp_path / name / "model.safetensors").read_bytes())
    assert models[0] != models[1]
    epsilon = pd.read_csv(tmp_path / "one" / "epsilon.csv")
    released = epsilon[epsilon["observer"] == "released model"]["certified"]
    assert np.isfinite(released).any() == private
    assert json.loads((tmp_path / "one" / "status.json").read_text())["dp_valid"] is private


def test_help_shows_a_users_own_groups(tmp_path):
    (tmp_path / "mine" / "algo").mkdir(parents=True)
    (tmp_path / "mine" / "algo" / "my_method.yaml").write_text("_target_: mine.MyMethod\n")
    for words in (["--config-dir", "mine"], ["--config-dir=mine"]):
        assert "my_method" in run("--help", *words, cwd=tmp_path).stdout


def test_a_users_own_class_is_found_where_the_command_is_given(tmp_path):
    """As the pages say; also by the console script, whose path does not begin with the folder."""
    (tmp_path / "mypackage.py").write_text(
        "from dataclasses import dataclass\n"
        "from fedpriv.algorithms.fedavg import FedAvg\n"
        "@dataclass(frozen=True)\nclass MyMethod(FedAvg):\n    pass\n"
    )
    program = "import sys; sys.path.remove(''); from fedpriv.cli import main; main()"
    words = ["epsilon", "algo=fedavg", "algo._target_=mypackage.MyMethod", "rounds=1"]
    done = subprocess.run(
        [sys.executable, "-c", program, *words], cwd=tmp_path, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("fedpriv eps", "epsilon"),
        ("fedpriv epsilon algo=uldp_av", "algo=uldp_avg"),
        ("fedpriv algo=uldp_av", "algo=uldp_avg"),
    ],
)
def test_completion_goes_on_after_commands(line, expected, tmp_path, monkeypatch):
    monkeypatch.setenv("COMP_LINE", line)
    monkeypatch.setenv("COMP_POINT", str(len(line)))
    assert expected in run("-sc", "query=bash", cwd=tmp_path).stdout.split()


def test_jobs_of_different_modes_of_hydra_are_all_jobs_of_the_sweep(tmp_path):
    """In the mode of the first one, the second would be a run of its own, which a repeated sweep
    finds in its place."""
    (tmp_path / "conf/experiment").mkdir(parents=True)
    for mode in ("MULTIRUN", "RUN"):
        text = f"# @package _global_\nhydra:\n  mode: {mode}\n"
        (tmp_path / f"conf/experiment/{mode}.yaml").write_text(text)
    words = "experiment=MULTIRUN,RUN", "rounds=1", "preset.n_users=4", "hydra.sweep.dir=out"
    for _ in range(2):
        success(*words, "-m", "--config-dir=conf", cwd=tmp_path)
    assert all((tmp_path / "out" / name / "model.safetensors").exists() for name in "01")


def test_a_warning_is_one_line_without_a_place_in_the_source(tmp_path, small_root):
    done = run_child("data", "data=creditcard", f"data.root={small_root}", cwd=tmp_path)
    [line] = done.stderr.splitlines()
    assert line.startswith("fedpriv: ")
    assert line.endswith("records or characters; the official file has 284,807")
