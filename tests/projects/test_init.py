"""`fedpriv init` writes a project that trains at once."""

import json
import subprocess
import sys

import pytest
from command import refusal, run, run_child, success

from fedpriv.errors import ConfigError
from fedpriv.projects.own_method import OwnMethod

RUN = ["--config-dir", "conf", "data=patients", "rounds=2"]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "mine"
    success("init", str(folder), "--method", "--model", cwd=folder.parent)
    return folder


@pytest.mark.parametrize(
    ("flags", "own"),
    [
        ([], ""),
        (["--method"], " algo=own_method"),
        (["--method", "--model"], " algo=own_method model=own_model"),
    ],
)
def test_the_printed_command_trains_what_is_ones_own(flags, own, tmp_path):
    assert success("init", "mine", *flags, cwd=tmp_path).stdout.endswith(f"data=patients{own}\n")


@pytest.mark.parametrize("words", [[], ["model=own_model", "algo=own_method"]])
def test_a_project_trains_a_private_model(project, words):
    """Own code in a process of its own, as its README says, so that it is found in its folder."""
    command = (*RUN, "randomness=system", *words, f"hydra.run.dir=outputs/{len(words)}")
    done = (run_child if words else run)(*command, cwd=project)
    assert done.returncode == 0, done.stderr
    status = json.loads((project / f"outputs/{len(words)}" / "status.json").read_text())
    assert status["dp_valid"] is True


def test_the_own_method_keeps_its_certificate(project):
    done = subprocess.run(
        [sys.executable, "check_method.py"],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("decay", [0.0, 1.1])
def test_a_step_that_vanishes_or_grows_is_refused(decay):
    with pytest.raises(ConfigError, match=f"algo.decay={decay}: above 0, at most 1"):
        OwnMethod(1.0, 5.0, 2, 16, 0.1, 1.0, decay)


def test_the_epsilon_needs_no_record(project, tmp_path):
    whole = (project / "patients.csv").read_text()
    (project / "patients.csv").unlink()
    try:
        done = run("epsilon", *RUN, cwd=project)
    finally:
        (project / "patients.csv").write_text(whole)
    assert done.returncode == 0, done.stderr


def test_the_readme_names_every_file(project):
    readme = (project / "README.md").read_text()
    files = [path.relative_to(project).as_posix() for path in project.rglob("*") if path.is_file()]
    for name in files:
        if not name.startswith(("outputs/", "README", "__pycache__")):
            assert f"`{name}`" in readme


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    line = refusal("init", "mine", cwd=tmp_path)
    assert line == "fedpriv: mine: is not empty; name a new folder\n"
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]
    (tmp_path / "file").write_text("")
    assert run("init", "file", cwd=tmp_path).returncode == 2
    (tmp_path / "empty").mkdir()
    assert run("init", "empty", cwd=tmp_path).returncode == 0
