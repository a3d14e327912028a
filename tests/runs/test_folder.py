import json

import numpy as np
import pytest

from fedpriv.errors import FedprivError
from fedpriv.runs.checkpoint import Checkpoint, Origin
from fedpriv.runs.folder import RunFolder
from fedpriv.util.durable_files import replace_file


@pytest.fixture
def folder(tmp_path):
    made = RunFolder(tmp_path / "run")
    made.begin("rounds: 3\n").close()
    return made


def test_floats_survive_exactly(folder):
    value = 0.1 + 0.2
    folder.append("metrics.csv", [{"round": 0, "loss": value, "norm": None}])
    folder.append("metrics.csv", [{"round": 1, "loss": np.float64(1e-300), "norm": float("inf")}])
    lines = (folder.path / "metrics.csv").read_text().splitlines()
    assert lines == ["round,loss,norm", f"0,{value!r},", "1,1e-300,inf"]


def test_columns_cannot_change(folder):
    folder.append("metrics.csv", [{"round": 0, "loss": 1.0}])
    with pytest.raises(ValueError, match="differ"):
        folder.append("metrics.csv", [{"round": 1, "accuracy": 1.0}])


def test_rewind_cuts_later_and_half_written_lines(folder):
    folder.append("epsilon.csv", [{"round": r, "certified": float(r)} for r in (1, 1, 2, 3)])
    with open(folder.path / "epsilon.csv", "a") as file:
        file.write("3,0.12")  # killed while writing
    folder.tables.cut("epsilon.csv", 2)
    assert (folder.path / "epsilon.csv").read_text() == "round,certified\n1,1.0\n1,1.0\n2,2.0\n"
    folder.rewind(None)
    assert not (folder.path / "epsilon.csv").exists()


def test_a_damaged_table_of_epsilons_keeps_no_other_from_being_cut(folder):
    for number in (1, 2):
        for table in ("metrics.csv", "epsilon.csv", "traffic.csv", "timings.csv"):
            folder.append(table, [{"round": number, "value": 0.5}])
        if number == 1:
            marks = folder.tables.marks()
    (folder.path / "epsilon.csv").write_text("")
    saved = Checkpoint(1, {}, 1, Origin({}, {}), marks, {})
    assert not RunFolder(folder.path).rewind(saved)
    assert not (folder.path / "epsilon.csv").exists()
    for table in ("metrics.csv", "traffic.csv", "timings.csv"):
        assert (folder.path / table).read_text() == "round,value\n1,0.5\n"
    (folder.path / "traffic.csv").write_text("round,value\n1,0.6\n")
    with pytest.raises(FedprivError, match=r"traffic\.csv is damaged"):
        RunFolder(folder.path).rewind(saved)


def test_a_folder_holds_one_run(folder):
    folder.status(state="running")
    with pytest.raises(FedprivError, match="resume="):
        RunFolder(folder.path).begin("")


def test_status_merges(folder):
    folder.status(state="running", rounds=3)
    folder.status(state="done")
    stored = json.loads((folder.path / "status.json").read_text())
    assert (stored["state"], stored["rounds"]) == ("done", 3)


def test_replacing_never_leaves_half_a_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    replace_file(path, b"old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"
