"""What the C library keeps of memory that is given back, in processes of its own."""

import ctypes
import os
import subprocess
import sys

import pytest

from fedpriv.training import freed_memory

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
