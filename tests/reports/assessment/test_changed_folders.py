"""What differs between a folder and the one that a report is about."""

import shutil

import pytest

from fedpriv.errors import FedprivError
from fedpriv.reports.assessment.folder_files import file_digest
from fedpriv.reports.assessment.verify import changed_files, verify


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


def test_a_folder_is_refused_with_the_name_of_the_report_in_it(folder):
    with pytest.raises(FedprivError, match=r"is a folder; name the report in it, .*report\.html"):
        verify(folder)


def test_a_copy_beside_an_altered_run_does_not_stand_for_it(folder, values):
    """Reports name a run by its way from the sweep's folder."""
    assert not changed_files(values, folder)
    shutil.copytree(folder / "run", folder / "z" / "run")
    (folder / "run" / "status.json").write_text('{"dp_valid": true}')
    assert changed_files(values, folder) == ["run/status.json: changed", "z/run: not in the report"]


def test_runs_of_two_methods_may_have_folders_of_one_name(folder, values):
    for method in ("one", "two"):
        shutil.copytree(folder / "run", folder / method / "seed=0")
    shutil.rmtree(folder / "run")
    runs = [values["runs"][0] | {"folder": f"{method}/seed=0"} for method in ("one", "two")]
    assert not changed_files({"public": False, "runs": runs}, folder)
    (folder / "two" / "seed=0" / "status.json").write_text("{ }")
    found = changed_files({"public": False, "runs": runs}, folder)
    assert found == ["two/seed=0/status.json: changed"]


def test_an_audit_that_was_changed_and_a_file_that_was_added_are_named(folder, values):
    (folder / "audit").mkdir()
    path = folder / "audit" / "audit.json"
    path.write_text("{}")
    values = values | {"audits": [{"folder": "audit", "file": file_digest(path)}]}
    assert not changed_files(values, folder)
    path.write_text('{"jobs": []}')
    (folder / "run" / "model.safetensors").write_bytes(b"another model")
    (folder / "run" / "notes.txt").write_text("of no report")
    expected = ["audit/audit.json: changed", "run/model.safetensors: not in the report"]
    assert changed_files(values, folder) == expected
