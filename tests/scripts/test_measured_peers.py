"""The page's table of SecureD-FL is that of the committed results."""

import csv
import io
from pathlib import Path

import pytest
from paper_runs import paper_run

from fedpriv.reports.finished_runs import find_runs
from scripts.measured_peers import method, page, read, summary, table_of

ROOT = Path(__file__).parents[2]


def test_the_page_says_what_the_table_holds():
    assert page(read()) in (ROOT / "docs" / "papers" / "secured_fl.md").read_text()


def test_every_task_has_all_methods():
    for _, task in read().groupby(["data", "peers"]):
        assert {"Local-only", "FedAvg", "SecureD-FL"} <= {*task["method"]}


@pytest.fixture
def sweep(tmp_path):
    data = {"_target_": "fedpriv.data.femnist.MnistWriters", "root": None, "images": 7000}
    runs = [
        ("FedAvg", 9, [0.1, 0.8, 0.7]),
        ("FedAvg", 9, [0.1, 0.6, 0.9]),
        ("SecureD-FL", 9, [0.1, 0.5, 0.6]),
        ("SecureD-FL", 15, [0.1, 0.5, 0.6]),
        ("Local-only", 9, [0.1, 0.2, 0.3]),
    ]
    for number, (label, n, values) in enumerate(runs):
        config = {"data": data, "allocator": {"n_silos": n}}
        paper_run(tmp_path / str(number), label, values, config=config, local_lr=0.1)
    return tmp_path


def test_accuracies_are_means_over_seeds_of_the_last_and_the_best_round(sweep):
    found = summary(table_of(find_runs([sweep])))
    rows = list(csv.reader(io.StringIO(found.to_csv(index=False, float_format="%.5f"))))
    title = "MNIST with writers made up, in FEMNIST's place"
    alone = ["1", "2", "0.30000", "0.00000", "0.30000", "0.00000"]
    assert rows[2][:9] == [title, "9", "Local-only", *alone]
    average = ["2", "2", "0.80000", "0.10000", "0.85000", "0.05000"]
    assert rows[1][:9] == [title, "9", "FedAvg", *average]
    assert rows[1][9] == "data.images=7000 algo.local_lr=0.1"
    assert len(rows) == 1 + 4


def test_own_and_shared_weights_are_distinguished(sweep):
    run = next(run for run in find_runs([sweep]) if run.status.label == "SecureD-FL")
    assert method(run) == "SecureD-FL"
    run.config["algo"] = {"init_weights": "shared"}
    assert method(run) == "SecureD-FL, shared weights"
