"""What a table makes of runs, from folders made by hand."""

import math
from pathlib import Path

import pandas as pd
import pytest
from fake_runs import DIGESTS, fake_run

from fedpriv.errors import ConfigError, FedprivError
from fedpriv.reports.compare import paired_test
from fedpriv.reports.finished_runs import find_runs, read_run, sweep_order, user_epsilons
from fedpriv.reports.groups import group_runs
from fedpriv.reports.report import Report
from fedpriv.reports.summary import best_by, mean_and_std, standard_deviation, summarise
from fedpriv.runs.folder import RunFolder

EPSILON = (1.5, 2.0)
SAME = dict(zip(DIGESTS, (one * 64 for one in "hababc")))


def made(path, value, *, seed=0, label="AVG", status=None, **algo):
    fake_run(path, label, [0.1, value], EPSILON, seed=seed, **algo)
    RunFolder(path).status(**(status or {}))
    return path


def table(root, **chosen):
    return Report.of(find_runs([root]), **chosen)


def test_a_setting_with_fewer_seeds_is_not_the_best(tmp_path):
    for seed in range(2):
        made(tmp_path / f"1_{seed}", 0.6, seed=seed, clip=1)
    made(tmp_path / "2_0", 0.9, seed=0, clip=2)
    [best] = table(tmp_path).best
    assert (best.summary.group.name, best.among) == ("AVG, clip=1", 2)
    assert not table(tmp_path / "2_0").best  # a method with one setting


@pytest.mark.parametrize(
    ("metric", "values", "best"),
    [
        ("accuracy", [0.2, math.nan, 0.3], 2),
        ("accuracy", [math.inf, 0.1], 1),
        ("error", [0.2, 0.3], 0),
        ("loss", [math.nan, math.nan], None),
    ],
)
def test_the_best_is_a_finite_value(metric, values, best):
    assert best_by(metric, range(len(values)), values) == best


def test_a_run_that_diverged_makes_the_mean_nan(tmp_path):
    made(tmp_path / "0", 0.5, seed=0)
    made(tmp_path / "1", math.nan, seed=1)
    [summary] = table(tmp_path).summaries
    assert math.isnan(summary.mean)
    assert math.isnan(summary.sd)
    assert math.isnan(standard_deviation([1.0, math.nan]))


def test_a_row_has_the_largest_epsilon_over_seeds_and_the_metric_of_the_last_round(tmp_path):
    fake_run(tmp_path / "0", "AVG", [0.1, 0.5], (1.5, 2.0), seed=0)
    fake_run(tmp_path / "1", "AVG", [0.1, 0.5], (3.0, 4.0), seed=1)
    [summary] = table(tmp_path).summaries
    assert (summary.certified, summary.claimed) == (3.0, 4.0)
    fake_run(tmp_path / "one" / "0", "AVG", [0.1, 0.9, 0.4], EPSILON)
    [summary] = table(tmp_path / "one").summaries
    assert summary.mean == 0.4


def test_one_diagnostic_makes_a_row_one(tmp_path):
    for seed, label in enumerate(["released", "diagnostic of training records"]):
        labels = {"metrics.csv": {"accuracy": label}}
        made(tmp_path / str(seed), 0.5, seed=seed, status={"labels": labels})
    [summary] = table(tmp_path).summaries
    assert summary.label == "diagnostic of training records"


def test_names_that_runs_lack_are_refused(tmp_path):
    groups = group_runs(find_runs([made(tmp_path / "0", 0.5)]))
    for chosen in ({"metric": "recall"}, {"observer": "server"}, {"method": "zcdp"}):
        with pytest.raises(ConfigError, match="one of"):
            summarise(groups, **chosen)


@pytest.mark.parametrize("state", ["running", "interrupted", "failed"])
def test_only_finished_runs_are_read(tmp_path, state):
    fake_run(tmp_path / "0", "AVG", [0.1, 0.5], EPSILON, state=state)
    said = []
    assert read_run(tmp_path / "0", said.append) is None
    assert said == [f"left out: {tmp_path / '0'} ({state})"]
    with pytest.raises(FedprivError, match="no finished run"):
        find_runs([tmp_path], said.append)


def test_the_smallest_epsilon_of_all_methods_and_the_largest_of_all_adjacencies():
    columns = ["round", "observer", "unit", "adjacency", "method", "certified", "claimed"]
    rows = [
        [1, "server", "user", "add/remove", "rdp", 3.0, 1.0],
        [1, "server", "user", "add/remove", "pld", 2.0, 1.0],
        [1, "server", "user", "replace", "rdp", 6.0, 2.0],
        [1, "server", "user", "replace", "pld", 5.0, math.nan],
        [1, "server", "record", "replace", "pld", 9.0, 9.0],
        [1, "silo", "user", "replace", "pld", 8.0, 8.0],
    ]
    epsilon = pd.DataFrame(rows, columns=columns)
    [row] = user_epsilons(epsilon, "server").to_dict("records")
    assert (row["unit"], row["certified"]) == ("user", 5.0)
    assert row["adjacency"] == "add/remove; replace"
    assert math.isnan(row["claimed"])  # one of them claims nothing
    [row] = user_epsilons(epsilon, "server", "rdp").to_dict("records")
    assert (row["certified"], row["claimed"]) == (6.0, 2.0)


def test_folders_are_sorted_by_number():
    folders = [Path("sweep", name) for name in ("10", "9", "b", "a")]
    assert [folder.name for folder in sorted(folders, key=sweep_order)] == ["9", "10", "a", "b"]


def test_pairs_are_made_on_common_seeds():
    n, mean, p = paired_test({0: 1.0, 1: 2.0, 2: 4.0}, {1: 1.0, 2: 2.5, 3: 9.0})
    assert (n, mean) == (2, 1.25)
    assert 0 < p < 1
    for other in ({0: 0.5}, {1: 0.5}):
        assert math.isnan(paired_test({0: 1.0}, other)[2])
    assert math.isnan(paired_test({0: 1.0}, {1: 0.5})[1])
    assert math.isnan(paired_test({0: 1.0, 1: math.inf}, {0: 0.5, 1: 1.0})[2])


def test_rounds_that_some_run_lacks_are_left_out_of_curves():
    curves = [
        pd.DataFrame({"round": [0, 1, 2], "accuracy": [0.0, 1.0, 2.0]}),
        pd.DataFrame({"round": [0, 2], "accuracy": [2.0, 4.0]}),
    ]
    joined = mean_and_std(curves, "accuracy")
    assert joined.index.tolist() == [0, 2]
    assert joined["mean"].tolist() == [1.0, 3.0]
    assert joined["std"].tolist() == pytest.approx([math.sqrt(2)] * 2)


def test_digests_of_data_and_code_tell_runs_apart(tmp_path):
    made(tmp_path / "0", 0.5, seed=0, status={"identity": SAME})
    made(tmp_path / "1", 0.5, seed=1, status={"identity": SAME})
    config = tmp_path / "1" / "config.yaml"
    config.write_text(config.read_text().replace("root: null", "root: /elsewhere"))
    assert "/elsewhere" in config.read_text()
    assert [row.n for row in table(tmp_path).summaries] == [2]
    assert "code" not in table(tmp_path).frame()
    made(tmp_path / "2", 0.5, seed=2, status={"identity": SAME | {"code": "d" * 64}})
    frame = table(tmp_path).frame()
    assert frame[["code", "n"]].values.tolist() == [["c" * 12, 2], ["d" * 12, 1]]
    made(tmp_path / "3", 0.5, seed=3, status={"identity": SAME | {"source": "e" * 64}})
    with pytest.raises(FedprivError, match=r"records=aaaaaaaaaaaa .* and eeeeeeeeeeee"):
        table(tmp_path)


def test_digests_that_two_secrets_have_keyed_are_not_compared(tmp_path):
    made(tmp_path / "0", 0.5, seed=0, status={"identity": SAME})
    other = SAME | {"holder": "g" * 64, "source": "e" * 64}
    made(tmp_path / "1", 0.5, seed=1, status={"identity": other})
    assert [row.n for row in table(tmp_path).summaries] == [2]
    assert "nothing proves that the runs share their data" in str(table(tmp_path).notes())
    config = tmp_path / "1" / "config.yaml"
    config.write_text(config.read_text().replace("fedpriv.data.Digits", "fedpriv.data.Mnist"))
    with pytest.raises(FedprivError, match="runs on different data"):
        table(tmp_path)


def test_rounds_that_learned_nothing_are_counted(tmp_path):
    empty = {"1": "no contribution was finite"}
    made(tmp_path / "0", 0.5, seed=0, status={"empty_rounds": empty})
    made(tmp_path / "1", 0.5, seed=1, status={"empty_rounds": empty})
    made(tmp_path / "2", 0.5, seed=2)
    report = table(tmp_path)
    assert report.frame()["empty_rounds"].tolist() == [2]
    assert report.shown()["empty_rounds"].tolist() == ["2"]
    [note] = [note for note in report.notes() if note.startswith("WARNING")]
    assert note == (
        "WARNING: AVG: 2 rounds learned nothing, 1 of 1 with seed 0: no contribution was finite"
    )
