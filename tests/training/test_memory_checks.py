"""C++ under a checker of memory: it touches nothing outside its arrays, nor between two of them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fedpriv.training.trainers.compiled.library import FLAGS

SOURCE = Path("fedpriv/training/trainers/compiled/source/training.cpp").resolve()
NETWORKS = 24
SCRIPT = """
import sys
from pathlib import Path
from fedpriv.training.trainers.compiled import library
library.build = lambda *_: Path(sys.argv[1])
import torch
from drawn_networks import traceable
from one_by_one import silo
from test_isolated_users import changes
from fedpriv.models.tasks import Classification
from fedpriv.training.clipped import ClippedGradients
from fedpriv.training.description import Recipe
from fedpriv.training.vectors import flatten
task = Classification()
for seed in range(int(sys.argv[2])):
    model, shape = traceable(seed)
    data = silo([9, 3, 1], shape, task)
    gradients = ClippedGradients(model, task, 0.1, shape=shape)
    assert gradients.compiled
    gradients.sum(flatten(model), data.x, data.y)
    changes(model, data, task, Recipe(1, 4, 0.1), trainer="compiled")
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_sums_and_training_stay_within_their_arrays(tmp_path):
    built = tmp_path / "library.so"
    flags = [flag for flag in FLAGS if flag != "-O3"] + ["-O1", "-w", "-fsanitize=address"]
    subprocess.run(["g++", *flags, str(SOURCE), "-o", str(built)], check=True)
    names = "libasan.so", "libstdc++.so.6"
    found = [
        subprocess.run(
            ["g++", f"-print-file-name={name}"], check=True, capture_output=True, text=True
        ).stdout.strip()
        for name in names
    ]
    if not all(map(os.path.isabs, found)):
        pytest.skip("needs g++'s checker of memory")
    own = {
        "LD_PRELOAD": " ".join(found),
        "ASAN_OPTIONS": "detect_leaks=0",
        "PYTHONPATH": os.pathsep.join([str(Path.cwd()), str(Path(__file__).parent)]),
    }
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, str(built), str(NETWORKS)]
    ended = subprocess.run(command, env=os.environ | own, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[:2000]
