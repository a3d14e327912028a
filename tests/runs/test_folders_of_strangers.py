"""Run folders that attack whoever opens them. None runs code, writes elsewhere or never ends."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from command import refusal, run, success

import fedpriv
from fedpriv.errors import FedprivError
from fedpriv.reports.finished_runs import find_runs
from fedpriv.runs.folder import RunFolder
from fedpriv.runs.stored_config import read_config

TINY = ("allocator.n_users=8", "allocator.n_silos=2", "algo.local_epochs=1", "accountant=rdp")
GROUPS = ("data", "allocator", "model", "algo", "optimizer", "mechanism", "accountant")
GROUPS += ("aggregation", "engine", "tracker")
EVIL = "from pathlib import Path\nPath({!r}).write_text('code of the folder ran')\n"


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """A finished run of one round."""
    folder = tmp_path_factory.mktemp("honest")
    assert run(*TINY, "rounds=1", "hydra.run.dir=run", cwd=folder).returncode == 0
    return folder / "run"


@pytest.fixture
def theirs(honest, tmp_path):
    """A copy that a stranger may change."""
    return Path(shutil.copytree(honest, tmp_path / "theirs"))


@pytest.fixture
def marker(tmp_path):
    """A file that exists once the stranger's code has run. The code is in `theirs/` below the
    working folder, and wherever else Python or Hydra may look."""
    path = tmp_path / "marker"
    for place in ("evil.py", "theirs/__init__.py", "theirs/evil.py", "hydra_plugins/evil.py"):
        file = tmp_path / place
        file.parent.mkdir(exist_ok=True)
        file.write_text(EVIL.format(str(path)))
    return path


def change(folder, key, value):
    """Set a dotted key of a stored configuration."""
    config = yaml.safe_load((folder / "config.yaml").read_text())
    *above, last = key.split(".")
    node = config
    for name in above:
        node = node[name]
    node[last] = value
    (folder / "config.yaml").write_text(yaml.safe_dump(config))


@pytest.mark.parametrize("command", [(), ("epsilon",)])
@pytest.mark.parametrize("group", GROUPS)
def test_a_resumed_folder_imports_nothing_of_its_own(command, group, theirs, marker):
    target = "evil.X" if command else "theirs.evil.X"
    change(theirs, f"{group}._target_", target)
    line = refusal(*command, f"resume={theirs}", cwd=theirs.parent)
    assert f"{group}._target_={target}" in line
    assert "--trust-code" in line
    assert not marker.exists()


def test_nothing_is_imported_from_the_working_folder(theirs, marker):
    """The console script, whose path does not begin with the working folder: neither plug-ins of
    Hydra nor packages that libraries look for are found there."""
    (theirs.parent / "pyarrow.py").write_text(EVIL.format(str(marker)))
    (theirs.parent / "bottleneck.py").write_text(EVIL.format(str(marker)))
    program = "import sys; sys.path.remove(''); from fedpriv.cli import main; "
    program += "main(['table', 'theirs']); main(['epsilon', 'resume=theirs'])"
    child = [sys.executable, "-c", program]
    done = subprocess.run(child, cwd=theirs.parent, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(b"released model") >= 2
    assert not marker.exists()


def test_the_user_may_trust_a_folder(theirs, marker):
    code = "from dataclasses import dataclass\nfrom fedpriv.trackers.base import Tracker\n"
    code += "@dataclass(frozen=True)\nclass Own(Tracker):\n    pass\n"
    (theirs.parent / "strangers_tracker.py").write_text(code)
    change(theirs, "tracker._target_", "strangers_tracker.Own")
    words = (f"resume={theirs}", "rounds=2")
    assert run(*words, cwd=theirs.parent).returncode == 2
    assert run("epsilon", *words, "--trust-code", cwd=theirs.parent).returncode == 0
    success(*words, "--trust-code", cwd=theirs.parent)


def test_trust_is_only_said_about_a_stored_folder(tmp_path):
    assert "--trust-code" in refusal("--trust-code", "rounds=1", cwd=tmp_path)


RAY = {"_target_": "fedpriv.engines.ray.RayEngine"}
HERE = {"_target_": "fedpriv.engines.inprocess.InProcess"}
MLFLOW = {"_target_": "fedpriv.trackers.mlflow.MlFlow", "experiment": "x"}


@pytest.mark.parametrize(
    ("group", "own", "key"),
    [
        ("engine", RAY | {"address": "192.0.2.1:6379"}, "address"),
        ("engine", RAY | {"journals": "/tmp/elsewhere"}, "journals"),
        ("engine", HERE | {"roster": "/r.csv", "keys": "/keys"}, "roster"),
        ("tracker", MLFLOW | {"uri": "http://192.0.2.1/"}, "uri"),
    ],
)
def test_a_resumed_folder_does_not_choose_where_to_connect_or_whose_keys_sign(
    group, own, key, theirs
):
    """Ray unpickles what its cluster sends, and a tracker sends what it is given."""
    change(theirs, group, own)
    assert f"{group}.{key}={own[key]}: null, unless --trust-code" in refusal(
        f"resume={theirs}", "rounds=2", cwd=theirs.parent
    )


def test_stored_settings_are_not_computed(theirs, monkeypatch):
    """A resolver could put a secret of this machine into what a tracker sends."""
    monkeypatch.setenv("SECRET", "5")
    change(theirs, "seed", "${oc.env:SECRET}")
    with pytest.raises(FedprivError, match=r"config\.yaml is damaged.*oc\.env"):
        read_config(theirs)
    for words in ([f"resume={theirs}"], ["epsilon", f"resume={theirs}"]):
        assert run(*words, cwd=theirs.parent).returncode == 2


@pytest.mark.parametrize("name", ["metrics.csv", "rounds_begun.csv", "status.json.tmp", "run.log"])
@pytest.mark.parametrize("hard", [False, True], ids=["symbolic", "hard"])
def test_a_resumed_run_does_not_write_through_links(name, hard, theirs):
    victim = theirs.parent / "victim"
    victim.write_text("round,time\nkeep\n")
    (theirs / name).unlink(missing_ok=True)
    link = Path.hardlink_to if hard else Path.symlink_to
    link(theirs / name, victim)
    assert f"{theirs / name}" in refusal(f"resume={theirs}", "rounds=2", cwd=theirs.parent)
    assert victim.read_text() == "round,time\nkeep\n"


@pytest.mark.parametrize("name", ["status.json", "config.yaml", "metrics.csv", "epsilon.csv"])
@pytest.mark.parametrize("attack", ["pipe", "device", "sparse", "deep", "binary", "tagged"])
def test_tables_of_a_hostile_folder_end_in_one_line(name, attack, theirs):
    path = theirs / name
    path.unlink()
    if attack == "pipe":
        os.mkfifo(path)
    elif attack == "device":
        path.symlink_to("/dev/zero")
    elif attack == "sparse":
        with open(path, "wb") as file:
            file.truncate(2**40)
    else:
        content = {"deep": b"[" * 10**5, "binary": bytes(range(256)), "tagged": b"a: !!set {b, c}"}
        path.write_bytes(content[attack])
    with pytest.raises(FedprivError, match="theirs"):
        find_runs([theirs])


def test_errors_control_no_terminal(tmp_path, honest):
    """A name with an escape sequence could rewrite what the terminal shows."""
    folder = Path(shutil.copytree(honest, tmp_path / "theirs\x1b[2J"))
    change(folder, "seed", "\x1b]0;title\x07")
    line = refusal(f"resume={folder}", cwd=tmp_path)
    assert "\x1b" not in line
    assert "\\x1b[2J" in line


def test_an_installed_package_may_declare_its_classes(theirs, tmp_path, monkeypatch):
    """By the entry point group that the pages name; the package is on the path as an installed
    one."""
    site = tmp_path / "site"
    (site / "declared").mkdir(parents=True)
    (site / "declared" / "__init__.py").write_text(
        "from dataclasses import dataclass\nfrom fedpriv.trackers.base import Tracker\n"
        "@dataclass(frozen=True)\nclass Own(Tracker):\n    pass\n"
    )
    (site / "declared-1.dist-info").mkdir()
    (site / "declared-1.dist-info" / "METADATA").write_text("Name: declared\nVersion: 1\n")
    points = "[fedpriv]\ndeclared = declared\n"
    (site / "declared-1.dist-info" / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(str(site))
    change(theirs, "tracker._target_", "declared.Own")
    success("epsilon", f"resume={theirs}", cwd=theirs.parent)


def test_python_refuses_the_same_folders(theirs, marker):
    change(theirs, "tracker._target_", "evil.X")
    with pytest.raises(FedprivError, match="--trust-code"):
        fedpriv.run(f"resume={theirs}")
    with pytest.raises(FedprivError, match="--trust-code"):
        fedpriv.load(theirs).runs[0].experiment()
    assert not marker.exists()


def test_what_silos_remember_is_for_the_owner_alone(tmp_path, honest):
    """Also where a crash has left a temporary file of another mode."""
    assert (honest / "checkpoint.safetensors").stat().st_mode & 0o077 == 0
    assert (honest / "metrics.csv").stat().st_mode & 0o044, "the results are not secret"
    (tmp_path / "checkpoint.safetensors.tmp").touch(0o644)
    RunFolder(tmp_path).save_checkpoint(RunFolder(honest).load_checkpoint())
    assert (tmp_path / "checkpoint.safetensors").stat().st_mode & 0o777 == 0o600
