"""Local training, described before it is run: which users, from which parameters, by which recipe.
Needs no torch.

Whoever runs a description decides where and together with whom; the result is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.errors import require
from fedpriv.training.optimizers import LocalOptimizer, Sgd

if TYPE_CHECKING:
    from torch import Tensor


TRAINERS = "auto", "compiled", "batched", "sequential"


@dataclass(frozen=True)
class Execution:
    """How local training is computed, which changes nothing but rounding.

    trainer: auto chooses by sizes; the others are for comparisons.
    workers: threads over users in compiled training, whose results are the same bits for any
        number.
    """

    trainer: str = "auto"
    workers: int = 1

    def __post_init__(self) -> None:
        require(self.trainer in TRAINERS, "trainer", self.trainer, ", ".join(TRAINERS))
        require(self.workers >= 1, "workers", self.workers, "a positive number of threads")


@dataclass(frozen=True)
class Recipe:
    """`epochs` passes over a user's records in fresh random orders, in batches of `batch_size`
    (None: all of a user's records in one batch), steps of rate `lr` by `optimizer`.

    proximal: mu, which adds mu (w - start) to every gradient (FedProx: Li et al., MLSys 2020).
    """

    epochs: int
    batch_size: int | None
    lr: float
    optimizer: LocalOptimizer = field(default_factory=Sgd)
    proximal: float = 0.0


@dataclass(frozen=True)
class Training:
    """One silo's local training for one query.

    start: parameters (d,) float64 that everybody starts from.
    users: positions in `SiloData.users`; None: all.
    pooled: the silo's records train as if one user owned them.
    correction: (d,) float64 added to every gradient (SCAFFOLD's c - c_i).
    memory: what the optimiser begins with, by the name of its slot, (d,) or (1,) each, as an
        earlier `Block` gave it back; empty: it begins afresh, and what it ends with is given back;
        None: it forgets.
    """

    recipe: Recipe
    start: np.ndarray
    users: np.ndarray | None = None
    pooled: bool = False
    correction: np.ndarray | None = None
    memory: Mapping[str, np.ndarray] | None = None


@dataclass(frozen=True)
class Block:
    """The result of some users.

    positions: (k,) indices into `SiloData.users` (of the pooled data, if they are).
    deltas: (k, d) float32, final minus starting parameters; not finite where a user's training
        diverged.
    memory: what the optimiser ended with, (k, d) or (k, 1) a slot, if `Training.memory` asks for
        it.
    """

    positions: np.ndarray
    deltas: Tensor
    memory: Mapping[str, Tensor] = field(default_factory=dict)
