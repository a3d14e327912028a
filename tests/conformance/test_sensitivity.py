"""How far one unit moves a sum without noise, with dropout and batches smaller than a user, against
what is declared.

Two sums that differ in one unit are computed from the same seed. If what the others draw depended
on who is there, all of their contributions would move as well.
"""

from dataclasses import replace
from functools import cache
from itertools import cycle, product

import numpy as np
import pytest
import torch
from totals import total

from fedpriv.algorithms.uldp import UldpBase
from fedpriv.algorithms.uldp_group import UldpGroup
from fedpriv.rounds.silo_context import Silo
from fedpriv.runtime import prepare
from fedpriv.testing import experiment
from fedpriv.testing.neighbouring_files import File
from fedpriv.training import dp_sgd as training

USERS, SILOS, CLIP = 12, 3, 0.3
DATA = ["breast_cancer", "digits", "creditcard"]
NETWORK = ["model=mlp", "model.hidden=[12,12,12]", "model.norm=true", "model.dropout=0.5"]
LOCAL = [
    "preset.local_epochs=3",
    "preset.silo_epochs=3",
    "preset.batch_size=4",
    "preset.local_lr=0.05",
]
METHODS = ["uldp_avg", "uldp_avg_w", "uldp_sgd", "uldp_naive algo.local_epochs=1"]
METHODS += ["uldp_sgd algo.weighting=records"]
SUBSAMPLED = [
    "uldp_avg algo.user_rate=0.6",
    "uldp_avg_w algo.user_rate=0.6",
    "uldp_sgd algo.user_rate=0.6",
]


@pytest.fixture
def folder(small_root, monkeypatch):
    """The generated files are found wherever a command would look."""
    monkeypatch.setenv("FEDPRIV_DATA", small_root)


@cache
def world(data, algo):
    size = [f"preset.n_users={USERS}", f"preset.n_silos={SILOS}"]
    name, *more = algo.split()
    return experiment(
        f"data={data}", f"algo={name}", *NETWORK, *size, *LOCAL, f"algo.clip={CLIP}", *more
    )


@pytest.mark.parametrize(
    ("data", "algo"),
    [*zip(cycle(DATA), METHODS + SUBSAMPLED), *product(DATA[1:], ["uldp_avg"])],
)
def test_no_user_moves_the_sum_by_more_than_its_sensitivity(data, algo, folder):
    exp = world(data, algo)
    with prepare(exp) as prepared:
        assert (
            max(int(silo.counts.max()) for silo in prepared.silo_data) > 4
        )  # batches smaller than a user
    most = CLIP * (1 if isinstance(exp.algo, UldpBase) else 2 * SILOS)
    whole = total(exp, "update", noisy=False)
    file = File.of(exp)
    moved = [
        np.linalg.norm(whole - total(file.without(rows), "update", noisy=False))
        for rows in file.units("user")
    ]
    assert len(moved) == USERS
    assert 0.05 * most < max(moved) <= most * (1 + 1e-9)


def moves(exp, change, rows=slice(None), silos=slice(None), scale=lambda data: 1.0):
    """How far a silo's contribution moves when one of its records changes, for each of them.

    change: the silo's data and a row -> other data.
    scale: of the contribution of a silo with these data.
    """
    moved = []
    with prepare(exp) as prepared:
        [query] = prepared.queries(1)
        down = exp.algo.broadcast(prepared.state, query)
        for index, data in [*enumerate(prepared.silo_data)][silos]:
            silo = Silo(index, data, prepared.model, exp.data.task, prepared.plan)

            def sent(data, silo=silo):
                [block] = exp.algo.local_update(replace(silo, data=data), query, down).contributions
                return block.vectors[0].numpy() * scale(data)

            whole = sent(data)
            moved += [
                np.linalg.norm(whole - sent(change(data, row))) for row in range(len(data.x))[rows]
            ]
    return moved


@pytest.mark.parametrize(("data", "rate"), zip(DATA, (1.0, 0.5, 0.5)))
def test_no_record_moves_a_step_by_more_than_the_clip(data, rate, folder, monkeypatch):
    """One step of DP-SGD in each silo, whose public number of records stays as it is, less each
    record in turn.

    In float64 throughout: what float32 kernels make of a gradient depends in its last bits on how
    many others are computed with it.
    """
    exp, run = world(data, "uldp_group"), training.dp_sgd

    def watched(recipe, *, model, x, y, **arguments):
        # The step is large beside the parameters, so that they do not round it away.
        recipe = replace(recipe, noise_multiplier=0.0, lr=1e4 * recipe.expected_batch)
        y = y.double() if y.is_floating_point() else y
        exact = {"model": model.double(), "x": x.double(), "y": y, "dtype": torch.float64}
        return run(recipe, **exact, **arguments)

    monkeypatch.setattr(training, "dp_sgd", watched)
    monkeypatch.setattr(UldpGroup, "steps", lambda algo, records: (1, rate))
    moved = moves(exp, without_row, scale=lambda data: 1e-4)
    with prepare(exp) as prepared:
        assert len(moved) == sum(prepared.plan.federation.silo_records)
    assert 0.9 * CLIP < max(moved) <= CLIP * (1 + 1e-9)


def test_no_record_moves_the_mean_of_a_poisson_batch_by_more_than_the_clip_over_its_size(
    folder,
):
    """A silo's mean gradient at a public rate, less each record in turn; float32 rounds its sums
    differently then."""
    size = 70
    settings = f"algo.sampling=poisson algo.batch_size={size} algo.calibration=given"
    exp = world("breast_cancer", f"minibatch_sgd {settings}")
    moved = moves(exp, without_row, silos=slice(1))
    assert 0.9 * CLIP < size * max(moved) <= CLIP * (1 + 1e-5)


@pytest.mark.parametrize(("data", "algo"), zip(DATA, ("cdp_fedavg", "dp_erm", "cdp_fedavg")))
def test_no_replaced_record_moves_a_step_by_more_than_twice_the_clip(data, algo, folder):
    """One local step in each silo, with every fourth record replaced by one far from all others (of
    digits every sixteenth). Float32 does: the kernels see the same number of records."""
    noiseless = ["algo.local_steps=1", "mechanism.noise_multiplier=0", "algo.calibration=given"]
    size = [f"preset.n_users={USERS}", f"preset.n_silos={SILOS}", f"algo.clip={CLIP}"]
    exp = experiment(f"data={data}", f"algo={algo}", *NETWORK, *size, *noiseless)
    rate = exp.algo.local_lr if algo == "cdp_fedavg" else exp.algo.rate(1)
    steps = slice(None, None, 16 if data == "digits" else 4)
    moved = moves(exp, with_replaced_row, rows=steps, scale=lambda data: len(data.x) / rate)
    assert CLIP < max(moved) <= 2 * CLIP * (1 + 1e-9)


def with_replaced_row(data, row):
    """The silo's data with one record turned around and moved away."""
    x, y = data.x.clone(), data.y.clone()
    x[row] *= -30
    y[row] = (y[row] + 1) % 2
    return replace(data, x=x, y=y)


def without_row(data, row):
    """The silo's data less one record."""
    kept = np.delete(np.arange(len(data.x)), row)
    owner = np.searchsorted(data.starts, row, side="right") - 1
    counts = data.counts - (np.arange(len(data.users)) == owner)
    starts = np.concatenate([[0], np.cumsum(counts[counts > 0])])
    users, records = data.users[counts > 0], data.records[kept]
    return replace(
        data, x=data.x[kept], y=data.y[kept], users=users, starts=starts, records=records
    )
