"""Commands where the system has no fcntl, and its other kind of lock."""

import subprocess
import sys
from contextlib import nullcontext

import pytest

from fedpriv.util.file_locks import lock

PREPARED = """
import sys
sys.modules["fcntl"] = None  # importing it raises ImportError, as on Windows
"""
COMMANDS = {
    "epsilon": "from fedpriv.cli import main; main(['epsilon', 'rounds=2'])",
    "certify": "import fedpriv.claims.command",
    "report --verify": "import fedpriv.reports.assessment.command",
    "keys": "import fedpriv.crypto.keys_command",
    "a run": "import fedpriv.runs.journal, fedpriv.runs.run_or_resume",
}
WINDOWS = """
import os, types
held = set()
def locking(handle, how, size):
    place = os.fstat(handle).st_ino, os.lseek(handle, 0, os.SEEK_CUR), size
    if place in held:
        raise PermissionError(13, "Permission denied")
    held.add(place)
sys.modules["msvcrt"] = types.SimpleNamespace(LK_NBLCK=2, locking=locking)
from pathlib import Path
from fedpriv.errors import FedprivError
from fedpriv.runs.journal import Journal, attempts, in_progress
folder = Path(sys.argv[1])
with Journal(folder) as journal:
    journal.append(1)
    assert in_progress(folder)
    try:
        Journal(folder)
    except FedprivError as error:
        assert "another process is running it" in str(error)
    else:
        raise AssertionError("a second journal")
    journal.append(2)
assert dict(attempts(folder)) == {1: 1, 2: 1}, attempts(folder)
"""


def child(text, *args):
    return subprocess.run(
        [sys.executable, "-c", PREPARED + text, *map(str, args)],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_without_fcntl(command):
    done = child(COMMANDS[command])
    assert done.returncode == 0, done.stderr
    assert command != "epsilon" or "certified" in done.stdout


def test_a_locked_byte_serves_as_a_lock(tmp_path):
    done = child(WINDOWS, tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no shared locks")
@pytest.mark.parametrize(
    ("shared", "others"), [((True, True), True), ((True, False), False), ((False, True), False)]
)
def test_only_shared_locks_are_shared(shared, others, tmp_path):
    with open(tmp_path / "file", "w") as one, open(tmp_path / "file") as other:
        lock(one.fileno(), shared=shared[0])
        with nullcontext() if others else pytest.raises(BlockingIOError):
            lock(other.fileno(), shared=shared[1])
