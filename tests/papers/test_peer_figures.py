"""Figures of SecureD-FL: what the tables beside them hold, from real transcripts and from runs."""

import csv
import math

import numpy as np
import pytest
from fake_runs import fake_run

from fedpriv.aggregation.admm.peer import RELAY, SUM, Y
from fedpriv.aggregation.admm.penalty import Penalty
from fedpriv.papers.reproduce import FIGURES
from fedpriv.papers.secured_fl import (
    averaging_error,
    peer_accuracy,
    peer_groups,
    peer_leakage,
)
from fedpriv.papers.secured_fl.peer_leakage import transcript
from fedpriv.runtime import prepare
from fedpriv.settings.compose import one_experiment


def table(path):
    with open(path, newline="") as file:
        return list(csv.reader(file))


def test_messages_of_an_iteration_are_those_that_the_paper_counts():
    phases = [letter.message.phase for letter in transcript(9, 2)]
    for iteration in (1, 2):
        assert [phases.count(f"{phase} {iteration}") for phase in (Y, SUM, RELAY)] == [
            9 * 2,
            3 * 2,
            3 * 2,
        ]


def test_leakage_is_the_specifications_table_for_one_peer_of_nine():
    worst = peer_leakage.leakage(9, 500)
    assert peer_leakage.claimed_safe(9) == 7
    assert worst[1] == [0, 0, 0, 0, 2, 8, 8]
    assert worst[3][1] == 6
    assert worst[2][3:] == [7, 7, 7, 7]


def test_no_run_finds_more_partitions_than_there_can_be(tmp_path, monkeypatch):
    monkeypatch.setattr(peer_groups, "NUMBERS", {3: range(9, 16, 6), 4: range(16, 17)})
    FIGURES["secured_fl/fig6"](tmp_path, "quick")
    head, *rows = table(tmp_path / "measured.csv")
    counts = {}
    for row in (dict(zip(head, row)) for row in rows):
        counts.setdefault(row["place"], []).append(float(row["value"]))
    most = {"size=3, peers=9": 4, "size=3, peers=15": 7, "size=4, peers=16": 5}
    assert {place: len(found) for place, found in counts.items()} == dict.fromkeys(most, 2 * 3)
    assert all(1 <= max(found) <= most[place] for place, found in counts.items())
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_the_models_of_a_checkpoint_have_the_mean_that_follows():
    words = ("data=breast_cancer", "algo=fedavg", "preset.n_silos=3", "preset.silo_epochs=1")
    with prepare(one_experiment(*words)) as prepared:
        [models] = averaging_error.checkpoints(prepared, averaging_error.EVERY)
    with prepare(one_experiment(*words)) as prepared:
        state = prepared.state
        for number in range(1, averaging_error.EVERY + 1):
            state = prepared.run_round(prepared.queries(number), state).state
    np.testing.assert_allclose(models.mean(axis=0), state.params, atol=1e-6)


def test_the_error_falls_with_tuned_iterations_and_is_the_formulas():
    rng = np.random.default_rng(0)
    models = rng.normal(0, 0.05, (9, 300))
    found = [averaging_error.mean_square(models, i, rng, np.float64) for i in range(1, 5)]
    assert found == sorted(found, reverse=True)
    assert found[3] < 1e-13 < averaging_error.mean_square(models, 4, rng, np.float32)
    *_, second, third = averaging_error.mean_squares(models, Penalty(1.0), 3, rng=rng)
    assert third / second == pytest.approx(1 / 9)


def test_each_number_of_peers_has_a_row(tmp_path, monkeypatch):
    def train(name, folder, profile, *words):
        label = "FedAvg" if "algo=fedavg" in words else folder.name
        for n in (9, 15):
            fake_run(folder / str(n), label, [0.1, n / 20], (math.inf, None))
            with (folder / str(n) / "config.yaml").open("a") as config:
                config.write(f"allocator: {{n_silos: {n}}}\n")

    monkeypatch.setattr(peer_accuracy, "run_experiment", train)
    peer_accuracy.draw(tmp_path, "quick", name="secured_fl/fig3_femnist")
    with open(tmp_path / "figure.png.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["round"] == "1"]
    assert len(rows) == 6
    assert {row["group"]: row["mean"] for row in rows}["FedAvg, n_silos=9"] == "0.45"
    assert (tmp_path / "figure.png").stat().st_size > 10_000
