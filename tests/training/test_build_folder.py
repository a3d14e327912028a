"""Running a compiler, and a folder of what it built."""

import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from fedpriv.training.trainers.compiled.build_folder import (
    CannotCompileError,
    built,
    run_compiler,
)


def maker(calls, failure=None, seconds=0.0):
    def make(scratch):
        calls.append(scratch)
        time.sleep(seconds)
        if failure:
            raise CannotCompileError(failure)
        return b"a library"

    return make


def test_processes_at_the_same_time_build_once(tmp_path):
    calls = []
    with ThreadPoolExecutor(4) as pool:
        make = maker(calls, seconds=0.2)
        paths = set(pool.map(lambda _: built(tmp_path, "one", "source", make), range(4)))
    assert [path.read_bytes() for path in paths] == [b"a library"]
    assert len(calls) == 1
    assert built(tmp_path, "one", "another source", maker(calls)) not in paths
    assert len(calls) == 2


def test_a_failure_is_remembered_for_a_while(tmp_path):
    calls = []
    for _ in range(2):
        with pytest.raises(CannotCompileError, match="no such header"):
            built(tmp_path, "one", "source", maker(calls, "no such header"))
    assert len(calls) == 1
    assert {path.suffix for path in tmp_path.iterdir()} == {".failed", ".lock"}
    [failure] = tmp_path.glob("*.failed")
    os.utime(failure, (0, 0))
    built(tmp_path, "one", "source", maker(calls))
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("ending", "raised"), [("wait", "sh hangs"), ("exit 3", "exit status 3"), ("echo done", None)]
)
def test_no_process_of_a_compiler_outlives_it(ending, raised, tmp_path):
    pid = tmp_path / "pid"
    command = ["sh", "-c", f"sleep 60 > /dev/null 2>&1 & echo $! > {pid}; {ending}"]
    if raised:
        with pytest.raises(CannotCompileError, match=raised):
            run_compiler(command, wait=0.5)
    else:
        assert run_compiler(command, wait=60) == "done\n"
    for _ in range(100):
        command = ["ps", "-o", "stat=", "-p", pid.read_text().strip()]
        state = subprocess.run(command, capture_output=True, text=True).stdout
        if not state.strip() or state.startswith("Z"):
            return
        time.sleep(0.05)
    pytest.fail("a process of the compiler is alive")
