"""Notebooks run from top to bottom as a reader would run them, without Jupyter."""

import json
import time
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_comes_to_its_end(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    names, start = {}, time.process_time()
    for cell in cells:
        assert not cell["outputs"], "results do not belong into the repository"
        exec("".join(cell["source"]), names)
    assert time.process_time() - start < 60
    assert capsys.readouterr() == ("", "")
    assert len(names["table"]) == 4
    assert sorted(names["table"]["n"]) == [3] * 4
    assert "Holm" in names["report"]
    assert names["picture"].stat().st_size > 10_000
