"""Allocators that draw users and silos at random.

`Uniform` and `Zipf` follow Kato et al., Uldp-FL (PVLDB 2024), section 5.1, and its published
script. If the data set has no silos, users are drawn first and silos second
(`fedpriv.data.dealing`). If its records already belong to silos, only users are drawn
(`fedpriv.data.fixed_silos`). `Dirichlet` draws silos by label first, then users within the silos.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.data import dealing, fixed_silos
from fedpriv.data.allocate import (
    Allocation,
    Allocator,
    require_consent,
    require_no_silos,
    require_share,
)
from fedpriv.data.stability import (
    DRAWN,
    DRAWN_BY_LABEL,
    DRAWN_BY_PLACE,
    INVENTED_START,
    OWN_COINS,
    READING,
    Stability,
    Stage,
)
from fedpriv.errors import require

if TYPE_CHECKING:
    from fedpriv.data.base import DataSet, Records
    from fedpriv.util.streams import Streams

ALPHAS = (1e-3, 1e6)
"""Allowed concentrations of a Dirichlet distribution. At the minimum, one silo holds nearly all
records of a label; at the maximum, all silos hold nearly equal parts."""


@dataclass(frozen=True)
class RandomAllocator(Allocator):
    """Base of allocators that draw owners at random. It fixes the checks and the order of draws.

    local_test: share of a large silo's records, on average, that becomes its local test split
        and never trains.
    local_test_from: a silo is large if it has more records than this.
    invent_users: draw users although the data set names its own; then no epsilon of a user covers a
        real one.
    """

    local_test: float = 0.1
    local_test_from: int = 500
    invent_users: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require_share(self.local_test)
        least = self.local_test_from
        require(least >= 1, "allocator.local_test_from", least, "a positive number")

    @property
    def invents_users(self) -> bool:
        return self.invent_users

    def stability(self, data: DataSet) -> Stability:
        """Users and silos are drawn by places or labels, so that neighbours are only defined behind
        the draw: a unit is absent, and everybody else's owner stays."""
        start = INVENTED_START if self.invent_users else DRAWN
        return Stability(start, before=(READING, self._draw)).then(OWN_COINS)

    @property
    @abstractmethod
    def _draw(self) -> Stage:
        """The stability of the draw itself."""

    def check(self, data: DataSet) -> None:
        super().check(data)
        require_consent(self.invent_users, data)

    @abstractmethod
    def _owners(self, silo: np.ndarray, group: int, rng: np.random.Generator) -> np.ndarray:
        """Owner of each record, (n,) int64, given its silo. A user has at least `group` records in
        each of its silos."""

    @abstractmethod
    def _deal(
        self, records: Records, group: int, streams: Streams
    ) -> tuple[np.ndarray, np.ndarray]:
        """Owner and silo of each record, (n,) int64 each, for data without silos. `group`: see
        `_owners`."""

    def allocate(self, records: Records, data: DataSet, streams: Streams) -> Allocation:
        n = len(records)
        group = data.records_per_draw
        if records.silo is None:
            allowed = f"at most {n}, the number of training records"
            require(self.n_users <= n, "allocator.n_users", self.n_users, allowed)
            require(self.n_silos <= n, "allocator.n_silos", self.n_silos, allowed)
            user, silo = self._deal(records, group, streams)
        else:
            silo = records.silo
            user = self._owned(silo, group, streams)
        trains = self._trains(silo, group, streams)
        return self._allocation(user, silo, trains, data)

    def _owned(self, silo: np.ndarray, group: int, streams: Streams) -> np.ndarray:
        """Owner of each record, (n,) int64, given its silo."""
        most = int((np.bincount(silo, minlength=self.n_silos) // group).sum())
        allowed = (
            f"at most {most}, so that each user can have {group} training record(s) in one silo"
        )
        require(self.n_users <= most, "allocator.n_users", self.n_users, allowed)
        return self._owners(silo, group, streams.generator("users of records"))

    def _trains(self, silo: np.ndarray, group: int, streams: Streams) -> np.ndarray:
        largest = int(np.bincount(silo).max())
        whole = group == 1 or self.local_test == 0 or largest <= self.local_test_from
        allowed = (
            f"{largest} or more, because a local test split would break up the groups of {group} "
            "records"
        )
        require(whole, "allocator.local_test_from", self.local_test_from, allowed)
        coins = streams.generator("local test").random(len(silo))
        return dealing.hold_out(silo, coins, test=self.local_test, above=self.local_test_from)


@dataclass(frozen=True)
class UsersFirst(RandomAllocator):
    """Base of allocators that draw users first and silos second, so that a silo may depend on the
    user.

    labels_per_user: largest number of classes among one user's records, or None for no limit; only
        for data without silos of their own.
    """

    labels_per_user: int | None = None

    @property
    def _draw(self) -> Stage:
        return DRAWN_BY_PLACE if self.labels_per_user is None else DRAWN_BY_LABEL

    @abstractmethod
    def _users(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Owner of each of n records, (n,) int64."""

    @abstractmethod
    def _silos(self, user: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Silo of each record, (n,) int64, given its owner."""

    def check(self, data: DataSet) -> None:
        super().check(data)
        k = self.labels_per_user
        if k is None:
            return
        name, classes = type(data).__name__, data.outputs
        for fits, allowed in (
            (
                data.natural_silos is None,
                f"null, because the records of {name} already sit in silos",
            ),
            (classes > 1, f"null, because {name} has no classes"),
            (1 <= k <= classes, f"1 to {classes}, the number of classes of {name}"),
            (
                k * self.n_users >= classes,
                f"{-(-classes // self.n_users)} or more, so that {self.n_users} users can own "
                f"{classes} classes",
            ),
        ):
            require(fits, "allocator.labels_per_user", k, allowed)

    def _deal(
        self, records: Records, group: int, streams: Streams
    ) -> tuple[np.ndarray, np.ndarray]:
        user = self._users(len(records), streams.generator("users of records"))
        if self.labels_per_user is not None:
            rng = streams.generator("labels of users")
            user = dealing.limit_labels(
                user, records.y, self.n_users, k=self.labels_per_user, rng=rng
            )
        return user, self._silos(user, streams.generator("silos of records"))


@dataclass(frozen=True)
class Uniform(UsersFirst):
    """All users own equally many records, and all silos hold equally many, as in the paper's
    script.

    In the paper's text, every record draws its user and its silo independently and uniformly, so
    the numbers vary.

    For data with silos, every record draws its user uniformly (for Cox data, every pair of records
    in a silo).
    """

    def _users(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return dealing.deal_equally(n, self.n_users, rng)

    def _silos(self, user: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return dealing.strided_silos(len(user), self.n_silos, rng)

    def _owners(self, silo: np.ndarray, group: int, rng: np.random.Generator) -> np.ndarray:
        return fixed_silos.uniform_owners(silo, self.n_users, group=group, rng=rng)


@dataclass(frozen=True)
class Zipf(UsersFirst):
    """A few users own many records, and each user's records concentrate in a few silos.

    alpha_user: a record belongs to user r with probability proportional to (r + 1)^-alpha_user.
    alpha_silo: a record goes to its user's k-th favourite silo with probability proportional to
        k^-alpha_silo. Data with silos ignore it: there, four fifths of a user's records belong to
        one main silo, as in the paper's script.
    """

    alpha_user: float = 0.5
    alpha_silo: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_exponent("alpha_user", self.alpha_user)
        require_exponent("alpha_silo", self.alpha_silo)

    def _users(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return rng.choice(self.n_users, size=n, p=dealing.zipf_law(self.n_users, self.alpha_user))

    def _silos(self, user: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return dealing.zipf_silos(user, self.n_users, self.n_silos, alpha=self.alpha_silo, rng=rng)

    def _owners(self, silo: np.ndarray, group: int, rng: np.random.Generator) -> np.ndarray:
        law = dealing.zipf_law(self.n_users, self.alpha_user)
        return fixed_silos.zipf_owners(silo, self.n_silos, law, group=group, rng=rng)


@dataclass(frozen=True)
class Equal(Uniform):
    """Each silo is one user's device. The silos' sizes differ by at most one record, or by as
    little as `labels_per_user` allows."""

    local_test: float = 0.1112

    def check(self, data: DataSet) -> None:
        super().check(data)
        require_no_silos("equal", data)
        allowed = f"{self.n_silos}, as many as silos: a device has one owner"
        require(self.n_users == self.n_silos, "allocator.n_users", self.n_users, allowed)

    def _silos(self, user: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return user.copy()

    def _owners(self, silo: np.ndarray, group: int, rng: np.random.Generator) -> np.ndarray:
        return silo.copy()


@dataclass(frozen=True)
class Dirichlet(RandomAllocator):
    """Label-skewed silos: for every label, the silos' shares are drawn from the symmetric
    Dirichlet(alpha).

    This is the partition of Yurochkin et al. (ICML 2019) and Li et al. (ICDE 2022). Hsu, Qi, Brown
    (2019) instead draw the shares of the labels for every silo.

    alpha: concentration. Large values make the silos similar; 0.1 or less leaves few labels in a
        silo.
    alpha_user: exponent of the users' sizes within the silos, see `Zipf`.
    """

    alpha: float = 0.5
    alpha_user: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        least, most = ALPHAS
        fits = least <= self.alpha <= most
        require(fits, "allocator.alpha", self.alpha, f"a concentration from {least:g} to {most:g}")
        require_exponent("alpha_user", self.alpha_user)

    _draw = DRAWN_BY_LABEL

    def check(self, data: DataSet) -> None:
        super().check(data)
        require_no_silos("dirichlet", data)
        unfit = f"uniform or zipf, because {type(data).__name__} has no classes"
        require(data.outputs > 1, "allocator", "dirichlet", unfit)

    def _deal(
        self, records: Records, group: int, streams: Streams
    ) -> tuple[np.ndarray, np.ndarray]:
        rng = streams.generator("silos of records")
        silo = dealing.dirichlet_silos(records.y, self.n_silos, self.alpha, rng=rng)
        return self._owned(silo, group, streams), silo

    def _owners(self, silo: np.ndarray, group: int, rng: np.random.Generator) -> np.ndarray:
        law = dealing.zipf_law(self.n_users, self.alpha_user)
        return fixed_silos.zipf_owners(silo, self.n_silos, law, group=group, rng=rng)


def require_exponent(key: str, value: float) -> None:
    """Raise ConfigError for an exponent of Zipf's law that is none."""
    allowed = "an exponent from 0 (uniform) to 100"
    require(0 <= value <= 100, f"allocator.{key}", value, allowed)
