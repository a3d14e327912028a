"""Which road each user takes: a fixed rule on sizes, so that a repeated or resumed run takes the same roads.

Measured on one core (milliseconds a user and batch step; stacked and vmap with 64 users at once where they fit):

    network, parameters             rows   loop   vmap   stacked   stacked, one user
    creditcard MLP, 5 thousand        1     0.9    0.09    0.01      0.5
                                     64     1.3    0.4     0.16      0.7
    MNIST CNN, 22 thousand            1     1.6    0.25    0.13      0.7
                                     16     4.0    3.4     2.7       1.8
                                     64    13     18      11         7
    32-64 channel CNN, 50 thousand    4     3.7    2.9     2.1       1.9
                                     16    12     21       8         7
                                     64    52     80      58        36
    512-512 MLP, 670 thousand         1     0.7    3.4     0.4       0.3
                                     64     3.5    5.8     2.8       2.6

The stacked road, where it knows the layers, wins everywhere. Of the other two, vmap wins while the fixed cost of a step
dominates: several users, small networks, few products a step.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from fedpriv.errors import require
from fedpriv.tasks import Task
from fedpriv.training.chain import links
from fedpriv.training.loop import Loop
from fedpriv.training.road import Road
from fedpriv.training.size import measure
from fedpriv.training.stacked import Stacked
from fedpriv.training.vmapped import Vmapped

FEWEST = 6
"""With fewer users than this, vmap costs more than it saves."""
PRODUCTS = 8_000_000
"""From so many multiply-adds in a user's forward pass on, the arithmetic outweighs the fixed cost of a step."""
PARAMETERS = 250_000
"""From so many parameters on, moving everybody's gradients through memory outweighs it."""


def choose(
    model: nn.Module,
    theta: Tensor,
    shape: tuple[int, ...],
    task: Task,
    rows: np.ndarray,
    generator: torch.Generator,
) -> list[tuple[Road, np.ndarray]]:
    """Roads for users whose largest batches have `rows` (k,) records, each with the indices of the users that take it.

    Raises ConfigError for a model that mixes records or keeps state between batches.
    """
    refuse_shared_state(model)
    if links(model, shape) is not None:
        return [(Stacked(model, theta, shape, task, generator), np.arange(len(rows)))]
    size = measure(model, shape)
    light = (rows * size.products < PRODUCTS) & (size.parameters < PARAMETERS)
    if light.sum() < FEWEST:
        light[:] = False
    roads: list[tuple[Road, np.ndarray]] = []
    if light.any():
        roads.append((Vmapped(model, theta, size, task), np.flatnonzero(light)))
    if not light.all():
        roads.append((Loop(model, theta, task), np.flatnonzero(~light)))
    return roads


def refuse_shared_state(model: nn.Module) -> None:
    """Raise ConfigError if records influence each other through `model`, as in batch normalisation: clipping one
    user's update would then not bound what the user's records do."""
    for name, part in model.named_modules():
        mixes = isinstance(part, nn.modules.batchnorm._BatchNorm) or getattr(part, "track_running_stats", False)
        allowed = f"no layer that mixes or remembers the records of a batch (layer {name}; GroupNorm does neither)"
        require(not mixes, "model", type(part).__name__, allowed)
