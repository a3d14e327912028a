import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from plans import plan_for
from scipy.stats import chisquare

from fedpriv.aggregation.base import SERVER
from fedpriv.aggregation.fixed_point import FixedPoint, OutOfRange
from fedpriv.aggregation.masked import Masked, mask
from fedpriv.aggregation.masks import add_masks
from fedpriv.algorithms.base import Update
from fedpriv.algorithms.uldp import uniform
from fedpriv.engines.inprocess import InProcess
from fedpriv.errors import ConfigError

SILOS = ["silo0", "silo1", "silo10", "silo2"]


def ready(aggregation=Masked()):  # noqa: B008
    memory = {name: {} for name in [SERVER, *SILOS]}
    counts = {name: np.ones(3, dtype=np.int64) for name in SILOS}
    InProcess().run(aggregation.setup(counts, uniform, False, memory))
    return memory


def updates(vectors, silos=SILOS):
    return {name: Update(iter(()), vector) for name, vector in zip(silos, vectors)}


def exchange(memory, round, vectors, silos=SILOS, aggregation=Masked()):  # noqa: B008
    """The server's total, and every message that it saw."""
    parties, seen = aggregation.exchange(plan_for(aggregation, len(silos), round), updates(vectors, silos), memory), {}

    def listening(name, party):
        sent = party.send(None)
        seen[name] = sent[SERVER].copy()
        yield sent

    heard = {name: listening(name, party) if name != SERVER else party for name, party in parties.items()}
    return InProcess().run(heard)[SERVER], seen


def test_printed_formula_hides_nothing_and_the_sign_does():
    # HU-6: r_ij - r_ji with one agreed seed for each pair.
    seeds = {frozenset((i, j)): bytes([i, j] * 16) for i in range(3) for j in range(i)}
    for i in range(3):
        peers = [seeds[frozenset((i, j))] for j in range(3) if j != i]
        assert not add_masks(np.zeros(50, dtype=np.uint64), peers, peers).any()
    names = ["a", "b", "c"]
    masks = [
        mask(
            np.zeros(50, np.uint64),
            names[i],
            names,
            {names[j]: seeds[frozenset((i, j))] for j in range(3) if j != i},
            1,
        )
        for i in range(3)
    ]
    assert all(m.all() for m in masks)
    assert not sum(masks).any()


def test_the_server_sees_uniform_integers_and_their_sum():
    vectors = np.zeros((4, 60_000))
    total, seen = exchange(ready(), 1, vectors)
    assert not total.vector.any()
    assert set(total.parties) == set(SILOS)
    for message in seen.values():
        assert chisquare(np.bincount(message.view(np.uint8), minlength=256)).pvalue > 1e-6


def test_masks_differ_between_rounds_cohorts_and_set_ups():
    memory, vectors = ready(), np.zeros((4, 100))
    first, second = (exchange(memory, round, vectors)[1]["silo0"] for round in (1, 2))
    other = exchange(ready(), 1, vectors)[1]["silo0"]
    assert (first != second).all()
    assert (first != other).all()
    seeds = memory["silo0"]["seeds"]
    without_last = {peer: seed for peer, seed in seeds.items() if peer != "silo2"}
    smaller = mask(np.zeros(100, np.uint64), "silo0", SILOS[:3], without_last, 1)
    same_pairs = mask(np.zeros(100, np.uint64), "silo0", SILOS, seeds | {"silo2": bytes(32)}, 1)
    gone = mask(np.zeros(100, np.uint64), "silo0", ["silo0", "silo2"], {"silo2": bytes(32)}, 1)
    assert (smaller != same_pairs - gone).all()


def test_a_part_of_the_silos_can_sum():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(2, 7))
    total, _ = exchange(ready(), 3, vectors, SILOS[1:3])
    np.testing.assert_allclose(total.vector, vectors.sum(0), rtol=1e-12, atol=FixedPoint(64, 1e4, 2).rounding)
    assert set(total.parties) == set(SILOS[1:3])


def test_no_mask_serves_twice():
    memory = ready()
    exchange(memory, 2, np.zeros((4, 3)))
    for round in (1, 2):
        with pytest.raises(RuntimeError, match="already"):
            exchange(memory, round, np.ones((4, 3)))


def test_each_seed_is_known_to_its_pair_alone():
    memory = ready()
    assert not memory[SERVER]
    for i in SILOS:
        assert set(memory[i]["seeds"]) == set(SILOS) - {i}
        for j in memory[i]["seeds"]:
            assert memory[i]["seeds"][j] == memory[j]["seeds"][i]
    assert len({seed for i in SILOS for seed in memory[i]["seeds"].values()}) == 6


def test_a_vector_out_of_range_ends_the_round():
    with pytest.raises(OutOfRange, match=r"aggregation\.range=5: .*silo1"):
        exchange(ready(), 1, [[0.0], [5.1], [0.0], [0.0]], aggregation=Masked(range=5.0))


@pytest.mark.parametrize("settings", [{"bits": 63}, {"range": 0.0}, {"range": -1.0}])
def test_impossible_settings(settings):
    with pytest.raises(ConfigError, match=r"aggregation\."):
        Masked(**settings)


def run(folder, *words):
    words = [*words, "rounds=1", "algo.local_epochs=1", "allocator.n_users=8", f"hydra.run.dir={folder}"]
    return subprocess.run(
        [sys.executable, "-m", "fedpriv", *words], cwd=folder.parent, capture_output=True, text=True, check=False
    )


def test_command_line_agrees_with_plain(tmp_path):
    losses = []
    for name in ("plain", "masked"):
        done = run(tmp_path / name, f"aggregation={name}")
        assert done.returncode == 0, done.stderr
        assert json.loads((tmp_path / name / "status.json").read_text())["state"] == "done"
        losses.append(pd.read_csv(tmp_path / name / "metrics.csv")["loss"].to_numpy())
    np.testing.assert_allclose(*losses, rtol=1e-6)


def test_command_line_tells_an_overflow_in_one_line(tmp_path):
    done = run(tmp_path / "out", "aggregation=masked", "aggregation.range=0.001")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "aggregation.range=0.001" in done.stderr
