"""Notebooks run from top to bottom as a reader would run them, without Jupyter. They are kept with
what they show, which names no place of the machine that ran them."""

import json
import re
import time

import pytest

from scripts.notebooks import NOTEBOOKS, executed

ALL = sorted(NOTEBOOKS.glob("*.ipynb"))


def code(notebook):
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def kinds(notebook):
    """Of each code cell: its kinds, for example [["text/html", "text/plain"]]."""
    return [
        [sorted(one.get("data", {"stream": ""})) for one in cell["outputs"]]
        for cell in code(notebook)
    ]


def test_there_are_three():
    assert len(ALL) == 3


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_a_notebook_comes_to_its_end_and_shows_what_is_kept(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    kept = json.loads(path.read_text())
    start = time.process_time()
    made = executed(json.loads(path.read_text()))
    assert time.process_time() - start < 60
    assert capsys.readouterr() == ("", "")
    assert kinds(made) == kinds(kept)


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_outputs_are_kept_and_name_no_place(path):
    cells = code(json.loads(path.read_text()))
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    shown = json.dumps([cell["outputs"] for cell in cells])
    assert "text/html" in shown
    texts = re.sub(r'"image/png": "[^"]*"', "", shown)
    assert not re.search(r"/(tmp|root|home|work|Users|var)\b", texts)
    assert path.stat().st_size < 300_000


def test_the_example_compares_four_settings():
    """`privacy_and_accuracy`: three amounts of noise, and one setting without privacy."""
    cells = code(json.loads((NOTEBOOKS / "privacy_and_accuracy.ipynb").read_text()))
    [cell] = [cell for cell in cells if "".join(cell["source"]).endswith("table")]
    table = "".join(cell["outputs"][0]["data"]["text/plain"])
    assert len(table.splitlines()) >= 5
    assert "FedAvg" in table
