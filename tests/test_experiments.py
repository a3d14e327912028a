"""Every experiment file runs two tiny rounds of every job, so that none rots."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted((ROOT / "conf" / "experiment").rglob("*.yaml"))
DATA = Path(os.environ.get("FEDPRIV_DATA") or ROOT.parent / "shared" / "data")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_runs_two_tiny_rounds(file, tmp_path):
    if "embedded" not in file.stem and not DATA.is_dir():
        pytest.skip("needs real records (FEDPRIV_DATA)")
    name = file.relative_to(ROOT / "conf" / "experiment").with_suffix("")
    words = [f"experiment={name}", "rounds=2", "seed=0", "preset.local_epochs=1", "allocator.n_users=40"]
    done = subprocess.run(
        [sys.executable, "-m", "fedpriv", *words, f"data.root={DATA}", "hydra.sweep.dir=out", "hydra.run.dir=out"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    states = [json.loads(path.read_text())["state"] for path in (tmp_path / "out").rglob("status.json")]
    assert states
    assert set(states) == {"done"}
