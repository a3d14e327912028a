"""Local training of all users of a silo at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from fedpriv.data.silo import SiloData
from fedpriv.streams import Streams
from fedpriv.tasks import Task
from fedpriv.training.choose import choose
from fedpriv.training.schedule import batches, cut
from fedpriv.training.size import measure

WORTH_THREADS = 2**26


@dataclass(frozen=True)
class LocalSgd:
    """Plain SGD on a user's records: `epochs` passes in fresh random orders, batches of `batch_size` (None: all of a
    user's records in one batch), rate `lr`."""

    epochs: int
    batch_size: int | None
    lr: float


@dataclass(frozen=True)
class Block:
    """The result of some users.

    positions: (k,) indices into `SiloData.users`. deltas: (k, d) float32, final minus starting parameters; not finite
    where a user's training diverged.
    """

    positions: np.ndarray
    deltas: Tensor


def train_users(
    model: nn.Module,
    theta: Tensor,
    data: SiloData,
    positions: np.ndarray | None,
    task: Task,
    recipe: LocalSgd,
    streams: Streams,
    round: int,
    party: str,
) -> Iterator[Block]:
    """Train each user at `positions` of `data` (None: all) from `theta` (d,) on its own records, and yield the deltas.

    LocalTrain of Kato et al. (Uldp-FL, PVLDB 2024): the loss is averaged inside each batch, the last batch of a pass
    may be smaller, dropout is active. Every user comes exactly once, in no particular order, in blocks that fit a fixed
    memory budget. A user's batches do not depend on who else trains; with dropout, results are a deterministic function
    of (seed, round, party, positions).

    Raises ConfigError for a model that mixes records, such as one with BatchNorm.
    """
    counts = data.counts
    chosen = np.arange(len(counts)) if positions is None else np.asarray(positions, dtype=np.int64)
    if not len(chosen):
        return
    size = recipe.batch_size or int(counts.max())
    keys = None
    if counts.max() > size:
        keys = streams.generator("batches", round, party).random((recipe.epochs, int(counts.sum())))
    chosen = chosen[np.argsort(-counts[chosen], kind="stable")]
    generator = torch.Generator(data.x.device).manual_seed(streams.torch_seed("dropout", round, party))
    rows = np.minimum(counts[chosen], size)
    products = measure(model, tuple(data.x.shape[1:])).products
    for road, users in choose(model, theta, tuple(data.x.shape[1:]), task, rows, generator):
        group = chosen[users]
        for start, stop in cut(counts[group], size, road.limits):
            block = group[start:stop]
            work = int(counts[block].clip(max=size).sum()) * products
            with _seeded(generator), _threads(work):
                deltas = road.train(len(block), batches(data, block, size, recipe.epochs, keys), recipe.lr)
            yield Block(block, deltas)


@contextmanager
def _seeded(generator: torch.Generator) -> Iterator[None]:
    """torch's global state, from which dropout modules draw, seeded by `generator`; the caller's comes back."""
    device = generator.device
    seed = int(torch.randint(2**62, (1,), generator=generator, device=device))
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


@contextmanager
def _threads(work: int) -> Iterator[None]:
    """One processor thread for batch steps of less than `WORTH_THREADS` multiply-adds; the caller's number comes back.

    A step is some sixty kernels. When each takes microseconds, waking a second thread costs more than it does, and on a
    machine that is busy with something else each of them waits for it: eight times slower here.
    """
    before = torch.get_num_threads()
    if work < WORTH_THREADS:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
