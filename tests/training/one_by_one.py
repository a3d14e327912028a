"""The oracle of local training: one user after another, in plain autograd; and small silos to train on."""

import numpy as np
import torch
from torch import nn

from fedpriv.data.silo import SiloData
from fedpriv.streams import Streams
from fedpriv.tasks import BinaryClassification, Classification, CoxRegression
from fedpriv.training import flatten, load, train_users

STREAMS, ROUND, PARTY = Streams(5), 3, "silo-1"


def mlp(inputs=6, hidden=(8, 8), outputs=3, p=0.0):
    layers, width = [], inputs
    for h in hidden:
        layers += [nn.Linear(width, h), nn.ReLU(), nn.GroupNorm(1, h), nn.Dropout(p)]
        width = h
    return nn.Sequential(*layers, nn.Linear(width, outputs))


def cnn(p=0.0):
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(3, 4, 2), nn.Dropout2d(p), nn.MaxPool2d(2),
        nn.ReLU(), nn.Flatten(), nn.Linear(16, 6), nn.ReLU(), nn.Dropout(p), nn.Linear(6, 3),
    )  # fmt: skip


PROBLEMS = {
    "mlp": (mlp, (6,), Classification()),
    "cnn": (cnn, (1, 12, 12), Classification()),
    "linear-cox": (lambda: nn.Linear(5, 1), (5,), CoxRegression()),
    "linear-binary": (lambda: nn.Linear(4, 1, bias=False), (4,), BinaryClassification()),
}


def silo(counts, shape, task, seed=0):
    """A silo of users with `counts` records; labels fit the task."""
    rng = np.random.default_rng(seed)
    n, starts = int(np.sum(counts)), np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    x = torch.from_numpy(rng.standard_normal((n, *shape)).astype(np.float32))
    if isinstance(task, CoxRegression):
        y = np.stack([rng.random(n) < 0.7, rng.integers(1, 30, n)], axis=1).astype(np.float32)
    elif isinstance(task, BinaryClassification):
        y = (rng.random(n) < 0.5).astype(np.float32)
    else:
        y = rng.integers(0, 3, n)
    return SiloData(x, torch.from_numpy(y), np.arange(len(counts)) * 3, starts)


def one_by_one(model, theta, data, task, recipe):
    """Deltas (k, d) of all users of `data`; dropout must be off."""
    keys = STREAMS.generator("batches", ROUND, PARTY).random((recipe.epochs, len(data.x)))
    deltas = []
    for start, stop in zip(data.starts[:-1], data.starts[1:]):
        load(model, theta)
        size = recipe.batch_size or int(stop - start)
        optimizer = torch.optim.SGD(model.parameters(), lr=recipe.lr)
        for epoch in range(recipe.epochs):
            order = torch.arange(start, stop)
            if stop - start > size:
                order = order[np.argsort(keys[epoch, start:stop], kind="stable")]
            for rows in order.split(size):
                optimizer.zero_grad()
                task.loss(model(data.x[rows]), data.y[rows], torch.full((len(rows),), 1 / len(rows))).backward()
                optimizer.step()
        deltas.append(flatten(model) - theta)
    load(model, theta)
    return torch.stack(deltas)


def trained(model, theta, data, task, recipe, positions=None, round=ROUND):
    """Deltas (k, d) in the order of `positions` (None: of all users)."""
    wanted = np.arange(len(data.users)) if positions is None else positions
    rows = torch.full((len(data.users), len(theta)), torch.nan)
    seen = []
    for block in train_users(model, theta, data, positions, task, recipe, STREAMS, round, PARTY):
        assert block.deltas.shape == (len(block.positions), len(theta))
        assert block.deltas.dtype == torch.float32
        rows[block.positions] = block.deltas
        seen += block.positions.tolist()
    assert sorted(seen) == sorted(wanted)
    return rows[wanted]


def assert_same(got, want, theta, rows=64):
    """Equal up to 1e-5 of what training changed, and up to float32 rounding of the parameters.

    The stacked road adds the gradients of a batch's `rows` records to the weights one after the other, and each
    addition rounds by half a unit of the weight: a random walk of sqrt(rows) steps.
    """
    error = (got - want).norm(dim=1)
    rounding = 2.0**-23 * rows**0.5 * (theta + want).norm(dim=1)
    assert bool((error <= 1e-5 * want.norm(dim=1) + rounding).all()), error / want.norm(dim=1)
