"""Descriptions of local training: which users, from which parameters, by which recipe. Needs no
torch.

The framework decides where a described training runs, and in which batch. The result is the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedpriv.training.optimizers import LocalOptimizer, Sgd
from fedpriv.util.read_only import kept

AS_IT_IS = (
    "the network's forward pass is a function of its parameters, its inputs and torch's generators"
)
"""Assumption of certificates where the network is not captured (`fedpriv.training.graph`)."""
TRAINERS = "auto", "compiled", "device", "batched", "plain"


@dataclass(frozen=True)
class Execution:
    """How local training is computed. It changes rounding only.

    trainer: auto chooses by sizes; the others are for comparisons.
    workers: number of threads of compiled training; the results have equal bits for any number.
    """

    trainer: str = "auto"
    workers: int = 1


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
    """One silo's local training for one query. It may run later, so it copies every vector that
    somebody could still write into.

    recipe: how each user trains.
    start: (d,) float64: parameters that every user starts from.
    users: positions in `SiloData.users`; None: all.
    pooled: whether the silo's records train as if one user owned them.
    correction: (d,) float64, added to every gradient (SCAFFOLD's c - c_i).
    memory: initial slots of the optimiser by name, (d,) or (1,) each, from earlier
        `Contributions`; empty: the optimiser starts without slots. In both cases the contributions
        have the final slots. None: they do not.

    Raises ValueError for users that are no positions, or come twice.
    """

    recipe: Recipe
    start: np.ndarray
    users: np.ndarray | None = None
    pooled: bool = False
    correction: np.ndarray | None = None
    memory: Mapping[str, np.ndarray] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "start", kept(self.start))
        if self.users is not None:
            object.__setattr__(self, "users", _positions(self.users))
        if self.correction is not None:
            object.__setattr__(self, "correction", kept(self.correction))


def _positions(users: Sequence[int] | np.ndarray) -> np.ndarray:
    """(k,) int64. A mask of booleans would name the users 0 and 1, and -1 the last one."""
    found = np.array(users)
    if found.ndim != 1 or (len(found) and found.dtype.kind not in "iu"):
        raise ValueError(f"Training.users: {found.dtype} {found.shape}: positions are integers")
    if len(found) and (found.min() < 0 or len(np.unique(found)) < len(found)):
        raise ValueError("Training.users: a position is negative or comes twice")
    return found.astype(np.int64)
