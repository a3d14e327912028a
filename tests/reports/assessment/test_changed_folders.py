"""What differs between a folder and the one that a report is about."""

import shutil

import pytest

from fedpriv.reports.assessment.folder_files import file_digest
from fedpriv.reports.assessment.verify import changed_files


@pytest.fixture
def folder(tmp_path):
    run = tmp_path / "sweep" / "run"
    run.mkdir(parents=True)
    (run / "status.json").write_text("{}")
    return tmp_path / "sweep"


@pytest.fixture
def values(folder):
    files = {"status.json": file_digest(folder / "run" / "status.json")}
    return {"public": False, "runs": [{"folder": "run", "files": files}]}


def test_an_untouched_folder_has_no_changes(folder, values):
    assert not changed_files(values, folder)


def test_a_copy_beside_an_altered_run_does_not_stand_for_it(folder, values):
    """Reports name a run by its folder's own name."""
    shutil.copytree(folder / "run", folder / "z" / "run")
    (folder / "run" / "status.json").write_text('{"dp_valid": true}')
    assert changed_files(values, folder) == ["run: several folders"]


def test_a_file_that_was_added_is_named(folder, values):
    (folder / "run" / "model.safetensors").write_bytes(b"another model")
    (folder / "run" / "notes.txt").write_text("of no report")
    assert changed_files(values, folder) == ["run/model.safetensors: not in the report"]
