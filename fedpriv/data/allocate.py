"""Allocators: which user owns each training record and which silo holds it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedpriv.data.allocation import Allocation
    from fedpriv.data.base import DataSet, Records
    from fedpriv.streams import Streams


@dataclass(frozen=True)
class Allocator(ABC):
    """How records spread over users and silos.

    n_users, n_silos: public sizes of the federation. For data that carry silos, n_silos must be their number.
    """

    n_users: int
    n_silos: int

    @abstractmethod
    def allocate(self, records: Records, data: DataSet, streams: Streams) -> Allocation:
        """Assign every training record; deterministic in the streams' seed. Raises ConfigError when it cannot."""
