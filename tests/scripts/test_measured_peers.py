"""The page's table and sentences of SecureD-FL are those of the committed results."""

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


def test_what_is_not_reached_is_said():
    text = page(table(("FedAvg", 0.9), ("Local-only", 0.85), ("SecureD-FL", 0.84)))
    rows, sentence = text.split("\n\n")
    assert rows.splitlines()[2] == "| MNIST | 9 | FedAvg | 20 | 3 | 90.00 ± 1.00 | 91.00 ± 0.20 |"
    assert sentence == (
        "- MNIST, 9 peers, 20 of 50 rounds: SecureD-FL is 6.00 points below FedAvg (not within "
        "0.5); above Local-only: FedAvg."
    )


def test_what_is_reached_is_said_too():
    reached = [("SecureD-FL", 0.896), ("SecureD-FL, shared weights", 0.91)]
    text = page(table(("FedAvg", 0.9), ("Local-only", 0.85), *reached))
    assert text.splitlines()[-1] == (
        "- MNIST, 9 peers, 20 of 50 rounds: SecureD-FL is 0.40 points below FedAvg (within 0.5); "
        "SecureD-FL, shared weights is 1.00 points above FedAvg (within 0.5); above Local-only: "
        "FedAvg, SecureD-FL, SecureD-FL, shared weights."
    )
