"""Descriptions of local training: which users, from which parameters, by which recipe. Needs no
torch.

The framework decides where a described training runs, and in which batch. The result is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.errors import require
from fedpriv.training.optimizers import LocalOptimizer, Sgd

if TYPE_CHECKING:
    pass


TRAINERS = "auto", "compiled", "device", "batched", "sequential"


@dataclass(frozen=True)
class Execution:
    """How local training is computed. It changes rounding only.

    trainer: auto chooses by sizes; the others are for comparisons.
    workers: number of threads of compiled training; the results have equal bits for any number.
    """

    trainer: str = "auto"
    workers: int = 1

    def __post_init__(self) -> None:
        require(self.trainer in TRAINERS, "trainer", self.trainer, ", ".join(TRAINERS))
        require(self.workers >= 1, "workers", self.workers, "a positive number of threads")


@dataclass(frozen=True)
class Recipe:
    """A recipe of local training.

    epochs: passes over a user's records, each in a new random order.
    batch_size: records of a batch; None: all records of a user in one batch.
    lr: learning rate.
    optimizer: local optimiser.
    proximal: mu; adds mu (w - start) to every gradient (FedProx: Li et al., MLSys 2020).
    """

    epochs: int
    batch_size: int | None
    lr: float
    optimizer: LocalOptimizer = field(default_factory=Sgd)
    proximal: float = 0.0


@dataclass(frozen=True)
class Training:
    """One silo's local training for one query.

    recipe: how each user trains.
    start: (d,) float64: parameters that every user starts from.
    users: positions in `SiloData.users`; None: all.
    pooled: whether the silo's records train as if one user owned them.
    correction: (d,) float64, added to every gradient (SCAFFOLD's c - c_i).
    memory: initial slots of the optimiser by name, (d,) or (1,) each, from earlier
        `Contributions`; empty: the optimiser starts without slots. In both cases the contributions
        have the final slots. None: they do not.
    """

    recipe: Recipe
    start: np.ndarray
    users: np.ndarray | None = None
    pooled: bool = False
    correction: np.ndarray | None = None
    memory: Mapping[str, np.ndarray] | None = None
