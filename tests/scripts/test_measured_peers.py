"""The page's table of SecureD-FL is that of the committed results."""

from pathlib import Path

import pandas as pd

from scripts.measured_peers import page, read

ROOT = Path(__file__).parents[2]


def table(*last):
    """Methods and their last accuracies, for 9 peers."""
    rows = pd.DataFrame(last, columns=["method", "last"])
    spread = {"last deviation": 0.01, "best": rows["last"] + 0.01, "best deviation": 0.002}
    return rows.assign(data="MNIST", peers=9, seeds=3, rounds=20, **spread)


def test_the_page_says_what_the_table_holds():
    assert page(read()) in (ROOT / "docs" / "papers" / "secured_fl.md").read_text()


def test_every_task_has_all_methods():
    for _, task in read().groupby(["data", "peers"]):
        assert {"Local-only", "FedAvg", "SecureD-FL"} <= {*task["method"]}


def test_a_row_has_the_last_and_the_best_accuracy():
    *_, row = page(table(("FedAvg", 0.9))).splitlines()
    assert row == "| MNIST | 9 | FedAvg | 20 | 3 | 90.00 ± 1.00 | 91.00 ± 0.20 |"
