"""A process that leaves at once leaves nothing behind."""

import os
import subprocess
import sys

import pytest


def left(body, cwd, **streams):
    """How a process ends that runs `body` inside `quick_end`."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    program = "import atexit, sys\nfrom fedpriv.util.leaving import quick_end\nwith quick_end():\n"
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
    words = [sys.executable, "-c", program + lines]
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}
    return subprocess.run(words, cwd=cwd, env=environment, text=True, check=False, **streams)


@pytest.mark.parametrize(
    ("end", "code"),
    [("pass", 0), ("sys.exit()", 0), ("sys.exit(2)", 2), ("sys.exit(130)", 130)],
)
def test_what_is_open_is_written_and_calls_at_the_end_are_made(end, code, tmp_path):
    done = left(
        "import builtins\n"
        "builtins.kept = open('kept.txt', 'w')\n"
        "builtins.kept.write('text')\n"
        "builtins.raw = open('raw.bin', 'wb')\n"
        "builtins.raw.write(b'bytes')\n"
        "atexit.register(lambda: print('called'))\n"
        "print('printed')\n" + end,
        tmp_path,
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, "printed\ncalled\n", "")
    assert (tmp_path / "kept.txt").read_text() == "text"
    assert (tmp_path / "raw.bin").read_bytes() == b"bytes"


def test_nothing_is_taken_apart(tmp_path):
    body = (
        "import builtins\n"
        "class Slow:\n"
        "    def __del__(self):\n"
        "        print('taken apart')\n"
        "builtins.slow = Slow()"
    )
    assert left(body, tmp_path).stdout == ""


def test_threads_come_to_their_end(tmp_path):
    body = (
        "import threading, time\n"
        "def late():\n"
        "    time.sleep(0.3)\n"
        "    print('late')\n"
        "threading.Thread(target=late).start()"
    )
    assert left(body, tmp_path).stdout == "late\n"


@pytest.mark.parametrize(("end", "code"), [("1 / 0", 1), ("sys.exit('no')", 1)])
def test_a_defect_ends_as_always(end, code, tmp_path):
    done = left("print('printed')\n" + end, tmp_path)
    assert (done.returncode, done.stdout) == (code, "printed\n")
    assert "ZeroDivisionError" in done.stderr or done.stderr == "no\n"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /dev/full")
def test_output_that_cannot_be_written_is_said(tmp_path):
    with open("/dev/full", "w") as full:
        done = left("print('printed')", tmp_path, stdout=full)
    assert done.returncode == 2
    assert done.stderr.startswith("fedpriv: <stdout>: ")
    assert len(done.stderr.splitlines()) == 1
