"""What a run's folder keeps, and what it refuses before it is resumed. The folders are made by
hand."""

import numpy as np
import pytest
import yaml

from fedpriv.errors import ConfigError, FedprivError
from fedpriv.runs.checkpoint import Checkpoint, Origin
from fedpriv.runs.folder import RunFolder
from fedpriv.runs.journal import Journal
from fedpriv.runs.stored_config import read_config, rounds_repeated, stored_config
from fedpriv.settings.compose import CommandLine
from fedpriv.util.durable_files import replace_file

ORIGIN = Origin({"algo": "a"}, {"fedpriv": "0.1.0"})
TABLES = ("metrics.csv", "epsilon.csv", "traffic.csv", "timings.csv")
JOURNAL = "rounds_begun.csv"


def made(path, attempts, *, completed, timed=None, origin=ORIGIN):
    """A run that began the rounds `attempts`, with a checkpoint after round `completed` (None: no
    checkpoint) and `timed` rounds in timings.csv."""
    folder = RunFolder(path)
    with folder.begin(yaml.safe_dump({"rounds": 9, "seed": 0})) as journal:
        for number in attempts:
            journal.append(number)
        for number in range(1, (timed if timed is not None else completed or 0) + 1):
            for table in TABLES:
                folder.tables.append(table, [{"round": number, "value": 0.5}])
        if completed is not None:
            marks = folder.tables.marks()
            arrays = {"params": np.zeros(2)}
            folder.save_checkpoint(Checkpoint(completed, arrays, len(attempts), origin, marks, {}))
    return folder


def opened(folder, origin=ORIGIN, **options):
    saved, journal = RunFolder(folder.path).open_for_resume(origin, **options)
    journal.close()
    return saved, journal.attempts


def test_a_whole_folder_opens(tmp_path):
    saved, attempts = opened(made(tmp_path / "run", [1, 1, 2], completed=2))
    assert saved.round == 2
    assert attempts == {1: 2, 2: 1}


@pytest.mark.parametrize(
    ("attempts", "name", "content", "says"),
    [
        ([1, 2, 2], JOURNAL, "round,time\n1,a\n2,a\n", "was cut: it lists fewer rounds"),
        ([1, 2, 3], JOURNAL, "round,time\n1,a\n2,a\n2,b\n", "was cut"),
        ([1, 2, 3], JOURNAL, "round,time\n1,a\n3,a\n", "was cut"),
        ([1, 2, 3], JOURNAL, "round,time\n", "was cut"),
        ([1, 2, 3], JOURNAL, "1,\n2,\n", r"begun\.csv is damaged"),
        ([1, 2, 3], JOURNAL, "round,time\nx\n", r"begun\.csv is damaged"),
        ([1, 2, 3], JOURNAL, None, r"begun\.csv is missing"),
        ([1, 2], "timings.csv", "round,value\n1,0.5\n", "lacks round 2"),
        ([1], "checkpoint.safetensors", None, "is missing, although"),
    ],
)
def test_a_file_that_lost_what_others_recorded_is_noticed(attempts, name, content, says, tmp_path):
    """Without its line the cost of a round is unknown. content: None: the file is deleted."""
    folder = made(tmp_path / "run", attempts, completed=max(attempts))
    path = folder.path / name
    path.unlink() if content is None else path.write_text(content)
    with pytest.raises(FedprivError, match=says):
        opened(folder)


def test_a_timed_round_after_the_checkpoint_counts_where_each_line_was_on_disk(tmp_path):
    folder = made(tmp_path / "run", [1, 2], completed=1)
    folder.tables.append("timings.csv", [{"round": 2, "value": 0.5}])
    folder.tables.append("timings.csv", [{"round": 3, "value": 0.5}])
    assert opened(folder, synced=False)[0].round == 1
    with pytest.raises(FedprivError, match="was cut"):
        opened(folder, synced=True)


def test_another_configuration_and_another_process_are_refused(tmp_path):
    folder = made(tmp_path / "run", [1], completed=1)
    with pytest.raises(FedprivError, match="differs in algo"):
        opened(folder, Origin({"algo": "b"}, {"fedpriv": "0.1.0"}))
    with Journal(folder.path), pytest.raises(FedprivError, match="another process"):
        opened(folder)


@pytest.mark.parametrize("started", [True, False])
def test_a_folder_holds_one_run(started, tmp_path):
    folder = made(tmp_path / "run", [1], completed=1) if started else RunFolder(tmp_path)
    if not started:
        folder.status(state="running")
    with pytest.raises(FedprivError, match=r"already holds a run; resume="):
        RunFolder(folder.path).begin("rounds: 1\n")


@pytest.mark.parametrize(
    ("attempts", "completed", "expected"),
    [
        ([], 0, {}),
        ([1], None, {1: 1}),
        ([1], 0, {1: 1}),
        ([1, 1], 0, {1: 2}),
        ([1, 1, 2], 2, {1: 1}),
        ([1, 2, 3], 2, {3: 1}),
    ],
)
def test_the_forecast_of_a_folder_charges_each_unrecorded_attempt(
    attempts, completed, expected, tmp_path
):
    folder = made(tmp_path / "run", attempts, completed=completed)
    assert rounds_repeated(folder.path, system=True) == expected
    assert rounds_repeated(folder.path, system=False) == {}


def test_the_forecast_needs_the_journal(tmp_path):
    folder = made(tmp_path / "run", [1], completed=1)
    (folder.path / "rounds_begun.csv").unlink()
    with pytest.raises(FedprivError, match="is missing, so what the run has shown"):
        rounds_repeated(folder.path, system=True)


def test_only_some_keys_may_change(tmp_path):
    folder = made(tmp_path / "run", [1], completed=1)
    line = CommandLine([f"resume={folder.path}", "rounds=12"], False, None)
    assert stored_config(line, str(folder.path), 1).rounds == 12
    for words, jobs in ((["seed=3"], 1), (["rounds=1,2"], 2)):
        with pytest.raises(ConfigError, match="resumes with its stored settings"):
            stored_config(CommandLine(words, False, None), str(folder.path), jobs)
    for damaged in ("- a list\n", "seed: 1\n"):
        (folder.path / "config.yaml").write_text(damaged)
        with pytest.raises(FedprivError, match="does not contain a run's configuration"):
            read_config(folder.path)


def test_a_marked_table_must_hold_what_was_recorded(tmp_path):
    folder = made(tmp_path / "run", [1, 2], completed=2)
    folder.tables.append("metrics.csv", [{"round": 3, "value": 0.25}])
    again = RunFolder(folder.path)
    saved = again.load_checkpoint()
    assert again.rewind(saved)
    assert again.evaluated == [1, 2]
    again.tables.append("metrics.csv", [{"round": 3, "value": 0.75}])
    assert again.tables.marks() == RunFolder(folder.path).tables.marks()
    (folder.path / "metrics.csv").write_text("round,value\n1,0.5\n2,0.6\n")
    with pytest.raises(FedprivError, match=r"metrics\.csv is damaged"):
        RunFolder(folder.path).rewind(saved)


@pytest.fixture
def folder(tmp_path):
    made = RunFolder(tmp_path / "run")
    made.begin("rounds: 3\n").close()
    return made


def test_floats_survive_exactly(folder):
    value = 0.1 + 0.2
    folder.tables.append("metrics.csv", [{"round": 0, "loss": value, "norm": None}])
    folder.tables.append(
        "metrics.csv", [{"round": 1, "loss": np.float64(1e-300), "norm": float("inf")}]
    )
    lines = (folder.path / "metrics.csv").read_text().splitlines()
    assert lines == ["round,loss,norm", f"0,{value!r},", "1,1e-300,inf"]


def test_columns_cannot_change(folder):
    folder.tables.append("metrics.csv", [{"round": 0, "loss": 1.0}])
    with pytest.raises(ValueError, match="differ"):
        folder.tables.append("metrics.csv", [{"round": 1, "accuracy": 1.0}])


def test_rewind_cuts_later_and_half_written_lines(folder):
    folder.tables.append("epsilon.csv", [{"round": r, "certified": float(r)} for r in (1, 1, 2, 3)])
    with open(folder.path / "epsilon.csv", "a") as file:
        file.write("3,0.12")  # killed while writing
    folder.tables.cut("epsilon.csv", 2)
    assert (folder.path / "epsilon.csv").read_text() == "round,certified\n1,1.0\n1,1.0\n2,2.0\n"
    folder.rewind(None)
    assert not (folder.path / "epsilon.csv").exists()


def test_a_damaged_table_of_epsilons_keeps_no_other_from_being_cut(folder):
    for number in (1, 2):
        for table in ("metrics.csv", "epsilon.csv", "traffic.csv", "timings.csv"):
            folder.tables.append(table, [{"round": number, "value": 0.5}])
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


def test_replacing_never_leaves_half_a_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    replace_file(path, b"old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"
