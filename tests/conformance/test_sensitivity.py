"""How far one unit moves a sum without noise, with dropout and batches smaller than a user, against what is declared.

Two sums that differ in one unit are computed from the same seed. If what the others draw depended on who is there, all
of their contributions would move as well.
"""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from fedpriv.algorithms.base import Silo
from fedpriv.algorithms.uldp import UldpBase
from fedpriv.algorithms.uldp_group import UldpGroup
from fedpriv.simulation import prepare
from fedpriv.testing import experiment
from fedpriv.testing.algorithms import total
from fedpriv.testing.worlds import without_user
from fedpriv.training import dp_sgd as training

USERS, SILOS, CLIP = 12, 3, 0.3
DATA = ["breast_cancer", "digits", "creditcard"]
NETWORK = ["model=mlp", "model.hidden=[12,12,12]", "model.norm=true", "model.dropout=0.5"]
LOCAL = ["preset.local_epochs=3", "preset.silo_epochs=3", "preset.batch_size=4", "preset.local_lr=0.05"]
METHODS = ["uldp_avg", "uldp_avg_w", "uldp_sgd", "uldp_naive algo.local_epochs=1"]
SUBSAMPLED = ["uldp_avg algo.user_rate=0.6", "uldp_avg_w algo.user_rate=0.6", "uldp_sgd algo.user_rate=0.6"]
ROUNDING = 1e-5
"""Of a float32 sum of clipped gradients, relative to the clip; DP-SGD's result is a float32 vector."""


@pytest.fixture
def folder(small_root, monkeypatch):
    """The generated files are found wherever a command would look."""
    monkeypatch.setenv("FEDPRIV_DATA", small_root)


@cache
def world(data, algo):
    size = [f"preset.n_users={USERS}", f"preset.n_silos={SILOS}"]
    name, *more = algo.split()
    return experiment(f"data={data}", f"algo={name}", *NETWORK, *size, *LOCAL, f"algo.clip={CLIP}", *more)


@pytest.mark.parametrize("algo", METHODS + SUBSAMPLED)
@pytest.mark.parametrize("data", DATA)
def test_no_user_moves_the_sum_by_more_than_its_sensitivity(data, algo, folder):
    exp = world(data, algo)
    with prepare(exp) as simulation:
        assert max(int(silo.counts.max()) for silo in simulation.silo_data) > 4  # batches smaller than a user
    most = CLIP * (1 if isinstance(exp.algo, UldpBase) else 2 * SILOS)
    whole = total(exp, "update", noisy=False)
    moved = [np.linalg.norm(whole - total(without_user(exp, user), "update", noisy=False)) for user in range(USERS)]
    assert 0.05 * most < max(moved) <= most * (1 + 1e-9)


@pytest.mark.parametrize("rate", [1.0, 0.5])
@pytest.mark.parametrize("data", DATA)
def test_no_record_moves_a_step_by_more_than_the_clip(data, rate, folder, monkeypatch):
    """One step of each silo's DP-SGD, whose public number of records stays as it is."""
    exp, run = world(data, "uldp_group"), training.dp_sgd

    def watched(recipe, **arguments):
        # The step is large beside the parameters, so that they do not round it away.
        recipe = replace(recipe, noise_multiplier=0.0, lr=1e4 * recipe.expected_batch)
        return 1e-4 * run(recipe, **arguments)

    monkeypatch.setattr(training, "dp_sgd", watched)
    monkeypatch.setattr(UldpGroup, "_steps", lambda algo, records: (1, rate))
    moved = []
    with prepare(exp) as simulation:
        [query] = simulation.queries(1)
        down = exp.algo.broadcast(simulation.state, query)
        silo = Silo(0, simulation.silo_data[0], simulation.model, exp.data.task, simulation.deployment)

        def summed(data):
            [block] = exp.algo.local_update(replace(silo, data=data), query, down).blocks
            return block.vectors[0].numpy()

        whole = summed(silo.data)
        for row in range(0, len(silo.data.x), max(1, len(silo.data.x) // 12)):
            moved.append(np.linalg.norm(whole - summed(without_row(silo.data, row))))
    assert 0.9 * CLIP < max(moved) <= CLIP * (1 + ROUNDING)


def without_row(data, row):
    """The silo's data less one record."""
    kept = np.delete(np.arange(len(data.x)), row)
    owner = np.searchsorted(data.starts, row, side="right") - 1
    counts = data.counts - (np.arange(len(data.users)) == owner)
    starts = np.concatenate([[0], np.cumsum(counts[counts > 0])])
    ids = {"records": data.records[kept]} if hasattr(data, "records") else {}
    return replace(data, x=data.x[kept], y=data.y[kept], users=data.users[counts > 0], starts=starts, **ids)
