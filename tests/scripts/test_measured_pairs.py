"""Tables of one method beside another: what is computed, and that verdicts say what the tables
hold."""

from types import SimpleNamespace

import pandas as pd
import pytest
from scipy.stats import ttest_rel

from fedpriv.papers.verdicts import verdicts
from scripts import measured_pairs
from scripts.measured_pairs import TABLES, Pairs, read, rows, sentences

PAIRS = Pairs("loss", "A", (2,), lambda config: config["cell"])


def run(label, seed, loss, cell="one"):
    metrics = pd.DataFrame({"round": [0, 2], "loss": [9.0, loss]})
    return SimpleNamespace(label=label, seed=seed, metrics=metrics, config={"cell": cell})


def test_methods_are_compared_on_the_same_seeds_at_the_same_round():
    own, other = [1.0, 1.5, 1.25], [2.0, 2.75, 2.5]
    runs = [run("A", seed, loss) for seed, loss in enumerate(other)]
    runs += [run("B", seed, loss) for seed, loss in enumerate(own)]
    runs += [
        run("A", 0, 1.0, "two"),
        run("A", 1, 2.0, "two"),
        run("B", 0, 1.5, "two"),
        run("B", 1, 1.75, "two"),
    ]
    found = {(row[0], row[2]): row for row in rows(PAIRS, runs)}
    assert found["one", "B"][3:6] == (3, "1.25", "0.25")
    assert float(found["one", "B"][6]) == pytest.approx(-3.5 / 3, rel=1e-5)
    p = ttest_rel(own, other).pvalue
    assert float(found["one", "B"][7]) == pytest.approx(p, rel=1e-5)
    assert float(found["one", "B"][8]) == pytest.approx(2 * p, rel=1e-5)  # the smaller of two
    assert found["one", "A"][6:] == ("0", "nan", "nan")


def test_the_file_holds_what_was_written(tmp_path, monkeypatch, capsys):
    runs = [
        run(name, seed, loss + seed / 100)
        for name, loss in (("A", 1.0), ("B", 2.0))
        for seed in range(3)
    ]
    runs[-1] = run("B", 2, 2.05)
    monkeypatch.setattr(measured_pairs, "RESULTS", tmp_path)
    monkeypatch.setattr(measured_pairs, "TABLES", {"mine": PAIRS})
    monkeypatch.setattr(measured_pairs, "find_runs", lambda folders: runs)
    measured_pairs.main(["mine=somewhere"])
    assert [row["method"] for row in read("mine")] == ["A", "B"]
    said = "after 2 rounds B's loss minus A's is +1.010 to +1.010, significant in 1 of 1 settings"
    assert sentences("mine") == [said]
    assert said in capsys.readouterr().out


@pytest.mark.parametrize("name", TABLES)
def test_verdicts_say_what_the_tables_hold(name):
    """Until they do: python -m scripts.measured_pairs prints the sentences."""
    paper, _, figure = name.rpartition("_")
    found = " ".join(verdicts()[f"{paper}/{figure}"].found.split())
    for sentence in sentences(name):
        assert sentence in found
    assert all(0 <= float(row["holm"]) <= 1 for row in read(name) if row["holm"] != "nan")
