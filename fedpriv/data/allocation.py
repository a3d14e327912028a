"""The result of an allocator: owner and silo of each training record."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedpriv.data.stability import UNSTATED, Stability


@dataclass(frozen=True)
class Allocation:
    """Owners and silos of n training records.

    user: (n,) int64 in [0, n_users): owners.
    silo: (n,) int64 in [0, n_silos): holders.
    trains: (n,) bool: False for records of a silo's local test split.
    n_users: number of users.
    n_silos: number of silos.
    records_per_user: bound on a user's training records over all silos, None without a bound.
    stability: how far apart neighbours are after all stages so far.
    """

    user: np.ndarray
    silo: np.ndarray
    trains: np.ndarray
    n_users: int
    n_silos: int
    records_per_user: int | None = None
    stability: Stability = UNSTATED

    def silo_sizes(self) -> np.ndarray:
        """Training records of each silo, (n_silos,) int64."""
        return np.bincount(self.silo[self.trains], minlength=self.n_silos)

    def counts(self) -> np.ndarray:
        """Training records per silo and user, (n_silos, n_users) int64."""
        table = np.zeros((self.n_silos, self.n_users), dtype=np.int64)
        np.add.at(table, (self.silo[self.trains], self.user[self.trains]), 1)
        return table
