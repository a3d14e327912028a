"""Every experiment file runs two tiny rounds of every job, so that none rots."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

CONF = Path(__file__).resolve().parents[1] / "conf" / "experiment"
FILES = sorted(CONF.rglob("*.yaml"))
SMALLER = {
    "uldp_fl": ["preset.local_epochs=1", "preset.silo_epochs=1", "allocator.n_users=10"],
    "hu": ["algo.epsilon=1"],
    "huang": ["algo.epsilon=1", "allocator.n_silos=20", "algo.local_steps=1"],
}
"""What makes a paper's experiments smaller still."""


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_runs_two_tiny_rounds(file, tmp_path, small_root):
    words = [f"experiment={file.relative_to(CONF).with_suffix('')}", "rounds=2", "seed=0", f"data.root={small_root}"]
    words += ["hydra.sweep.dir=out", *SMALLER.get(file.parent.name, [])]
    if "batch_size:" in file.read_text():  # meant for real records
        words.append("algo.batch_size=4")
    if "private_weighting" in file.read_text():
        words += ["aggregation.key_bits=512", "aggregation.n_max=120", "aggregation.count_cap=20"]
    command = [sys.executable, "-m", "fedpriv", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    states = [json.loads(path.read_text())["state"] for path in (tmp_path / "out").rglob("status.json")]
    assert states
    assert set(states) == {"done"}
