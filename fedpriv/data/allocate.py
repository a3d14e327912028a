"""Allocators: they assign each training record to a user (its owner) and a silo (its holder).

`Natural` and `ByUser` use the users that the data set knows. `fedpriv.data.random_allocators` draws
users and silos. `Allocation` is the result.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.data import dealing
from fedpriv.data.base import count_users
from fedpriv.data.stability import (
    LOADED,
    OF_EACH_USER,
    OWN_USERS,
    UNSTATED,
    Stability,
)
from fedpriv.errors import require

if TYPE_CHECKING:
    from fedpriv.data.base import DataSet, Records
    from fedpriv.util.streams import Streams


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


@dataclass(frozen=True)
class Allocator(ABC):
    """A rule that assigns records to users and silos.

    n_users: number of users, public.
    n_silos: number of silos, public; for data with silos of their own, the number of these.

    An allocator implements `allocate`:

    >>> from fedpriv.data.base import Records
    >>> from fedpriv.data.embedded import BreastCancer
    >>> from fedpriv.util.streams import Streams
    >>> class RoundRobin(Allocator):
    ...     def allocate(self, records, data, streams):
    ...         row = np.arange(len(records))
    ...         trains = np.ones(len(records), dtype=bool)
    ...         user = row % self.n_users
    ...         return Allocation(user, user % self.n_silos, trains, self.n_users, self.n_silos)
    >>> records = Records(x=np.zeros((5, 30), np.float32), y=np.zeros(5, np.int64))
    >>> allocation = RoundRobin(n_users=3, n_silos=2).allocate(records, BreastCancer(), Streams(0))
    >>> allocation.user.tolist(), allocation.silo.tolist()
    ([0, 1, 2, 0, 1], [0, 1, 0, 0, 1])
    """

    n_users: int
    n_silos: int

    def __post_init__(self) -> None:
        # Silos first: where each is one user's device, the number of users follows it.
        require(self.n_silos >= 1, "allocator.n_silos", self.n_silos, "a positive number of silos")
        require(self.n_users >= 1, "allocator.n_users", self.n_users, "a positive number of users")

    def check(self, data: DataSet) -> None:
        """Raise ConfigError if this allocator can never work with `data`. Reads only the class
        attributes of `data`."""
        own = data.natural_silos
        allowed = f"{own}, the number of silos that {type(data).__name__} carries"
        require(own in (None, self.n_silos), "allocator.n_silos", self.n_silos, allowed)

    @property
    def invents_users(self) -> bool:
        """Whether users are drawn although the data set may name its own."""
        return False

    @property
    def not_covered(self) -> tuple[str, ...]:
        """What this allocation does that no epsilon covers."""
        return (INVENTED,) if self.invents_users else ()

    @abstractmethod
    def allocate(self, records: Records, data: DataSet, streams: Streams) -> Allocation:
        """Assign every training record to a user and a silo, after `check`. The result depends only
        on the arguments and the seed of `streams`. Raises ConfigError if no assignment is
        possible."""

    def stability(self, data: DataSet) -> Stability:
        """How far apart neighbouring files are behind this allocation; known before data are read.
        An allocator that does not say gets no certificate."""
        return UNSTATED

    def one_silo_each(self, data: DataSet) -> bool:
        """Whether every user has records in one silo only, whatever the records are."""
        return self.n_silos == 1

    def _allocation(
        self, user: np.ndarray, silo: np.ndarray, trains: np.ndarray, data: DataSet
    ) -> Allocation:
        """The allocation with its stability. Raises ConfigError if a silo holds no training
        record."""
        stability = self.stability(data)
        found = Allocation(user, silo, trains, self.n_users, self.n_silos, stability=stability)
        sizes = found.silo_sizes()
        remedy = (
            f"fewer, because silo {sizes.argmin()} would hold no training record (or more users, a "
            "smaller local_test, a larger alpha)"
        )
        require(bool(sizes.min()), "allocator.n_silos", self.n_silos, remedy)
        return found

    def _known_users(self, records: Records, data: DataSet) -> np.ndarray:
        """Owner of each record according to the data set, (n,) int64; if it names no owners, each
        record is its own user. Raises ConfigError if the number of users is not `n_users`."""
        n_users = count_users(records)
        whose = "on the public list" if records.n_users is not None else "in the training records"
        allowed = f"{n_users}, the number of users {whose} of {type(data).__name__}, or null"
        require(self.n_users == n_users, "allocator.n_users", self.n_users, allowed)
        return np.arange(len(records)) if records.user is None else records.user


@dataclass(frozen=True)
class Natural(Allocator):
    """The data set's own silos and users. Nothing is random, and `n_users` must be the number of
    users in the data set; in a yaml or on the command line, null stands for it."""

    def check(self, data: DataSet) -> None:
        super().check(data)
        name = type(data).__name__
        homeless = data.natural_users and data.natural_silos is None
        allowed = f"by_user, because {name} does not name silos"
        require(not homeless, "allocator", "natural", allowed)
        require_own_users("natural", data, data.natural_silos is not None)

    def stability(self, data: DataSet) -> Stability:
        return known_stability(data)

    def one_silo_each(self, data: DataSet) -> bool:
        return super().one_silo_each(data) or data.users_of_one_silo

    def allocate(self, records: Records, data: DataSet, streams: Streams) -> Allocation:
        assert records.silo is not None
        user = self._known_users(records, data)
        trains = np.ones(len(records), dtype=bool)
        return self._allocation(user, records.silo, trains, data)


@dataclass(frozen=True)
class ByUser(Allocator):
    """The data set's own users, each assigned to one random silo. The silos' numbers of users
    differ by at most one; users with names go to a silo by the coin of their name.

    `n_users` must be the number of users in the data set; null stands for it.

    local_test: share of each user's records, rounded up, that becomes the user's local test split;
        at least one record trains. A user's split does not depend on other users.
    """

    local_test: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        require_share(self.local_test)
        allowed = f"at most {self.n_users}, the number of users"
        require(self.n_silos <= self.n_users, "allocator.n_silos", self.n_silos, allowed)

    def check(self, data: DataSet) -> None:
        super().check(data)
        require_no_silos("by_user", data)
        require_own_users("by_user", data)

    def stability(self, data: DataSet) -> Stability:
        chain = known_stability(data)
        return chain.then(OF_EACH_USER) if self.local_test > 0 else chain

    def one_silo_each(self, data: DataSet) -> bool:
        return True

    def allocate(self, records: Records, data: DataSet, streams: Streams) -> Allocation:
        user = self._known_users(records, data)
        names = records.user_names
        purpose = "silos of users"
        if names is None:
            home = dealing.deal_equally(self.n_users, self.n_silos, streams.generator(purpose))
        else:
            home = (streams.named_coins(purpose, names) * self.n_silos).astype(np.int64)

        def own(user: int) -> np.random.Generator:
            party = f"user{user}" if names is None else f"user {names[user]}"
            return streams.generator("local test", party=party)

        trains = dealing.hold_out_of_each(user, self.local_test, own)
        return self._allocation(user, home[user], trains, data)


def known_stability(data: DataSet) -> Stability:
    """The chain of an allocator that keeps the users of the data set: it starts at the loaded
    records, and says who a user is and what was read off the records before."""
    given = tuple(f"taken as given: {text}" for text in data.read_without_noise)
    said = (text for text in (data.user_is, data.public_by_word) if text)
    start = "; ".join((LOADED, *said, *given))
    return Stability(start, before=(data.reading,)).then(OWN_USERS)


def require_share(local_test: float) -> None:
    """Raise ConfigError unless some records of each user or silo are left to train."""
    fits = 0 <= local_test < 1
    require(fits, "allocator.local_test", local_test, "a share from 0 to below 1")


def require_no_silos(allocator: str, data: DataSet) -> None:
    """Raise ConfigError if the data set has silos."""
    free = data.natural_silos is None
    name = type(data).__name__
    allowed = f"natural, uniform or zipf, because the records of {name} already sit in silos"
    require(free, "allocator", allocator, allowed)


def require_own_users(allocator: str, data: DataSet, known: bool = True) -> None:
    """Raise ConfigError unless the data set names its users, and the loss needs one record of a
    user: its own users need not have several."""
    name = type(data).__name__
    owned = known and data.natural_users
    unknown = f"uniform or zipf, because {name} does not say who owns a record"
    require(owned, "allocator", allocator, unknown)
    group = data.records_per_draw
    pairs = (
        f"uniform or zipf, because training on {name} needs {group} records of a user, and it has 1"
    )
    require(group == 1, "allocator", allocator, pairs)


KEY = "allocator.invent_users"

INVENTED = (
    "allocator.invent_users=true draws users over those that the data set names: no epsilon of a "
    "user covers a real one"
)
"""What status.json says of a run with invented users."""


def require_consent(invents: bool, data: DataSet) -> None:
    """Raise ConfigError where users are known and an allocator draws others, unless it `invents`.
    `require_kept` sees users whom only the records name."""
    require(invents or not data.natural_users, KEY, "false", _remedy(data))


def require_kept(allocation: Allocation, records: Records, data: DataSet, invents: bool) -> None:
    """Raise ConfigError unless an allocation keeps the users and the silos that records name.

    invents: whether other users are drawn on purpose; known silos stay silos even so.
    """
    users = records.user
    if users is None and data.natural_users:
        users = np.arange(len(records))
    kept = invents or users is None or _same_groups(allocation.user, users)
    require(kept, KEY, "false", _remedy(data))
    stays = records.silo is None or np.array_equal(allocation.silo, records.silo)
    allowed = f"one that keeps the silos that the records of {type(data).__name__} name"
    require(stays, "allocator", "...", allowed)


def _remedy(data: DataSet) -> str:
    """What is allowed, and why."""
    return (
        "true for a simulation whose epsilon covers no real user, or allocator=natural where silos "
        "are known, or allocator=by_user, which need natural_users = True and one record of a "
        f"user; {type(data).__name__} names its users"
    )


def _same_groups(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two labellings (n,) cut n records into the same groups."""
    first, own = np.unique(one, return_inverse=True)
    second, known = np.unique(other, return_inverse=True)
    pairs = len(np.unique(own * len(second) + known))
    return pairs == len(first) == len(second)
