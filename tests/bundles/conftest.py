import pytest
from command import run

from fedpriv.projects.patients import csv_text


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    """A folder with a table, a run on it, and its bundle with a model.onnx."""
    folder = tmp_path_factory.mktemp("world")
    (folder / "visits.csv").write_text(csv_text(patients=60))
    for words in (
        (
            *("data=table", "data.path=visits.csv", "data.label=died", "data.user=patient"),
            *("data.silo=hospital", "data.drop=[pressure,glucose]", "data.missing=refuse"),
            *("model=mlp", "model.hidden=[5]", "model.norm=true", "rounds=1", "quiet=true"),
            "hydra.run.dir=run",
        ),
        ("export", "run", "--onnx", "--license", "mit", "--threshold", "0.3", "--out", "given"),
    ):
        assert run(*words, cwd=folder).returncode == 0
    return folder
