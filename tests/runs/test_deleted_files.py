"""Files of a run that somebody deletes or changes while it goes on: the run ends in one line, or
its records are whole in the end. It is never done with a record missing."""

import json
import shutil

import pytest
from command import refusal, run
from fake_runs import read_status
from interrupted import watched

from fedpriv.runs.journal import Journal

TINY = ("allocator.n_users=8", "allocator.n_silos=2", "algo.local_epochs=1", "accountant=rdp")
NAMES = ("metrics.csv", "epsilon.csv", "timings.csv", "status.json", "config.yaml")
NAMES += ("rounds_begun.csv", "run.log", "checkpoint.safetensors", ".")


def meddled(folder, round, meddle, *, after):
    """A run of four rounds; `meddle` is called in `round`, before its first message or after its
    sum."""

    def act(number):
        if number == round:
            meddle()

    def rest(number):
        return None

    with watched(*((rest, act) if after else (act, rest))):
        return run(*TINY, "rounds=4", f"hydra.run.dir={folder}", cwd=folder.parent)


@pytest.mark.parametrize(("round", "after"), [(1, False), (4, True)])
@pytest.mark.parametrize("name", NAMES)
def test_a_file_deleted_in_mid_run(name, round, after, tmp_path):
    folder = tmp_path / "run"

    def delete():
        if name == ".":
            shutil.rmtree(folder, ignore_errors=True)
        else:
            (folder / name).unlink(missing_ok=True)

    done = meddled(folder, round, delete, after=after)
    if done.returncode:
        assert done.returncode == 2
        assert done.stderr.splitlines()[-1].startswith("fedpriv: ")
        assert str(folder) in done.stderr.splitlines()[-1]
        assert read_status(folder).get("state") != "done"
    else:
        status = json.loads((folder / "status.json").read_text())
        assert status["state"] == "done"
        assert status["labels"]
        assert (folder / "config.yaml").exists()
        assert (folder / "checkpoint.safetensors").exists()
        with Journal(folder) as journal:
            assert journal.attempts.total() == 4
        for table in ("metrics.csv", "epsilon.csv", "timings.csv"):
            rounds = {line.split(",")[0] for line in (folder / table).read_text().splitlines()}
            assert rounds >= {"1", "2", "3", "4"}, table


def test_another_journal_in_its_place_is_no_journal(tmp_path):
    folder = tmp_path / "run"

    def replace():
        (folder / "rounds_begun.csv").unlink()
        (folder / "rounds_begun.csv").write_text("round,time\n1,x\n2,x\n")

    done = meddled(folder, 2, replace, after=True)
    assert done.returncode == 2
    assert "rounds_begun.csv was deleted or replaced" in done.stderr


def test_a_byte_that_is_no_text_in_the_timings(tmp_path):
    """The table is only read at the end, for the rounds without a sum."""
    folder = tmp_path / "run"
    assert run(*TINY, "rounds=1", f"hydra.run.dir={folder}", cwd=tmp_path).returncode == 0
    raw = (folder / "timings.csv").read_bytes()
    (folder / "timings.csv").write_bytes(raw.rstrip(b"\n") + b"\xff\n")
    assert "timings.csv is damaged" in refusal(f"resume={folder}", "rounds=2", cwd=tmp_path)
