"""Nothing that is labelled released or charged tells more than the sums: one user's records leave
the file, all sums stay as they are, and so does every such column, key and file."""

import csv
import json

import numpy as np
import pytest

from fedpriv.mechanisms.adaptive import Adaptive
from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.runs.loop import train
from fedpriv.runs.tables import METRICS
from fedpriv.testing import experiment
from fedpriv.testing.neighbouring_files import File

LINES = ("quiet=true", "device=cpu", "preset.n_users=6", "rounds=2", "preset.local_epochs=1")
COMMANDS = {
    "users": ("algo=uldp_avg", "evaluate_training=true"),
    "users in secagg": ("algo=uldp_sgd", "aggregation=secagg", "evaluate_training=true"),
    "users with budgets": (
        *("algo=uldp_avg", "algo.rounds=2"),
        "algo.budgets={a:{epsilon:1,share:0.5},b:{epsilon:4,share:0.5}}",
    ),
    "users in turn": ("algo=uldp_sgd", "algo.cycle=2", "mechanism=correlated"),
    "silos": ("algo=uldp_naive", "evaluate_training=true"),
    "bounds that adapt": ("algo=uldp_avg", "mechanism=adaptive"),
    "no test metrics": ("algo=uldp_avg", "evaluation=none"),
    "local tests": ("algo=uldp_avg", "allocator=zipf", "allocator.local_test=0.3"),
}
ROSTER = "roster.csv"  # keys, which are new in every run


@pytest.fixture
def same_sums(monkeypatch):
    """Contributions are bounded to nothing, so that sums are made of noise alone. The norms before
    the bound, which diagnostics show, stay."""
    for mechanism in (Gaussian, Adaptive):

        def nothing(self, vectors, bound=mechanism.bound):
            bounded, norms = bound(self, vectors)
            return 0 * bounded, norms

        monkeypatch.setattr(mechanism, "bound", nothing)


def published(folder):
    """Everything in a run's folder by file, and by column or key, with its label."""
    labels = json.loads((folder / "status.json").read_text())["labels"]
    found = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = str(path.relative_to(folder))
        if name == ROSTER:
            continue
        label = labels.get(name, "diagnostic of unknown records")
        if isinstance(label, str):
            found[name] = label, path.read_bytes()
        elif path.suffix == ".json":
            for key, value in json.loads(path.read_text()).items():
                found[path.name, key] = label.get(key, "diagnostic"), value
        else:
            with path.open(newline="") as file:
                rows = list(csv.DictReader(file))
            for name in rows[0] if rows else ():
                found[path.name, name] = label.get(name, "diagnostic"), [row[name] for row in rows]
    return found


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_not_a_diagnostic_is_equal_with_and_without_a_user(command, same_sums, tmp_path):
    exp = experiment(*LINES, *COMMANDS[command])
    file = File.of(exp)
    nobody = np.array([], dtype=np.int64)  # owners are fixed in all worlds
    here = run(file.without(nobody), tmp_path / "here")
    told = set()
    for user in (0, 3):
        there = run(file.without(file.units("user")[user]), tmp_path / f"without {user}")
        assert here.keys() == there.keys()
        for name, (label, value) in here.items():
            assert there[name][0] == label
            if not label.startswith("diagnostic"):
                assert there[name][1] == value, name
            elif there[name][1] != value:
                told.add(name)
    assert told & {(METRICS, name) for name in ("train_loss", "contribution_norm", "clipped")}


def run(exp, folder):
    train(exp, "rounds: 2\n", folder)
    return published(folder)
