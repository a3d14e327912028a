"""A compiler with limits, and a folder of what it built."""

import os
import subprocess
import sys
import threading
import time

import pytest

from fedpriv.training.trainers.compiled import build_folder as module
from fedpriv.training.trainers.compiled.build_folder import (
    BuildFolder,
    CannotCompileError,
    run_compiler,
)


def builder(calls, content=b"a library", seconds=0.0):
    def make(scratch):
        calls.append(scratch)
        time.sleep(seconds)
        (scratch / "fresh").write_bytes(content)
        return scratch / "fresh"

    return make


@pytest.mark.parametrize("damage", [b"", b"a libr", b"another library"])
def test_a_damaged_library_is_built_again(damage, tmp_path):
    calls = []
    folder = BuildFolder(tmp_path)
    built = folder.library("one", builder(calls))
    built.write_bytes(damage)
    assert folder.library("one", builder(calls)).read_bytes() == b"a library"
    assert folder.library("one", builder(calls)).read_bytes() == b"a library"
    assert len(calls) == 2


def test_a_library_without_its_checksum_is_built_again(tmp_path):
    calls = []
    BuildFolder(tmp_path).library("one", builder(calls))
    (tmp_path / "one.sha256").unlink()
    BuildFolder(tmp_path).library("one", builder(calls))
    assert len(calls) == 2


def test_processes_at_the_same_time_build_once(tmp_path):
    calls = []
    threads = [
        threading.Thread(
            target=lambda: BuildFolder(tmp_path).library("one", builder(calls, seconds=0.2))
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1


def test_a_failure_is_remembered_for_a_while(tmp_path, monkeypatch):
    calls = []

    def fail(scratch):
        calls.append(scratch)
        raise CannotCompileError("no such header")

    for _ in range(2):
        with pytest.raises(CannotCompileError, match="no such header"):
            BuildFolder(tmp_path).library("one", fail)
    assert len(calls) == 1
    assert not any(path.is_dir() for path in tmp_path.iterdir())
    BuildFolder(tmp_path).library("other", builder(calls))
    monkeypatch.setattr(module, "FORGET_SECONDS", 0.0)
    BuildFolder(tmp_path).library("one", builder(calls))
    (tmp_path / "third.failed").write_text("damaged")
    BuildFolder(tmp_path).library("third", builder(calls))
    assert len(calls) == 4


def test_a_compiler_that_computes_too_long_is_ended(monkeypatch):
    monkeypatch.setattr(module, "LIMITED", ("sh", "-c", 'ulimit -t 1 && exec "$@"', "sh"))
    start = time.monotonic()
    with pytest.raises(CannotCompileError, match="fails"):
        run_compiler([sys.executable, "-c", "while True: pass"])
    assert time.monotonic() - start < 30


def test_waiting_costs_a_compiler_no_patience(monkeypatch):
    monkeypatch.setattr(module, "LIMITED", ("sh", "-c", 'ulimit -t 1 && exec "$@"', "sh"))
    assert run_compiler(["sh", "-c", "sleep 1.5; echo done"]) == "done\n"


@pytest.mark.parametrize("ending", ["hang", "end"])
def test_no_process_of_a_compiler_outlives_it(ending, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "WAIT_SECONDS", 0.5)
    script = f"sleep 60 > /dev/null 2>&1 & echo $! > {tmp_path / 'pid'}; "
    script += "wait" if ending == "hang" else "true"
    if ending == "hang":
        with pytest.raises(CannotCompileError, match="hangs"):
            run_compiler(["sh", "-c", script])
    else:
        run_compiler(["sh", "-c", script])
    pid = int((tmp_path / "pid").read_text())
    for _ in range(100):
        state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True).stdout
        if not state.strip() or state.startswith(b"Z"):
            return
        time.sleep(0.05)
    os.kill(pid, 9)
    pytest.fail("a process of the compiler is alive")
