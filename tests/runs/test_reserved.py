"""Two processes never start runs in one folder: the loser changes nothing there."""

import errno

import pytest
from command import run

from fedpriv.runs.reserved import reserved

TINY = ("allocator.n_users=8", "allocator.n_silos=2", "algo.local_epochs=1", "accountant=rdp")


@pytest.mark.parametrize("words", [("hydra.run.dir=here",), ("-m", "hydra.sweep.dir=here")])
def test_the_loser_leaves_no_record_of_its_own(words, tmp_path):
    with reserved(tmp_path / "here", tmp_path):
        (tmp_path / "here" / "file").write_text("of the winner")
        done = run(*words, *TINY, "seed=1", "rounds=1", cwd=tmp_path)
        assert done.returncode == 2
        assert done.stderr == "fedpriv: here: another process is running it\n"
        assert [path.name for path in (tmp_path / "here").iterdir()] == ["file"]
    done = run(*words, *TINY, "seed=1", "rounds=1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_an_empty_folder_does_not_stay(tmp_path):
    (tmp_path / "stays").mkdir()
    with reserved(tmp_path / "stays" / "a" / "b", tmp_path / "stays"):
        assert (tmp_path / "stays" / "a" / "b").is_dir()
    assert list(tmp_path.iterdir()) == [tmp_path / "stays"]
    assert not list((tmp_path / "stays").iterdir())


@pytest.mark.parametrize(("file", "said"), [(None, "run: No space"), ("other", "other: No space")])
def test_a_disk_error_without_a_file_names_the_folder(file, said, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device", file)

    monkeypatch.setattr("fedpriv.commands.start_hydra", full)
    done = run(*TINY, "hydra.run.dir=run", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, f"fedpriv: {said} left on device\n")
    assert not list(tmp_path.iterdir())
