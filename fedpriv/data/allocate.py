"""Allocators: which user owns each training record and which silo holds it.

Rules of Kato et al., Uldp-FL (PVLDB 2024), section 5.1 and its published script. Data without silos of their own follow
`fedpriv.data.spread` (users first, then silos); data whose records already sit in silos follow
`fedpriv.data.fixed_silos` (users only).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.data import fixed_silos, spread
from fedpriv.data.allocation import Allocation
from fedpriv.errors import ConfigError, require

if TYPE_CHECKING:
    from fedpriv.data.base import DataSet, Records
    from fedpriv.streams import Streams


@dataclass(frozen=True)
class Allocator(ABC):
    """How records spread over users and silos.

    n_users, n_silos: public sizes of the federation. For data that carry silos, n_silos must be their number.
    """

    n_users: int
    n_silos: int

    def __post_init__(self) -> None:
        require(self.n_users >= 1, "allocator.n_users", self.n_users, "a positive number of users")
        require(self.n_silos >= 1, "allocator.n_silos", self.n_silos, "a positive number of silos")

    def check(self, data: DataSet) -> None:
        """Raise ConfigError for what can never work with this data set; looks at its class attributes alone."""
        own = data.natural_silos
        allowed = f"{own}, the number of silos that {type(data).__name__} carries"
        require(own in (None, self.n_silos), "allocator.n_silos", self.n_silos, allowed)

    @abstractmethod
    def allocate(self, records: Records, data: DataSet, streams: Streams) -> Allocation:
        """Assign every training record; deterministic in the streams' seed. Raises ConfigError when it cannot."""


@dataclass(frozen=True)
class Drawn(Allocator):
    """An allocator that draws owners at random: the checks and the order of draws that all of them share.

    labels_per_user: at most so many classes among one user's records, None for any; only for data without own silos.
    local_test, local_test_from: a silo with more than `local_test_from` records keeps a stratified share `local_test`
    of them (rounded up) as its local test split, which never trains.
    """

    labels_per_user: int | None = None
    local_test: float = 0.1
    local_test_from: int = 500

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.local_test < 1, "allocator.local_test", self.local_test, "a share from 0 to below 1")
        require(self.local_test_from >= 1, "allocator.local_test_from", self.local_test_from, "a positive number")

    @abstractmethod
    def _users(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Owner of each of n records, (n,) int64."""

    @abstractmethod
    def _silos(self, user: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Silo of each record, (n,) int64, given its owner."""

    @abstractmethod
    def _owners(self, silo: np.ndarray, group: int, rng: np.random.Generator) -> np.ndarray:
        """Owner of each record, (n,) int64, given its silo; `group` records at least of a user in a silo."""

    def check(self, data: DataSet) -> None:
        super().check(data)
        k = self.labels_per_user
        if k is None:
            return
        key, name = "allocator.labels_per_user", type(data).__name__
        require(data.natural_silos is None, key, k, f"null, because the records of {name} already sit in silos")
        require(data.outputs > 1, key, k, f"null, because {name} has no classes")
        require(1 <= k <= data.outputs, key, k, f"1 to {data.outputs}, the number of classes of {name}")
        enough = (
            f"{-(-data.outputs // self.n_users)} or more, so that {self.n_users} users can own {data.outputs} classes"
        )
        require(k * self.n_users >= data.outputs, key, k, enough)

    def allocate(self, records: Records, data: DataSet, streams: Streams) -> Allocation:
        self.check(data)
        n, group = len(records), data.records_per_draw
        if records.silo is None:
            require(
                self.n_users <= n, "allocator.n_users", self.n_users, f"at most {n}, the number of training records"
            )
            require(
                self.n_silos <= n, "allocator.n_silos", self.n_silos, f"at most {n}, the number of training records"
            )
            user = self._users(n, streams.generator("users of records"))
            if self.labels_per_user is not None:
                rng = streams.generator("labels of users")
                user = spread.limit_labels(user, records.y, self.n_users, self.labels_per_user, rng)
            silo = self._silos(user, streams.generator("silos of records"))
        else:
            silo = records.silo
            most = int((np.bincount(silo, minlength=self.n_silos) // group).sum())
            allowed = f"at most {most}, so that each user can have {group} training record(s) in one silo"
            require(self.n_users <= most, "allocator.n_users", self.n_users, allowed)
            user = self._owners(silo, group, streams.generator("users of records"))
        trains = self._trains(records.y, silo, group, streams)
        return _filled(Allocation(user, silo, trains, self.n_users, self.n_silos))

    def _trains(self, y: np.ndarray, silo: np.ndarray, group: int, streams: Streams) -> np.ndarray:
        largest = int(np.bincount(silo).max())
        if group > 1 and self.local_test > 0:
            allowed = f"{largest} or more, because a local test split would break up the groups of {group} records"
            require(largest <= self.local_test_from, "allocator.local_test_from", self.local_test_from, allowed)
        return spread.hold_out(y, silo, self.local_test, self.local_test_from, streams.generator("local test"))


@dataclass(frozen=True)
class Uniform(Drawn):
    """Users own equally many records, spread evenly over the silos.

    Data with silos: every record (for Cox data every pair of records of a silo) draws its user uniformly.
    """

    def _users(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return spread.balanced_users(n, self.n_users, rng)

    def _silos(self, user: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return spread.strided_silos(len(user), self.n_silos, rng)

    def _owners(self, silo: np.ndarray, group: int, rng: np.random.Generator) -> np.ndarray:
        return fixed_silos.uniform_owners(silo, self.n_users, group, rng)


@dataclass(frozen=True)
class Zipf(Drawn):
    """Few users own many records, and each user's records concentrate in a few silos.

    alpha_user: a record belongs to user r with probability proportional to (r + 1)^-alpha_user.
    alpha_silo: a user's records go to its k-th favourite silo with probability proportional to k^-alpha_silo. Data with
    silos do not use it: there four fifths of a user's records belong to one main silo, as in the paper's script.
    """

    alpha_user: float = 0.5
    alpha_silo: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for key, value in (("alpha_user", self.alpha_user), ("alpha_silo", self.alpha_silo)):
            require(0 <= value <= 100, f"allocator.{key}", value, "an exponent from 0 (uniform) to 100")

    def _users(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return rng.choice(self.n_users, size=n, p=spread.zipf_law(self.n_users, self.alpha_user))

    def _silos(self, user: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return spread.zipf_silos(user, self.n_users, self.n_silos, self.alpha_silo, rng)

    def _owners(self, silo: np.ndarray, group: int, rng: np.random.Generator) -> np.ndarray:
        law = spread.zipf_law(self.n_users, self.alpha_user)
        return fixed_silos.zipf_owners(silo, self.n_silos, law, group, rng)


@dataclass(frozen=True)
class Equal(Drawn):
    """Devices: each silo holds one user and, up to one, as many records as the others; as nearly as `labels_per_user`
    allows."""

    local_test: float = 0.1112

    def check(self, data: DataSet) -> None:
        super().check(data)
        name = type(data).__name__
        carried = f"natural, uniform or zipf, because the records of {name} already sit in silos"
        require(data.natural_silos is None, "allocator", "equal", carried)
        allowed = f"{self.n_silos}, as many as silos: a device has one owner"
        require(self.n_users == self.n_silos, "allocator.n_users", self.n_users, allowed)

    def _users(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return spread.balanced_users(n, self.n_users, rng)

    def _silos(self, user: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return user.copy()

    def _owners(self, silo: np.ndarray, group: int, rng: np.random.Generator) -> np.ndarray:
        return silo.copy()


@dataclass(frozen=True)
class Natural(Allocator):
    """The data set's own silos and users; nothing is drawn, and n_users must be the number of its users."""

    def check(self, data: DataSet) -> None:
        super().check(data)
        name = type(data).__name__
        owned = data.natural_silos is not None and data.natural_users
        require(owned, "allocator", "natural", f"uniform or zipf, because {name} does not say who owns a record")
        pairs = (
            f"uniform or zipf, because training on {name} needs {data.records_per_draw} records of a user, and it has 1"
        )
        require(data.records_per_draw == 1, "allocator", "natural", pairs)

    def allocate(self, records: Records, data: DataSet, streams: Streams) -> Allocation:
        self.check(data)
        user = np.arange(len(records)) if records.user is None else records.user
        n_users = int(user.max()) + 1
        allowed = f"{n_users}, the number of users in the training records of {type(data).__name__}"
        require(self.n_users == n_users, "allocator.n_users", self.n_users, allowed)
        trains = np.ones(len(records), dtype=bool)
        return _filled(Allocation(user, records.silo, trains, n_users, self.n_silos))


def _filled(allocation: Allocation) -> Allocation:
    """`allocation` itself, if every silo can train."""
    sizes = np.bincount(allocation.silo[allocation.trains], minlength=allocation.n_silos)
    if sizes.min() == 0:
        empty = f"fewer silos or more users, because silo {int(sizes.argmin())} would hold no training record"
        raise ConfigError("allocator.n_silos", allocation.n_silos, empty)
    return allocation
