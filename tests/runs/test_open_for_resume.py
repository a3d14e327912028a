"""What a run's folder refuses before it is resumed. The folders are made by hand."""

import numpy as np
import pytest
import yaml

from fedpriv.errors import ConfigError, FedprivError
from fedpriv.runs.checkpoint import Checkpoint, Origin
from fedpriv.runs.folder import RunFolder
from fedpriv.runs.stored_config import read_config, rounds_repeated, stored_config
from fedpriv.settings.compose import CommandLine

ORIGIN = Origin({"algo": "a"}, {"fedpriv": "0.1.0"})
TABLES = ("metrics.csv", "epsilon.csv", "traffic.csv", "timings.csv")


def made(path, attempts, *, completed, timed=None, origin=ORIGIN):
    """A run that began the rounds `attempts`, with a checkpoint after round `completed` (None: no
    checkpoint) and `timed` rounds in timings.csv."""
    folder = RunFolder(path)
    with folder.begin(yaml.safe_dump({"rounds": 9, "seed": 0})) as journal:
        for number in attempts:
            journal.append(number)
        for number in range(1, (timed if timed is not None else completed or 0) + 1):
            for table in TABLES:
                folder.append(table, [{"round": number, "value": 0.5}])
        if completed is not None:
            marks = folder.tables.marks()
            arrays = {"params": np.zeros(2)}
            folder.save_checkpoint(Checkpoint(completed, arrays, len(attempts), origin, marks, {}))
    return folder


def cut_journal(folder, lines):
    path = folder.path / "rounds_begun.csv"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-lines]))


def opened(folder, origin=ORIGIN, **options):
    saved, journal = RunFolder(folder.path).open_for_resume(origin, **options)
    journal.close()
    return saved, journal.attempts


def test_a_whole_folder_opens(tmp_path):
    saved, attempts = opened(made(tmp_path / "run", [1, 1, 2], completed=2))
    assert saved.round == 2
    assert attempts == {1: 2, 2: 1}


def test_a_repeated_attempt_that_the_journal_lost_is_noticed(tmp_path):
    folder = made(tmp_path / "run", [1, 2, 2], completed=2)
    cut_journal(folder, 1)  # each round still has a line
    with pytest.raises(FedprivError, match="was cut: it lists fewer rounds"):
        opened(folder)


def test_a_timed_round_that_the_journal_lost_is_noticed(tmp_path):
    folder = made(tmp_path / "run", [1, 2, 3], completed=3)
    (folder.path / "rounds_begun.csv").write_text("round,time\n1,a\n2,a\n2,b\n")
    with pytest.raises(FedprivError, match="was cut"):
        opened(folder)


def test_a_timed_round_after_the_checkpoint_counts_where_each_line_was_on_disk(tmp_path):
    folder = made(tmp_path / "run", [1, 2], completed=1)
    folder.append("timings.csv", [{"round": 2, "value": 0.5}])
    folder.append("timings.csv", [{"round": 3, "value": 0.5}])
    assert opened(folder, synced=False)[0].round == 1
    with pytest.raises(FedprivError, match="was cut"):
        opened(folder, synced=True)


def test_a_round_that_the_timings_lost_is_noticed(tmp_path):
    folder = made(tmp_path / "run", [1, 2], completed=2)
    (folder.path / "timings.csv").write_text("round,value\n1,0.5\n")
    with pytest.raises(FedprivError, match="lacks round 2"):
        opened(folder)


def test_begun_rounds_without_a_checkpoint_are_refused(tmp_path):
    folder = made(tmp_path / "run", [1], completed=None)
    with pytest.raises(FedprivError, match="is missing, although"):
        opened(folder)


def test_another_configuration_is_refused(tmp_path):
    folder = made(tmp_path / "run", [1], completed=1)
    with pytest.raises(FedprivError, match="differs in algo"):
        opened(folder, Origin({"algo": "b"}, {"fedpriv": "0.1.0"}))


def test_a_folder_with_a_journal_is_not_begun_again(tmp_path):
    folder = made(tmp_path / "run", [1], completed=1)
    with pytest.raises(FedprivError, match="already holds a run"):
        RunFolder(folder.path).begin("rounds: 1\n")


@pytest.mark.parametrize(
    ("attempts", "completed", "expected"),
    [
        ([], 0, {}),
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


def test_the_forecast_of_a_folder_before_its_first_checkpoint(tmp_path):
    folder = made(tmp_path / "run", [1], completed=None)
    assert rounds_repeated(folder.path, system=True) == {1: 1}


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
    folder.append("metrics.csv", [{"round": 3, "value": 0.25}])
    again = RunFolder(folder.path)
    saved = again.load_checkpoint()
    assert again.rewind(saved)
    assert again.evaluated == [1, 2]
    again.append("metrics.csv", [{"round": 3, "value": 0.75}])
    assert again.tables.marks() == RunFolder(folder.path).tables.marks()
    (folder.path / "metrics.csv").write_text("round,value\n1,0.5\n2,0.6\n")
    with pytest.raises(FedprivError, match=r"metrics\.csv is damaged"):
        RunFolder(folder.path).rewind(saved)
