"""The oracle of local training: one user after another, in plain autograd; and small silos to train
on."""

import copy
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from fedpriv.data.silo import SiloData
from fedpriv.models.regression import ExponentialSurvival, Regression
from fedpriv.models.tasks import BinaryClassification, Classification, CoxRegression
from fedpriv.training import users
from fedpriv.training.description import Execution, Training
from fedpriv.training.masked_dropout import DROPOUTS, MaskedDropout
from fedpriv.training.modes import kept_generators, seed_generators
from fedpriv.training.optimizers import Adam, RmsProp, Sgd
from fedpriv.training.random_words import (
    epochs_a_word,
    own_words,
    random_words,
    row_counters,
    shared_words,
    threshold,
)
from fedpriv.training.vectors import flatten, load
from fedpriv.util.streams import Streams, branch

STREAMS, ROUND, PARTY = Streams(7), 3, "silo-1"


def mlp(inputs=6, hidden=(8, 8), outputs=3, p=0.0):
    layers, width = [], inputs
    for h in hidden:
        layers += [nn.Linear(width, h), nn.ReLU(), nn.GroupNorm(1, h), nn.Dropout(p)]
        width = h
    return nn.Sequential(*layers, nn.Linear(width, outputs))


def cnn(p=0.0):
    return nn.Sequential(
        nn.Conv2d(1, 3, 3),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(3, 4, 2),
        nn.Dropout2d(p),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16, 6),
        nn.ReLU(),
        nn.Dropout(p),
        nn.Linear(6, 3),
    )


def wide(inputs=19, outputs=35):
    """Widths of several vectors and a remainder, for any width of vectors."""
    return nn.Sequential(
        nn.Linear(inputs, 50),
        nn.ReLU(),
        nn.GroupNorm(1, 50),
        nn.Linear(50, 33, bias=False),
        nn.ReLU(),
        nn.Linear(33, 16),
        nn.GroupNorm(1, 16, affine=False),
        nn.Linear(16, outputs),
    )


class Tokens(nn.Module):
    """Classes of four token ids below 11, from the mean of their embeddings."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(11, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.head(self.embedding(x).mean(-2))


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
    if isinstance(task, Regression):
        y = rng.standard_normal(n).astype(np.float32)
    elif isinstance(task, ExponentialSurvival):
        y = np.stack([rng.random(n) < 0.7, rng.random(n)], axis=1).astype(np.float32)
    elif isinstance(task, CoxRegression):
        y = np.stack([rng.random(n) < 0.7, rng.integers(1, 30, n)], axis=1).astype(np.float32)
    elif isinstance(task, BinaryClassification):
        y = (rng.random(n) < 0.5).astype(np.float32)
    else:
        y = rng.integers(0, 3, n)
    return SiloData(x, torch.from_numpy(y), np.arange(len(counts)) * 3, starts)


def token_silo(counts, seed=0):
    """A silo whose records are four token ids below 11."""
    data = silo(counts, (4,), Classification(), seed)
    ids = np.random.default_rng(seed).integers(0, 11, tuple(data.x.shape))
    return replace(data, x=torch.from_numpy(ids))


PLAIN, BATCHED, COMPILED = (Execution(name) for name in ("plain", "batched", "compiled"))
BY_TORCH = {"batched": BATCHED, "plain": PLAIN}
"""The trainers that take any optimiser."""


def torch_optimizer(optimizer, parameters, lr):
    """torch's own of the same kind."""
    if isinstance(optimizer, Sgd):
        return torch.optim.SGD(
            parameters, lr, optimizer.momentum, weight_decay=optimizer.weight_decay
        )
    if isinstance(optimizer, RmsProp):
        own = {"momentum": optimizer.momentum, "weight_decay": optimizer.weight_decay}
        return torch.optim.RMSprop(parameters, lr, optimizer.alpha, optimizer.eps, **own)
    assert isinstance(optimizer, Adam)
    betas = (optimizer.beta1, optimizer.beta2)
    return torch.optim.Adam(parameters, lr, betas, optimizer.eps, optimizer.weight_decay)


class ByWords:
    """Draws the masks of dropout as C++ does: from words of a user's key, a step and a layer."""

    def __init__(self, model, example):
        names = [name for name, own in model.named_modules() if type(own) in DROPOUTS and own.p]
        self.layers, self.shapes = [], {}
        for name in names:
            own = model.get_submodule(name)
            masked = MaskedDropout(own.p, DROPOUTS[type(own)])
            masked.register_forward_pre_hook(self.note)
            setattr(model.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2], masked)
            self.layers.append(masked)
        model(example)

    def note(self, layer, read):
        self.shapes[layer] = read[0].shape[1:]

    def draw(self, key, epoch, place, rows):
        for ordinal, layer in enumerate(self.layers):
            shape = self.shapes[layer]
            coins = shape[: len(shape) - layer.whole] + (1,) * layer.whole
            group, own = divmod(epoch, epochs_a_word(len(self.layers)))
            word, bit = divmod(own * len(self.layers) + ordinal, 32)
            half = layer.p == 0.5
            path = shared_words(group, place, word) if half else own_words(epoch, place, ordinal)
            words = random_words(
                np.array([key], np.uint64), row_counters([path], 0, rows), coins.numel(), CPU
            )
            kept = (words << bit) > -1 if half else words > threshold(layer.p)
            scale = 1 / (1 - layer.p) if layer.p < 1 else 0.0
            layer.mask = scale * kept.float().view(rows, *coins)


CPU = torch.device("cpu")


def one_by_one(model, theta, data, task, recipe, correction=None, *, words=False):
    """Deltas (k, d) of all users of `data`.

    words: whether dropout is that of C++; else it must be off.
    """
    keys, drops = (
        STREAMS.unit_keys(name, ROUND, PARTY, data.users) for name in ("batches", "dropout")
    )
    model = copy.deepcopy(model)
    drawn = ByWords(model, data.x[:1]) if words else None
    deltas = []
    for key, drop, start, stop in zip(keys, drops, data.starts[:-1], data.starts[1:]):
        load(model, theta)
        size = recipe.batch_size or int(stop - start)
        optimizer = torch_optimizer(recipe.optimizer, model.parameters(), recipe.lr)
        for epoch in range(recipe.epochs):
            order = torch.arange(start, stop)
            if stop - start > size:
                order = order[np.argsort(branch(branch(key[None], epoch), np.arange(stop - start)))]
            for place, rows in enumerate(order.split(size)):
                if drawn is not None:
                    drawn.draw(drop, epoch, place, len(rows))
                optimizer.zero_grad()
                loss = task.loss(
                    model(data.x[rows]), data.y[rows], torch.full((len(rows),), 1 / len(rows))
                )
                moved = torch.cat([p.flatten() for p in model.parameters()]) - theta
                loss = loss + recipe.proximal / 2 * moved @ moved
                if correction is not None:
                    loss = loss + moved @ correction
                loss.backward()
                optimizer.step()
        deltas.append(flatten(model) - theta)
    return torch.stack(deltas)


def by_copies(model, theta, data, task, recipe):
    """The same, each user on a copy of the network as it is, in training mode, with the random
    numbers of a user and a step."""
    orders, drops = (
        STREAMS.unit_keys(name, ROUND, PARTY, data.users) for name in ("batches", "dropout")
    )
    deltas = []
    for order, drop, start, stop in zip(orders, drops, data.starts[:-1], data.starts[1:]):
        own = copy.deepcopy(model).train()
        load(own, theta)
        leaves = list(own.parameters())
        optimizer = torch_optimizer(recipe.optimizer, leaves, recipe.lr)
        n, size = int(stop - start), recipe.batch_size or int(stop - start)
        with kept_generators(theta.device):
            for epoch in range(recipe.epochs):
                ranks = branch(branch(order[None], epoch), np.arange(n))
                rows = torch.arange(start, stop)[np.argsort(ranks) if n > size else slice(None)]
                for place, batch in enumerate(rows.split(size)):
                    [seed] = branch(branch(drop[None], epoch), place).tolist()
                    seed_generators(theta.device, seed >> 1)
                    optimizer.zero_grad()
                    weight = torch.full((len(batch),), 1 / len(batch))
                    task.loss(own(data.x[batch]), data.y[batch], weight).backward()
                    optimizer.step()
        deltas.append(torch.cat([leaf.detach().flatten() for leaf in leaves]) - theta)
    return torch.stack(deltas)


def blocks(
    training,
    model,
    data,
    task,
    streams=STREAMS,
    round=ROUND,
    party=PARTY,
    prefix="",
    execution=Execution(),
):
    """All blocks of `silo_training`."""
    place = {
        "streams": streams,
        "round": round,
        "party": party,
        "prefix": prefix,
        "execution": execution,
    }
    return list(users.silo_training(training, model=model, data=data, task=task, **place).run())


def as_array(vector):
    return vector.double().cpu().numpy()


def trained(model, theta, data, task, recipe, chosen=None, correction=None, **place):
    """Deltas (k, d) in the order of `chosen` (None: of all users)."""
    wanted = np.arange(len(data.users)) if chosen is None else chosen
    rows = torch.full((len(data.users), len(theta)), torch.nan)
    seen = []
    correction = None if correction is None else as_array(correction)
    training = Training(recipe, as_array(theta), chosen, correction=correction)
    for block in blocks(training, model, data, task, **place):
        positions = np.searchsorted(data.users, block.units)
        assert block.vectors.shape == (len(positions), len(theta))
        assert block.vectors.dtype == torch.float32
        rows[positions] = block.vectors.cpu()
        seen += positions.tolist()
    assert sorted(seen) == sorted(wanted)
    return rows[wanted]


def relative_errors(got, want, theta, rows=64):
    """Each user's error over what is allowed: 1e-5 of what training changed, and float32 rounding
    of the parameters.

    C++ adds the gradients of a batch's `rows` records to the weights one after the other, and each
    addition rounds by half a unit of the weight: a random walk of sqrt(rows) steps.
    """
    rounding = 2.0**-23 * rows**0.5 * (theta + want).norm(dim=1)
    return (got - want).norm(dim=1) / (1e-5 * want.norm(dim=1) + rounding)


def assert_same(got, want, theta, rows=64):
    errors = relative_errors(got, want, theta, rows)
    assert bool((errors <= 1).all()), errors


def compiled_like_one_by_one(model, data, task, recipe, correction=None, rows=64, words=False):
    """Deltas (k, d) of all users by C++, which are the same as those of `one_by_one`."""
    theta = flatten(model)
    got = trained(model, theta, data, task, recipe, correction=correction, execution=COMPILED)
    want = one_by_one(model, theta, data, task, recipe, correction, words=words)
    assert_same(got, want, theta, rows)
    return got
