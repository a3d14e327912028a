"""Networks, each a frozen configuration that builds a module for a data set's shapes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Model(ABC):
    """A network by its configuration."""

    @abstractmethod
    def build(self, shape: tuple[int, ...], outputs: int) -> nn.Module:
        """A module that maps (b, *shape) to (b, outputs). Raises ConfigError (key `model`) if
        `shape` cannot be fed.

        Initial weights come from torch's global generator, which the caller seeds.
        """

    @abstractmethod
    def size(self, shape: tuple[int, ...], outputs: int) -> int:
        """Number of parameters of the module that `build` makes, without torch. Raises as `build`
        does."""

    @property
    def reads_text(self) -> bool:
        """Whether features are characters by their numbers, as in a text; else they are
        measurements."""
        return False

    @property
    def mixes_records(self) -> bool:
        """Whether what it makes of a record depends on the others of its batch, as under batch
        normalisation."""
        return False

    def score_norm(self, feature_norm: float) -> float | None:
        """Bound on the vector whose inner product with an output's parameters is that output, for
        records of L2 norm at most `feature_norm`; None for networks that are not linear in their
        parameters."""
        return None
