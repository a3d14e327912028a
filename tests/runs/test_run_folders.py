"""Folders that were damaged, that two want, whose disk is full, whose process was asked to end."""

import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import patch

import pytest
from command import refusal, run, success
from fake_runs import read_status
from interrupted import WORDS, Death, dies_in, run_or_resume

from fedpriv.runs import journal
from fedpriv.runs import tables as records
from fedpriv.runs.folder import RunFolder
from fedpriv.util import durable_files as durable

TINY = ("allocator.n_users=8", "allocator.n_silos=2", "algo.local_epochs=1", "accountant=rdp")
SAME = ("metrics.csv", "epsilon.csv", "traffic.csv", "config.yaml", "model.safetensors")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of six rounds."""
    folder = tmp_path_factory.mktemp("whole")
    assert run(*TINY, "rounds=6", "hydra.run.dir=run", cwd=folder).returncode == 0
    return folder / "run"


@pytest.fixture(scope="module")
def half(tmp_path_factory):
    """The same after its third round, with a fourth that was lost."""
    folder = tmp_path_factory.mktemp("half")
    with dies_in(4, sums=[]), pytest.raises(Death):
        run(*TINY, "rounds=6", "hydra.run.dir=run", cwd=folder)
    return folder / "run"


@pytest.fixture
def broken(half, tmp_path):
    return Path(shutil.copytree(half, tmp_path / "run"))


def goes_on(folder, whole):
    """Check that a run ends as it would have without whatever happened to it."""
    success(f"resume={folder}", cwd=folder.parent)
    for name in SAME:
        assert (folder / name).read_bytes() == (whole / name).read_bytes(), name
    assert read_status(folder)["state"] == "done"


def damages(content):
    """What may become of a file: gone to zero, cut, blank, other bytes. `pytest -m slow` has every
    cut."""
    cuts = (0, len(content) // 2, len(content) - 2)
    yield from (content[:length] for length in cuts)
    yield b"\0" * len(content)
    yield b"\n" * len(content)
    yield b"\xff" + content


@pytest.mark.parametrize("name", ["epsilon.csv", "status.json", "model.safetensors"])
def test_what_can_be_rebuilt_is(name, broken, whole):
    for content in (
        [*damages((broken / name).read_bytes())][::2] if (broken / name).exists() else [b"x"]
    ):
        copy = Path(shutil.copytree(broken, broken.parent / "copy"))
        (copy / name).write_bytes(content)
        goes_on(copy, whole)
        shutil.rmtree(copy)


@pytest.mark.parametrize(
    "name", ["metrics.csv", "timings.csv", "traffic.csv", "checkpoint.safetensors", "config.yaml"]
)
def test_what_cannot_is_named_in_one_line(name, broken):
    """rounds_begun.csv has its own tests: without its last line it may be that of a run that died
    earlier."""
    before = (broken / name).read_bytes()
    for content in damages(before):
        (broken / name).write_bytes(content)
        done = run(f"resume={broken}", cwd=broken.parent)
        assert done.returncode == 2, (content[:50], done.stderr)
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr
        assert "fedpriv: " in done.stderr
        assert name in done.stderr or name == "config.yaml"
    (broken / name).unlink()
    assert run(f"resume={broken}", cwd=broken.parent).returncode == 2
    (broken / name).write_bytes(before)
    assert run(f"resume={broken}", cwd=broken.parent).returncode == 0, (
        "a refusal has changed something"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "metrics.csv",
        "timings.csv",
        "traffic.csv",
        "epsilon.csv",
        "status.json",
        "checkpoint.safetensors",
        "config.yaml",
        "rounds_begun.csv",
    ],
)
def test_every_cut_is_mended_or_named(name, broken, whole):
    """200 lengths of each file: one line, or the run as it should be."""
    content = (broken / name).read_bytes()
    for length in sorted({len(content) * step // 200 for step in range(200)}):
        copy = Path(shutil.copytree(broken, broken.parent / "copy"))
        (copy / name).write_bytes(content[:length])
        done = run(f"resume={copy}", cwd=copy.parent)
        if done.returncode:
            assert (done.returncode, len(done.stderr.strip().splitlines())) == (2, 1), done.stderr
        else:
            for other in SAME:
                assert (copy / other).read_bytes() == (whole / other).read_bytes(), (length, other)
        shutil.rmtree(copy)


class Disk:
    """A disk with room for so many bytes, in place of `write` of the files that a run keeps. wrong:
    what it says then; with EROFS it can only be read from there on."""

    def __init__(self, room, wrong=errno.ENOSPC):
        self.room, self.wrong = room, wrong

    @property
    def error(self):
        return OSError(self.wrong, os.strerror(self.wrong))

    def take(self, size):
        """How many bytes of a write fit; raises when none does."""
        taken = min(size, self.room)
        self.room -= taken
        if taken < size and taken == 0:
            raise self.error
        return taken

    def open(self, path, mode="r", *args, **kwargs):
        if self.wrong == errno.EROFS and not self.room and mode not in ("r", "rb"):
            raise OSError(self.wrong, os.strerror(self.wrong), str(path))
        file = open(path, mode, *args, **kwargs)  # noqa: SIM115  (whoever asked closes it)
        return file if mode in ("r", "rb") else Small(file, self)

    @contextlib.contextmanager
    def full(self):
        """Context in which runs write to this disk."""
        with contextlib.ExitStack() as stack:
            for module in (records, durable, journal):
                stack.enter_context(patch.object(module, "open", self.open, create=True))
            yield


class Small:
    """A file on such a disk. Unbuffered ones tell how much was taken, others write what fits and
    raise."""

    def __init__(self, file, disk):
        self.file, self.disk, self.raw = file, disk, not hasattr(file, "raw")

    def write(self, content):
        taken = self.disk.take(len(content))
        self.file.write(content[:taken])
        if taken < len(content) and not self.raw:
            raise self.disk.error
        return taken

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.file.close()

    def __getattr__(self, name):
        return getattr(self.file, name)


def fills_up(folder, room, whole, wrong=errno.ENOSPC):
    """A run of six rounds on a disk with so much room; once there is more, it goes on."""
    with Disk(room, wrong).full():
        done = run(*TINY, "rounds=6", f"hydra.run.dir={folder}", cwd=folder.parent)
    if done.returncode == 0:
        return
    assert done.returncode == 2, done.stderr
    said = [line for line in done.stderr.splitlines() if not line.startswith("round ")]
    assert len(said) == 1, done.stderr
    assert os.strerror(wrong) in said[0]
    if (folder / "status.json").exists() and wrong == errno.ENOSPC:
        assert read_status(folder)["state"] == "failed"
    if (folder / "config.yaml").exists():
        goes_on(folder, whole)


@pytest.mark.parametrize(
    ("room", "wrong"),
    [
        *((room, errno.ENOSPC) for room in (100, 4_000, 30_000)),
        *((room, errno.EROFS) for room in (0, 4_000, 30_000)),
    ],
)
def test_a_full_or_failing_disk_is_one_line_and_loses_nothing(room, wrong, tmp_path, whole):
    """A failing disk can only be read from then on: nothing can be written into status.json."""
    fills_up(tmp_path / "run", room, whole, wrong)


@pytest.mark.parametrize("content", [b"", b"rou", b"round,plan,se"])
def test_a_table_whose_first_line_did_not_fit_is_no_table(content, tmp_path, whole):
    with dies_in(1, sums=[]), pytest.raises(Death):
        run(*TINY, "rounds=6", "hydra.run.dir=run", cwd=tmp_path)
    (tmp_path / "run" / "timings.csv").write_bytes(content)
    goes_on(tmp_path / "run", whole)


@pytest.mark.parametrize("content", [b"", b"round,ti", b"round,time\n"])
def test_a_folder_with_no_more_than_a_journal_is_free(content, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "rounds_begun.csv").write_bytes(content)
    success(*TINY, "rounds=1", "hydra.run.dir=run", cwd=tmp_path)
    assert RunFolder(tmp_path / "run").tables.rows("rounds_begun.csv")[0]["round"] == "1"


def test_a_failure_that_cannot_be_recorded_is_still_told(tmp_path, monkeypatch):
    folder = RunFolder(tmp_path)
    folder.status(state="running")

    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left")

    monkeypatch.setattr("os.replace", fail)
    folder.ended("failed", "the disk is full")
    assert read_status(tmp_path)["state"] == "failed"
    assert not list(tmp_path.glob("*.tmp"))


@pytest.mark.skipif(not os.geteuid(), reason="permissions do not stop root")
def test_a_folder_that_cannot_be_written(broken, whole):
    """Nothing there changes, and once it can be written the run goes on."""
    files = {path.name: path.read_bytes() for path in broken.iterdir() if path.is_file()}
    broken.chmod(0o500)
    for words in ([f"resume={broken}"], [*TINY, f"hydra.run.dir={broken}/new"]):
        done = run(*words, cwd=broken.parent)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
        assert str(broken) in done.stderr
    broken.chmod(0o700)
    assert {path.name: path.read_bytes() for path in broken.iterdir() if path.is_file()} == files
    goes_on(broken, whole)


def test_two_begin_in_one_folder_and_one_of_them_runs(tmp_path):
    words = [sys.executable, "-m", "fedpriv", *TINY, "rounds=4", "hydra.run.dir=run"]
    both = [
        subprocess.Popen(
            [*words, f"algo.clip={clip}"],
            cwd=tmp_path,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        )
        for clip in (1, 2)
    ]
    errors = [process.communicate()[1].decode() for process in both]
    assert sorted(process.returncode for process in both) == [0, 2]
    lost = next(number for number, process in enumerate(both) if process.returncode)
    assert "another process is running" in errors[lost] or "already holds a run" in errors[lost]
    assert f"clip: {2 - lost}\n" in (tmp_path / "run" / "config.yaml").read_text()
    assert f"algo.clip={2 - lost}\n" in (tmp_path / "run/.hydra/overrides.yaml").read_text()
    assert [row["round"] for row in RunFolder(tmp_path / "run").tables.rows("metrics.csv")] == [
        "0",
        "1",
        "2",
        "3",
        "4",
    ]


def test_a_process_that_is_asked_to_end_says_so_and_goes_on(tmp_path):
    """As clusters do before they kill."""
    words = [sys.executable, "-m", "fedpriv", *TINY, "rounds=100000", "hydra.run.dir=run"]
    process = subprocess.Popen(
        words, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    end = time.monotonic() + 120
    while not (tmp_path / "run" / "timings.csv").exists():
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=60)
    said = f"fedpriv: terminated; continue with fedpriv resume={tmp_path / 'run'}"
    assert (process.returncode, error.strip().splitlines()[-1]) == (143, said)
    status = read_status(tmp_path / "run")
    assert (status["state"], "resume=" in status["reason"]) == ("interrupted", True)
    done = RunFolder(tmp_path / "run").load_checkpoint().round
    assert run("resume=run", f"rounds={done + 1}", cwd=tmp_path).returncode == 0


def test_fewer_rounds_than_a_run_has_behind_it_are_refused(whole, tmp_path):
    folder = Path(shutil.copytree(whole, tmp_path / "run"))
    assert "rounds=3: at least 6" in refusal(f"resume={folder}", "rounds=3", cwd=tmp_path)
    assert read_status(folder)["rounds"] == 6
    assert run(f"resume={folder}", "rounds=7", cwd=tmp_path).returncode == 0
    assert "rounds: 7" in (folder / "config.yaml").read_text()


def test_epsilon_of_a_folder_is_that_of_its_own_settings(whole, tmp_path):
    done = run("epsilon", f"resume={whole}", cwd=tmp_path)
    alone = run("epsilon", *TINY, "rounds=6", cwd=tmp_path)
    other = run("epsilon", *TINY, "rounds=7", cwd=tmp_path)
    assert done.stdout == alone.stdout != other.stdout
    assert "algo.clip=3" in refusal("epsilon", f"resume={whole}", "algo.clip=3", cwd=tmp_path)
    assert run("epsilon", "resume=nowhere", cwd=tmp_path).returncode == 2


def test_epsilon_of_a_folder_is_not_that_of_silos_it_went_on_without(whole, tmp_path):
    """Fewer silos hide less from one of them, and no file says since which round."""
    folder = shutil.copytree(whole, tmp_path / "run")
    status = read_status(folder)
    (folder / "status.json").write_text(json.dumps(status | {"left_out": ["silo1"]}))
    done = run("epsilon", "resume=run", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "resume=run: a run with all its silos (without silo1, epsilon.csv" in done.stderr


def test_epsilon_of_a_folder_charges_what_was_begun_again(tmp_path):
    words = (*TINY, "randomness=system", "rounds=4", "checkpoint_every=100")
    with dies_in(3, sums=[]), pytest.raises(Death):
        run(*words, "hydra.run.dir=run", cwd=tmp_path)
    done = run("epsilon", "resume=run", cwd=tmp_path)
    assert "Rounds repeated after an interruption: 3." in done.stdout
    assert run("resume=run", cwd=tmp_path).returncode == 0
    charged = {
        row["certified"]
        for row in RunFolder(tmp_path / "run").tables.rows("epsilon.csv")
        if row["round"] == "4"
    }
    after = run("epsilon", "resume=run", cwd=tmp_path).stdout
    assert all(f"{float(value):.4f}" in after for value in charged)


def test_a_damaged_table_of_a_system_run_charges_everything(tmp_path):
    """Rebuilt, it says at least what it said before."""
    with dies_in(3, sums=[]), pytest.raises(Death):
        run_or_resume(tmp_path / "run", *WORDS, "rounds=4")
    before = {
        row["round"]: float(row["certified"])
        for row in RunFolder(tmp_path / "run").tables.rows("epsilon.csv")
    }
    (tmp_path / "run" / "epsilon.csv").write_text("")
    run_or_resume(tmp_path / "run", *WORDS, "rounds=4", resume=True)
    after = {
        row["round"]: float(row["certified"])
        for row in RunFolder(tmp_path / "run").tables.rows("epsilon.csv")
    }
    assert set(before) <= set(after)
    assert all(after[number] >= value for number, value in before.items())


@pytest.mark.parametrize(
    "words", [("hydra.run.dir=it/0",), ("-m", "hydra/launcher=side_by_side", "hydra.sweep.dir=it")]
)
def test_a_run_that_is_refused_leaves_the_others_records_alone(words, tmp_path):
    assert run("-m", *TINY, "rounds=1", "hydra.sweep.dir=it", cwd=tmp_path).returncode == 0
    files = [path for path in (tmp_path / "it" / "0").rglob("*") if path.is_file()]
    before = {path: path.read_bytes() for path in files}
    assert run(*words, *TINY, "rounds=1", "algo.clip=3", cwd=tmp_path).returncode == 2
    assert {path: path.read_bytes() for path in files} == before
