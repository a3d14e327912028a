"""C++ under a checker of memory: it touches nothing outside its arrays, nor between two of them."""

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fedpriv.training import freed_memory
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
from test_noisy_sgd import steps
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
    theta = flatten(model)
    gradients.sum(theta, data.x, data.y)
    steps(gradients, theta.double().numpy(), data.x, data.y, 7, 2, 0.1, 0, deviation=0.1).run()
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


# -- what the C library keeps of memory that is given back, in processes of its own ----------------


FAULTS = """
import resource
import numpy as np
from fedpriv.training.freed_memory import keep_freed_memory

def blocks():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        arrays = [np.ones(2**20) for _ in range(8)]
        large = b"x" * 2**26
        del arrays, large
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

blocks()
given_back = blocks()
told = keep_freed_memory()
blocks()
print(told, given_back, blocks())
"""


def faults(**environment):
    clean = {
        name: value for name, value in os.environ.items() if name not in freed_memory.USER_SETTINGS
    }
    out = subprocess.run(
        [sys.executable, "-c", FAULTS],
        env=clean | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    told, before, after = out.stdout.split()
    return told == "True", int(before), int(after)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="another C library")
def test_blocks_after_the_first_ask_the_system_for_nothing():
    told, before, after = faults()
    assert told
    assert after < 200 < before


def test_what_the_user_has_said_stays():
    assert not faults(MALLOC_TRIM_THRESHOLD_="0")[0]


def test_another_c_library_is_left_alone(monkeypatch):
    for name in freed_memory.USER_SETTINGS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(freed_memory.ctypes, "CDLL", lambda _: object())
    assert not freed_memory.keep_freed_memory.__wrapped__()
