"""The plug-in in a pytest of its own, in a folder of its own."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml
from claim_examples import DP_SGD, changed
from page_blocks import ROOT

PLUGIN = "fedpriv.claims.pytest_plugin"
TRAINING = """
import pytest, torch
from opacus import PrivacyEngine

def train(steps):
    model = torch.nn.Linear(2, 1)
    data = torch.utils.data.TensorDataset(torch.ones(20, 2))
    model, optimizer, loader = PrivacyEngine().make_private(
        module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=torch.utils.data.DataLoader(data, batch_size=5),
        noise_multiplier=1.0, max_grad_norm=1.0)
    done = 0
    while done < steps:
        for (x,) in loader:
            model(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            done += 1

@pytest.mark.privacy_budget(epsilon=6.0, delta=1e-5)
def test_short():
    train(4)

@pytest.mark.privacy_budget(epsilon=6.0, delta=1e-5)
def test_long():
    train(400)

@pytest.mark.privacy_budget(epsilon=6.0, delta=1e-5)
def test_without_noise():
    pass

@pytest.mark.privacy_budget(6.0)
def test_without_delta():
    train(1)

def test_unmarked():
    pass
"""


def run(folder, *words):
    env = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    words = (sys.executable, "-m", "pytest", "-p", PLUGIN, "-p", "no:cacheprovider", "-rA", *words)
    return subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_a_training_stops_at_its_budget(tmp_path):
    (tmp_path / "test_training.py").write_text(TRAINING)
    done = run(tmp_path, "--strict-markers")
    for name in ("short", "unmarked"):
        assert f"PASSED test_training.py::test_{name}" in done.stdout, done.stdout
    for name in ("long", "without_noise", "without_delta"):
        assert f"FAILED test_training.py::test_{name}" in done.stdout, done.stdout
    assert "epsilon 6 at delta 1e-05 is spent after" in done.stdout
    assert "added no noise that was seen" in done.stdout


def test_claims_are_tests_within_a_budget(tmp_path):
    claims = {
        "holds": changed(DP_SGD, claims__0__epsilon=4.0),
        "tight": changed(DP_SGD, claims__0__epsilon=0.5),
        "dear": changed(DP_SGD, claims__0__epsilon=50.0, releases__0__noise__deviation=0.7),
    }
    for name, claim in claims.items():
        (tmp_path / f"{name}.claim.yaml").write_text(yaml.safe_dump(claim))
    (tmp_path / "other.yaml").write_text("not a claim")
    (tmp_path / "pytest.ini").write_text("[pytest]\nfedpriv_budget = 4.5\n")
    done = run(tmp_path)
    assert "PASSED holds.claim.yaml::holds" in done.stdout, done.stdout
    for name in ("tight", "dear"):
        assert f"FAILED {name}.claim.yaml::holds" in done.stdout, done.stdout
    assert "not supported" in done.stdout
    assert "exceeds the budget of 4.5" in done.stdout
    assert "Traceback" not in done.stdout
    assert "other.yaml" not in done.stdout


def test_the_plug_in_is_registered():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"fedpriv": PLUGIN}


def test_the_action_judges_and_fails(tmp_path):
    """The step of `action.yml` that calls fedpriv, with the environment of this test."""
    step = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"][-1]
    (tmp_path / "fedpriv").mkdir()
    (tmp_path / "fedpriv" / "bin").symlink_to(Path(sys.executable).parent)
    (tmp_path / "claim.yaml").write_text(yaml.safe_dump(DP_SGD))

    def judged(budget, report="", claims="claim.yaml claim.yaml"):
        inputs = {"CLAIMS": claims, "BUDGET": budget, "REPORT": report}
        env = os.environ | inputs | {"RUNNER_TEMP": str(tmp_path), "PYTHONPATH": str(ROOT)}
        words = ["bash", "-eo", "pipefail", "-c", step["run"]]
        return subprocess.run(words, cwd=tmp_path, env=env, check=False).returncode

    assert judged("", "page.html") == 0
    assert "DP-SGD" in (tmp_path / "page.html").read_text()
    assert judged("1.5") == 1
    assert judged("", claims="claim.yaml\nmissing.yaml\n") == 2
    assert judged("", claims="--help") == 2, "a file of this name is missing, and no flag"
