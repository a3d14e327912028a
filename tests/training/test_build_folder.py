"""Running a compiler, and a folder of what it built."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from fedpriv.training.trainers.compiled.build_folder import (
    CannotCompileError,
    built,
    run_compiler,
)


def test_processes_at_the_same_time_build_once(tmp_path):
    calls = []

    def make(scratch):
        calls.append(scratch)
        time.sleep(0.2)
        return b"a library"

    with ThreadPoolExecutor(4) as pool:
        paths = set(pool.map(lambda _: built(tmp_path, "one", "source", make), range(4)))
    assert [path.read_bytes() for path in paths] == [b"a library"]
    assert len(calls) == 1
    assert built(tmp_path, "one", "another source", make) not in paths
    assert len(calls) == 2


def test_a_failure_leaves_nothing_behind(tmp_path):
    with pytest.raises(CannotCompileError, match="sh fails: no such header"):
        built(tmp_path, "one", "source", lambda _: run_compiler(["sh", "-c", FAILING]).encode())
    assert {path.suffix for path in tmp_path.iterdir()} == {".lock"}
    assert built(tmp_path, "one", "source", lambda _: b"a library").exists()


FAILING = "echo no such header >&2; exit 1"
