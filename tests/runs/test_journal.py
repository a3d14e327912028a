"""Everything that was begun is charged, whatever ends a run."""

import multiprocessing
import os
import random
import time

import pytest
from fake_runs import read_status
from interrupted import (
    WORDS,
    Death,
    certified,
    child,
    cost,
    dies_in,
    expected,
    run_or_resume,
    watched,
)
from runs import experiment

from fedpriv.errors import FedprivError
from fedpriv.runs.folder import RunFolder
from fedpriv.runs.journal import Journal, attempts, in_progress
from fedpriv.runtime import DivergedError


def died(folder, *words, after):
    """A run of 20 rounds that has died `after` so many; the rounds whose sums were seen."""
    sums = []
    with dies_in(after, sums=sums), pytest.raises(Death):
        run_or_resume(folder, *words, "rounds=20")
    return sums


def test_rounds_that_are_begun_again_are_charged_again(tmp_path, capsys):
    """12 of 20 rounds, none of them in a checkpoint; then all 20."""
    words, folder = (*WORDS, "checkpoint_every=100"), tmp_path / "run"
    sums = died(folder, *words, after=12)
    with dies_in(0, sums=sums):
        run_or_resume(folder, *words, "rounds=20", resume=True)
    assert len(sums) == 32
    rows = RunFolder(folder).tables.rows("epsilon.csv")
    exp = experiment(*words)
    assert certified(rows) == expected(cost(exp, 32)) != expected(cost(exp, 20))
    first = [row for row in rows if row["round"] == "1"]
    assert certified(first) == expected(cost(exp, 13))
    assert read_status(folder)["repeated_rounds"] == {str(number): 1 for number in range(1, 13)}
    assert (
        "Rounds repeated after an interruption: 12. Each attempt is charged"
        in capsys.readouterr().out
    )


def test_every_interruption_is_charged(tmp_path):
    """With a checkpoint after each round: one round more each time. Once it is over, another end
    changes nothing."""
    words, folder, sums = (*WORDS, "rounds=4"), tmp_path / "run", []
    for number in (2, 2, 3):
        with dies_in(number, sums=sums), pytest.raises(Death):
            run_or_resume(folder, *words, resume=bool(sums))
    for rounds in (4, 4, 5):
        with dies_in(0, sums=sums):
            run_or_resume(folder, *WORDS, f"rounds={rounds}", resume=True)
        assert certified(RunFolder(folder).tables.rows("epsilon.csv")) == expected(
            cost(experiment(*WORDS), len(sums))
        )
        assert read_status(folder)["repeated_rounds"] == {"2": 2, "3": 1}
    assert sums == [1, 2, 2, 2, 3, 3, 4, 5]


def test_a_seeded_round_that_is_repeated_shows_nothing_new(tmp_path, capsys):
    words = ("accountant=rdp", "preset.n_silos=2", "checkpoint_every=100")
    died(tmp_path / "run", *words, after=3)
    run_or_resume(tmp_path / "run", *words, "rounds=4", resume=True)
    assert "repeated after" not in capsys.readouterr().out
    run_or_resume(tmp_path / "whole", *words, "rounds=4")
    for name in ("epsilon.csv", "metrics.csv", "model.safetensors"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.parametrize(("lost", "room", "recorded"), [(12, 14, ["1", "2"]), (3, 3, [])])
def test_repeated_rounds_are_on_the_budget(lost, room, recorded, tmp_path):
    """Room for 14 rounds: after 12 that were lost, two are left. Where no other fits, those that
    were lost are in the table. A third try finds nothing left and loses nothing."""
    paid = cost(experiment(*WORDS), room)
    [budget] = {row.certified for row in paid if row.observer == "released model"}
    words = (*WORDS, "checkpoint_every=100", "rounds=20", f"accountant.budget={budget}")
    folder, table = tmp_path / "run", RunFolder(tmp_path / "run").tables
    died(folder, *words, after=lost)
    for _ in range(2):
        run_or_resume(folder, *words, resume=True)
        rows = table.rows("epsilon.csv")
        assert certified(rows) == expected(paid)
        assert {row["round"] for row in rows} == set(recorded or ["0"])
        assert read_status(folder)["reason"].startswith("round ")
        assert [row["round"] for row in table.rows("timings.csv")] == recorded


def test_a_round_that_fails_is_in_the_table(tmp_path):
    def fails(number):
        if number == 2:
            raise DivergedError("too far")

    with watched(fails, lambda number: None), pytest.raises(DivergedError):
        run_or_resume(tmp_path / "run", *WORDS, "rounds=3", "evaluate_every=3")
    rows = RunFolder(tmp_path / "run").tables.rows("epsilon.csv")
    assert certified(rows) == expected(cost(experiment(*WORDS), 2))
    assert read_status(tmp_path / "run")["dp_valid"] is None


def test_what_was_begun_can_be_read_while_a_process_writes_it(tmp_path):
    """A line without its end was no beginning: it is on its way, or the machine went off."""
    assert attempts(tmp_path) == {}
    assert not in_progress(tmp_path)
    with Journal(tmp_path) as journal:
        assert in_progress(tmp_path)
        assert attempts(tmp_path) == {}
        for number in (1, 1, 2):
            journal.append(number)
        assert journal.total == 3
        with open(tmp_path / "rounds_begun.csv", "a") as file:
            file.write("2")
        assert attempts(tmp_path) == {1: 2, 2: 1}
    assert not in_progress(tmp_path)
    with Journal(tmp_path) as journal:
        assert journal.attempts == {1: 2, 2: 1}
        journal.append(2)
    with Journal(tmp_path) as journal:
        assert journal.attempts == {1: 2, 2: 2}


def test_what_was_begun_is_on_the_disk(tmp_path, monkeypatch):
    """Before anything else happens: the folder's entry, the header, and each line."""
    folders, synced = [], []
    monkeypatch.setattr(os, "fsync", lambda handle: folders.append(os.listdir(handle)))
    monkeypatch.setattr(os, "fdatasync", lambda handle: synced.append(os.pread(handle, 1000, 0)))
    with Journal(tmp_path) as journal:
        assert folders == [["rounds_begun.csv"]]
        assert synced == [b"round,time\n"]
        journal.append(1)
        assert synced[1:] == [(tmp_path / "rounds_begun.csv").read_bytes()]
        journal.append(2, synced=False)
        assert len(synced) == 2
        journal.fsync()
        assert synced[2:] == [(tmp_path / "rounds_begun.csv").read_bytes()]
    with Journal(tmp_path):
        assert (len(folders), len(synced)) == (1, 3)


@pytest.mark.parametrize(("randomness", "synced"), [("system", True), ("simulation", False)])
def test_a_round_that_cannot_be_repeated_is_on_the_disk_before_its_messages(
    tmp_path, monkeypatch, randomness, synced
):
    """And the lines of one that can are there before the checkpoint is."""
    path, on_disk, known = tmp_path / "run" / "rounds_begun.csv", [b""], []
    disk = os.fdatasync

    def sync(handle):
        if os.readlink(f"/proc/self/fd/{handle}") == str(path):
            on_disk.append(os.pread(handle, 10_000, 0))
        elif os.readlink(f"/proc/self/fd/{handle}").endswith("checkpoint.safetensors.tmp"):
            known.append(on_disk[-1])
        disk(handle)

    monkeypatch.setattr(os, "fdatasync", sync)
    before = []
    with watched(
        lambda number: before.append(on_disk[-1] == path.read_bytes()), lambda number: None
    ):
        run_or_resume(
            tmp_path / "run",
            f"randomness={randomness}",
            "accountant=rdp",
            "preset.n_silos=2",
            "rounds=3",
        )
    assert before == [synced] * 3
    assert known[-1] == path.read_bytes()


def test_a_damaged_file_is_not_kept_locked(tmp_path):
    """The failure is still at hand when somebody has mended the file."""
    path = tmp_path / "rounds_begun.csv"
    path.write_text("round\n1,2026\n")
    first = r"begun\.csv is damaged \(its first line is b'round"
    with pytest.raises(FedprivError, match=first) as failure:
        Journal(tmp_path)
    path.write_text("round,time\n1,2026\n")
    with Journal(tmp_path) as journal:
        assert journal.attempts == {1: 1}
    assert failure.value.__traceback__


def noted(log):
    """How many events a run has written down."""
    return log.read_bytes().count(b"\n") if log.exists() else 0


@pytest.mark.parametrize("kills", [4, pytest.param(50, marks=pytest.mark.slow)])
def test_killed_at_random_moments_nothing_that_was_seen_goes_uncharged(tmp_path, kills):
    """Whatever moment the kills hit: no more rounds were seen to begin, and no more sums, than are
    charged; no more than one for each kill is charged that was not seen; and the certificate is
    that of all rounds that are charged."""
    folder, log, words = (
        tmp_path / "run",
        tmp_path / "log",
        (*WORDS, "checkpoint_every=3", "rounds=5000"),
    )
    context, moments = multiprocessing.get_context("forkserver"), random.Random(kills)
    context.set_forkserver_preload(["torch", "fedpriv.testing.experiments", "fedpriv.runtime"])
    for _ in range(kills):
        resumes = (folder / "config.yaml").exists()
        before = noted(log)
        process = context.Process(target=child, args=(folder, log, words, resumes), daemon=True)
        process.start()
        lines = moments.randint(1, 30) + 2 * (
            not resumes
        )  # counted in what it does, as machines differ in speed
        while process.is_alive() and noted(log) < before + lines:
            time.sleep(0.002)
        time.sleep(moments.uniform(0, 0.01))
        assert process.is_alive(), "ended before it could be killed"
        process.kill()
        process.join()
    saved = RunFolder(folder).load_checkpoint()
    with Journal(folder) as journal:
        killed = journal.total
    lines = [line.split()[0] for line in log.read_text().splitlines()]
    begins, sums = lines.count("begins"), lines.count("sum")
    assert 0 < sums <= begins <= killed
    assert killed - begins <= kills
    assert killed - sums <= kills
    run_or_resume(folder, *words[:-1], f"rounds={saved.round + 1}", resume=True)
    assert certified(RunFolder(folder).tables.rows("epsilon.csv")) == expected(
        cost(experiment(*WORDS), killed + 1)
    )
