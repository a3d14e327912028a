"""A claim as data: what is released, who sees it, and which epsilon is stated for it.

The schema is neutral: it describes sums of bounded vectors with noise, whatever framework computes
them. `fedpriv.claims.reading` reads it from YAML or JSON. Every field must be said; nothing has a
default. `claim.schema.json` is the same schema for editors and other tools.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedpriv.accountants.events import ADD_REMOVE, OBSERVERS, RELEASED_MODEL, REPLACE, SERVER

VERSION = "fedpriv-claim/1"

EVERYWHERE = "all"
"""The scope of a release that describes all data."""

CLIENT = "client"
WHO = (RELEASED_MODEL, SERVER, CLIENT)
"""Observers: anyone who gets the model, the server, and a client other than the unit's own."""
assert OBSERVERS[:2] == WHO[:2]

RECORD, USER = "record", "user"
UNITS = (RECORD, USER, CLIENT)
"""From the finest to the coarsest: a user has records, a client has users and records."""

ZERO_OUT = "zero-out"
ADJACENCIES = (ADD_REMOVE, REPLACE, ZERO_OUT)
"""Zero-out: the unit's contributions become zero, while all counts and sizes stay public."""

NOTHING, SUM, MESSAGES = SIGHTS = ("nothing", "sum", "messages")
"""What an observer sees of a release: nothing, the noised sum, or every message of it."""

GAUSSIAN, LAPLACE, NO_NOISE = MECHANISMS = ("gaussian", "laplace", "none")

BY_SERVER, BY_CLIENTS, BY_HOLDER, BY_NOBODY_SEEN = ADDERS = (
    "server",
    "clients",
    "holder of the data",
    "trusted third party",
)
"""Who adds noise. Clients: each message has its own share. Holder: the client whose data the
release describes, so that everybody else meets all of it."""

INDEPENDENT, SHARED, REUSED, PUBLIC = GENERATORS = (
    "independent",
    "shared by clients",
    "reused over releases",
    "public seed",
)
"""Where noise comes from. Independent: a fresh draw for each release and message, unknown to every
observer."""

EVERYTHING, POISSON, WITHOUT_REPLACEMENT, SHUFFLED = RULES = (
    "everything",
    "poisson",
    "without replacement",
    "shuffled",
)
"""How contributors are chosen for a release, as executed."""

EACH_TIME, ONCE, TOGETHER = DRAWS = ("each time", "once", "with another release")
"""When a sample is drawn. Each time: anew for each release, independently of all other samples.
Once: one sample for all releases of an entry. With another release: both have the same sample."""

FIXED, COUNTS, DATA_DEPENDENT = BASES = ("fixed", "counts", "depends on data")
"""Weights and denominators: public and fixed beforehand, computed from how many records or
contributors there are, or from protected data in another way."""


@dataclass(frozen=True)
class Statement:
    """One stated guarantee.

    epsilon: the stated number.
    delta: its delta.
    unit: what is protected, one of `UNITS`.
    adjacency: one of `ADJACENCIES`.
    observer: against whom, one of `WHO`.
    """

    epsilon: float
    delta: float
    unit: str
    adjacency: str
    observer: str


@dataclass(frozen=True)
class UnitSpread:
    """Where the data of one unit can be.

    contributors: the most contributors of one scope whose vectors depend on one unit, counted over
        all releases: others may take part in each.
    scopes: the most scopes with data of one unit.
    """

    contributors: int
    scopes: int


@dataclass(frozen=True)
class AddedNoise:
    """The noise of one release.

    mechanism: one of `MECHANISMS`. Laplace noise goes with a bound of the L1 norm, else L2.
    deviation: standard deviation (Laplace: scale) per coordinate of the sum, or of one share if
        clients add it, in the units of the clipped vectors before any division.
    added_by: one of `ADDERS`.
    shares: the fewest shares in a sum; 1 unless clients add the noise.
    generator: one of `GENERATORS`.
    """

    mechanism: str
    deviation: float = 0.0
    added_by: str = BY_SERVER
    shares: int = 1
    generator: str = INDEPENDENT


@dataclass(frozen=True)
class ReleaseSampling:
    """Which contributors take part in a release.

    rule: one of `RULES`.
    rate: probability of one contributor (Poisson).
    batch: contributors in one release (without replacement, shuffled).
    of: contributors to choose from (without replacement, shuffled).
    drawn: one of `DRAWS`.
    hidden_from: observers who do not learn who was chosen.
    """

    rule: str
    rate: float = 1.0
    batch: int = 1
    of: int = 1
    drawn: str = EACH_TIME
    hidden_from: tuple[str, ...] = ()

    @property
    def share(self) -> float:
        """Probability that a contributor takes part in one release; 1 for shuffled batches."""
        if self.rule == POISSON:
            return self.rate
        return self.batch / self.of if self.rule == WITHOUT_REPLACEMENT else 1.0


@dataclass(frozen=True)
class NoisyRelease:
    """A sum of clipped vectors with noise, released several times.

    name: for messages.
    scope: the disjoint part of the data that it describes, such as a client; "all" for all data.
    contributor: whose vectors are clipped, one of `UNITS`.
    times: number of releases.
    participation: the most releases in which one contributor takes part.
    clip: bound of one vector's norm; inf if nothing is clipped.
    tensors: vectors that are clipped to `clip` each and released together; 1 if clipped jointly.
    weight: the largest weight of one vector in the sum.
    weights: one of `BASES`.
    denominator: one of `BASES`: what the sum is divided by, such as a count.
    noise: what is added to the sum.
    sampling: who takes part.
    seen: what each observer in `WHO` sees, one of `SIGHTS`.
    """

    name: str
    scope: str
    contributor: str
    times: int
    participation: int
    clip: float
    tensors: int
    weight: float
    weights: str
    denominator: str
    noise: AddedNoise
    sampling: ReleaseSampling
    seen: tuple[tuple[str, str], ...]

    def sight(self, observer: str) -> str:
        """What `observer` sees of it."""
        return dict(self.seen)[observer]

    @property
    def bound(self) -> float:
        """The largest norm of what one contributor adds to the sum."""
        square = self.noise.mechanism != LAPLACE  # L1 norms of tensors add up
        return self.clip * self.weight * (self.tensors**0.5 if square else self.tensors)


@dataclass(frozen=True)
class Question:
    """A field that is missing or said to be unknown.

    path: where it belongs, such as `releases.0.noise.deviation`.
    text: what to say there.
    """

    path: str
    text: str


@dataclass(frozen=True)
class PrivacyClaim:
    """A file of statements and of the releases that they are about.

    name: title.
    statements: the stated guarantees; None for one with open questions.
    releases: the releases; None for one with open questions.
    spread: where the data of one unit can be, by unit.
    complete: whether `releases` lists everything that is computed from protected data and seen by
        an observer.
    choices: decisions made on protected data that no release pays for.
    questions: all open questions. A claim with one is never verified.
    source: where the claim comes from, and what its authors say; not used for verdicts.
    """

    name: str
    statements: tuple[Statement | None, ...]
    releases: tuple[NoisyRelease | None, ...]
    spread: dict[str, UnitSpread]
    complete: bool
    choices: tuple[str, ...]
    questions: tuple[Question, ...]
    source: dict[str, str]

    def seen_by(self, observer: str) -> list[tuple[int, NoisyRelease]]:
        """The releases without open questions of which `observer` sees something, with their
        numbers."""
        known = ((number, one) for number, one in enumerate(self.releases) if one is not None)
        return [(number, one) for number, one in known if one.sight(observer) != NOTHING]
