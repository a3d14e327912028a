"""How far apart two neighbouring files are after each stage before the first event.

A certificate speaks of two files that differ in one unit. Between the file and the first event a
run assigns owners, holds out local tests and truncates users to k records. Each of these stages
declares its stability: how many users and records differ behind it when so many differ before it.
Stages chain, and a stage without a bound ends in no certificate. The same idea carries OpenDP's
transformations.

    >>> chain = Stability("the loaded records").then(OWN_USERS).then(truncation(8))
    >>> chain.of("user", ADD_REMOVE)
    Distance(users=1, rows=8, swaps=False, why='')
    >>> chain.of("record", ADD_REMOVE)
    Distance(users=1, rows=2, swaps=True, why='')
    >>> chain.of("record", REPLACE)
    Distance(users=1, rows=1, swaps=False, why='')
    >>> chain.then(truncation("median")).of("record", ADD_REMOVE).finite
    False

Three relations between neighbours are known: `users`, one user's records are absent; `rows`, one
record is absent; `changed`, records have other content, while owner, silo and place stay.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

ADD_REMOVE = "add/remove"
REPLACE = "replace"
"""As in `fedpriv.accountants.events`, which this layer may not import."""

USERS, ROWS, CHANGED = RELATIONS = ("users", "rows", "changed")

PUBLIC = (
    "public: how records were split into training and test records and scaled, the numbers of "
    "users and silos, and which silos hold enough records for a local test"
)
"""What every distance takes as given, because no epsilon covers it."""


@dataclass(frozen=True)
class Distance:
    """What differs between two neighbours behind the last stage.

    users: users whose records differ; inf where there is no bound.
    rows: records that differ: absent in one of the two, or with other content. They are records of
        these users; inf where there is no bound.
    swaps: whether records come in where others go, as truncation does: a distance of 2 rows is then
        one removal and one addition.
    why: why `users` or `rows` has no bound, in one line; else empty.
    """

    users: float
    rows: float
    swaps: bool = False
    why: str = ""

    @property
    def finite(self) -> bool:
        """Whether the number of records that differ is bounded."""
        return math.isfinite(self.rows)


@dataclass(frozen=True)
class DistanceBound:
    """A stage's stability under one relation: the map from the distance before to that behind it.

    users: users that differ behind the stage, for each that differs before it.
    rows: records that differ behind the stage, for each that differs before it.
    most: most records of one user that can differ behind the stage.
    swaps: whether it lets in records where others go.
    why: why `users` or `rows` is infinite, in one line.
    """

    users: float = 1
    rows: float = 1
    most: float = math.inf
    swaps: bool = False
    why: str = ""

    def __call__(self, before: Distance) -> Distance:
        users = before.users * self.users
        rows = min(before.rows * self.rows, users * self.most)
        open_ended = math.isinf(users) or math.isinf(rows)
        why = (self.why or before.why) if open_ended else ""
        return Distance(users, rows, before.swaps or self.swaps, why)


def unbounded(why: str) -> DistanceBound:
    """The stability of a stage behind which everything may differ."""
    return DistanceBound(math.inf, math.inf, why=why)


@dataclass(frozen=True)
class Stage:
    """A stage with its stability under each relation.

    name: what it does, for messages.
    users: stability where users are absent.
    rows: stability where records are absent.
    changed: stability where the content of records differs.
    """

    name: str
    users: DistanceBound = DistanceBound()
    rows: DistanceBound = DistanceBound()
    changed: DistanceBound = DistanceBound()


def _everywhere(name: str, why: str) -> Stage:
    return Stage(name, unbounded(why), unbounded(why), unbounded(why))


@dataclass(frozen=True)
class Stability:
    """The stages of a run, from where its neighbours are defined to the first event.

    start: in which records neighbours differ.
    stages: what happens to the records from there on, in order.
    before: what happened to the file before, in order. Its result is taken as given.
    """

    start: str
    stages: tuple[Stage, ...] = ()
    before: tuple[Stage, ...] = ()

    def then(self, stage: Stage) -> Stability:
        """The chain with another stage at its end."""
        return replace(self, stages=(*self.stages, stage))

    def of(self, unit: str, adjacency: str) -> Distance:
        """How far apart neighbours are behind the last stage, if one `unit` ("user" or "record")
        is absent (`ADD_REMOVE`) or has other content (`REPLACE`). Neighbours are defined at
        `start`."""
        return self._over(self.stages, unit, adjacency)

    def from_file(self, unit: str, adjacency: str) -> Distance:
        """The same for neighbours in the file itself."""
        return self._over((*self.before, *self.stages), unit, adjacency)

    @staticmethod
    def _over(stages: tuple[Stage, ...], unit: str, adjacency: str) -> Distance:
        if unit not in ("user", "record"):
            return Distance(math.inf, math.inf, why=f"no stage knows the distance of {unit}")
        absent = USERS if unit == "user" else ROWS
        relation = CHANGED if adjacency == REPLACE else absent
        distance = Distance(1, 1)
        if unit == "user":
            distance = Distance(1, math.inf, why="nothing bounds the records of a user")
        for stage in stages:
            distance = getattr(stage, relation)(distance)
        return distance

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What every distance rests on."""
        return (f"neighbours differ in {self.start}", PUBLIC)


READING = _everywhere(
    "split and scaling", "a split and a scaling by statistics depend on all records"
)
"""Reading the file. Its result is public by assumption (`PUBLIC`), and chains start behind it."""

OWN_USERS = Stage("the data set's own users")
"""`natural` and `by_user`: owner and silo of a record depend on no other record."""

_BY_PLACE = "users are drawn by the place of a record, and one absent shifts all places behind it"
DRAWN_BY_PLACE = Stage("drawn users", unbounded(_BY_PLACE), unbounded(_BY_PLACE))
"""`uniform`, `zipf` and `equal`: what a record holds does not matter."""

DRAWN_BY_LABEL = _everywhere("users drawn by label", "labels decide who owns which record")
"""`dirichlet` and `labels_per_user`."""

OWN_COINS = Stage("local test by the coin of each record")
"""A large silo's local test: a record is held out if its own coin says so."""

OF_EACH_USER = Stage(
    "local test of each user",
    rows=DistanceBound(
        rows=math.inf, why="a user's local test is drawn from all of the user's records"
    ),
)
"""A user's local test depends on this user's records alone."""

LOADED = "the loaded records"
DRAWN = "the records of drawn users: everybody else's records keep their places, owners and silos"
INVENTED_START = f"{DRAWN}; the data set names other users, whom no distance is about"
"""Where neighbours are defined: `Stability.start`."""

NO_STAGES = Stability(LOADED)
"""Nothing happens to the records before the first event."""

UNSTATED = Stability(
    LOADED,
    (_everywhere("allocation", "this allocator states no stability"),),
)
"""Of an allocator whose author says nothing."""

UNSTATED_CHOICE = _everywhere(
    "choice of records", "the method chooses its training records and states no stability"
)
"""Of a method that changes the allocation and adds no stage of its own."""


def truncation(rule: int | str, group: int = 1) -> Stage:
    """Users keep at most k training records.

    rule: k, fixed without a look at the data, or "max" or "median", which look at all users.
    group: records that are kept or dropped together; 2 for Cox losses.

    Where a record is absent, another of the same user may come in. Groups of several records shift
    as a whole, so that all records that a user keeps may differ.
    """
    if isinstance(rule, str) and not rule.isdecimal():
        return _everywhere("truncation", f"k={rule} is read off the private numbers of records")
    k = int(rule)
    shifts = DistanceBound(rows=2 if group == 1 else math.inf, most=2 * k, swaps=True)
    return Stage(
        f"at most {k} records of a user", DistanceBound(most=k), shifts, DistanceBound(most=k)
    )
