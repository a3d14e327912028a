"""The page's table and sentences of SecureD-FL are those of the committed results."""

from pathlib import Path

from scripts.measured_peers import page, read

ROOT = Path(__file__).parents[2]


def row(method, last, peers="9"):
    numbers = {
        "last": str(last),
        "last deviation": "0.01",
        "best": str(last + 0.01),
        "best deviation": "0.002",
    }
    return {
        "data": "MNIST",
        "peers": peers,
        "method": method,
        "seeds": "3",
        "rounds": "20",
        **numbers,
    }


def test_the_page_says_what_the_table_holds():
    assert page(read()) in (ROOT / "docs" / "papers" / "secured_fl.md").read_text()


def test_every_task_has_all_methods():
    tasks = {(row["data"], row["peers"]) for row in read()}
    for task in tasks:
        methods = {row["method"] for row in read() if (row["data"], row["peers"]) == task}
        assert {"Local-only", "FedAvg", "SecureD-FL"} <= methods


def test_what_is_not_reached_is_said():
    text = page([row("FedAvg", 0.9), row("Local-only", 0.85), row("SecureD-FL", 0.84)])
    table, sentence = text.split("\n\n")
    assert table.splitlines()[2] == "| MNIST | 9 | FedAvg | 20 | 3 | 90.00 ± 1.00 | 91.00 ± 0.20 |"
    assert sentence == (
        "- MNIST, 9 peers: SecureD-FL is 6.00 points below FedAvg (not within 0.5); above "
        "Local-only: FedAvg."
    )


def test_what_is_reached_is_said_too():
    text = page(
        [
            row("FedAvg", 0.9),
            row("Local-only", 0.85),
            row("SecureD-FL", 0.896),
            row("SecureD-FL, shared weights", 0.91),
        ]
    )
    assert text.splitlines()[-1] == (
        "- MNIST, 9 peers: SecureD-FL is 0.40 points below FedAvg (within 0.5); SecureD-FL, "
        "shared weights is 1.00 "
        "points above FedAvg (within 0.5); above Local-only: FedAvg, SecureD-FL, SecureD-FL, "
        "shared weights."
    )
