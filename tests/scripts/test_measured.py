"""The page's table and sentences of Lowy et al.'s methods are those of the committed results."""

from pathlib import Path

import pytest

from fedpriv.papers.lowy.method_choice import LOCAL, MINIBATCH, SPIDER, Choice
from scripts.measured import TABLE, main, page, rates, read

ROOT = Path(__file__).parents[2]


def choice(method, epsilon, error, calibration="certified"):
    numbers = {
        "certified": epsilon,
        "claimed": epsilon,
        "deviation": 0.01,
        "loss": 1.0,
        "mapping": 2 / epsilon,
        "heterogeneity": 1.0,
    }
    return Choice(
        method,
        calibration,
        epsilon,
        error=error,
        splits=5,
        delta=1e-6,
        settings="clip=1",
        **numbers,
    )


def test_the_pages_say_what_the_table_holds():
    assert page(read()) in (ROOT / "docs" / "papers" / "lowy.md").read_text()
    assert rates(read()) in (ROOT / "docs" / "rates.md").read_text()


def test_the_table_tells_settings_and_splits():
    measured = read()
    assert 12 in measured
    for choices in measured.values():
        assert {SPIDER, MINIBATCH} <= {c.method for c in choices}
        assert all(c.settings and c.splits >= 5 for c in choices)
        equal = [c for c in choices if c.calibration == "certified"]
        assert {c.epsilon for c in equal} == {0.75, 1, 1.5, 3, 6, 12, 18}
        for c in equal:
            assert c.certified == pytest.approx(c.epsilon, rel=1e-3)


def test_the_order_is_told_by_who_wins_where():
    text = page(
        {
            12: [
                choice(SPIDER, 1.0, 0.2),
                choice(SPIDER, 3.0, 0.1),
                choice(MINIBATCH, 1.0, 0.16),
                choice(MINIBATCH, 3.0, 0.2),
                choice(LOCAL, 3.0, 0.4, "paper"),
                choice(SPIDER, 3.0, 0.1, "paper"),
                choice(MINIBATCH, 1.0, 0.1, "given"),
            ]
        }
    )
    table, sentences = text.split("\n\n")
    assert table.splitlines()[2] == "| 12 | the certificate | SPIDER | 20.0 ± 1.0 | 10.0 ± 1.0 |"
    assert table.splitlines()[-1] == "| 12 | the paper | Local SGD |  | 40.0 ± 1.0 |"
    assert sentences.splitlines() == [
        "- 12 silos, noise by the certificate: SPIDER's error is 12.5 % below MB-SGD's on average; "
        "MB-SGD wins at epsilon: 1.",
        "- 12 silos, noise by the paper: SPIDER's error is 75.0 % below Local SGD's on average; "
        "Local SGD wins at epsilon: none.",
    ]


def test_a_power_law_is_found():
    text = rates({12: [choice(SPIDER, epsilon, 0.2) for epsilon in (0.75, 3.0, 18.0)]})
    assert text.splitlines()[2:] == ["| 12 | SPIDER | -2.00 | 1 to 1 |"]


def test_the_file_holds_what_was_written(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("scripts.measured.TABLE", tmp_path / "table.csv")
    monkeypatch.setattr("scripts.measured.find_runs", lambda folders: folders)
    monkeypatch.setattr(
        "scripts.measured.choose",
        lambda runs: [choice(SPIDER, 1.0, 0.2), choice(MINIBATCH, 1.0, 0.1)],
    )
    monkeypatch.setattr("scripts.measured.read", lambda: read(tmp_path / "table.csv"))
    main(["12=a", "25=b"])
    assert read(tmp_path / "table.csv")[25] == [
        choice(SPIDER, 1.0, 0.2),
        choice(MINIBATCH, 1.0, 0.1),
    ]
    assert "100.0 % above" in capsys.readouterr().out
    assert TABLE.name == "lowy_mnist.csv"
