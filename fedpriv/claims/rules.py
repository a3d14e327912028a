"""The rules for claims: what is proved about a release, what an attack reaches, and why.

A release is looked at as the observer of a statement sees it (`View`). Certificate, reasons and
attacks read these tables and nothing else:

- `NEEDS`: what every proof needs, field by field, and `NOISE`: how much noise hides a contribution;
- `PROOFS`: the charge of a release, by mechanism, sampling, what is learned of the sample, and what
  neighbours differ in. Every row that fits is a proof; the smallest epsilon counts;
- `ATTACKS` and `CANCELLED`: lower bounds.

What fits no row has no certificate. `docs/reference/claim_rules.md` prints the tables with a proof
or a source for each row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property

from fedpriv.accountants.events import ADD_REMOVE, RELEASED_MODEL, REPLACE, SERVER
from fedpriv.claims import schema as s

REMOVED, ZEROED, REPLACED, RESIZED = CHANGES = ("removed", "zeroed", "replaced", "resized")
"""Contributors of the unit are absent, send a zero vector, send another vector, or send another one
and are others in number. One that is larger than the unit is replaced under every adjacency."""

HIDDEN, SHOWN, BY_NOISE, TOLD, NAMED = ("hidden", "may show", "shows in noise", "told", "named")
LEARNED = {
    HIDDEN: "nothing",
    SHOWN: "it may show: in counts, in messages, or by the observer's own place in a batch",
    BY_NOISE: "a client that is drawn adds its share of noise",
    TOLD: "who is drawn: it is not in `hidden_from`, or a client that is not drawn sends neither "
    "vector nor noise. The place of a removed record or user stays in the sample",
}
"""What the observer learns of the sample. `NAMED`, for which nothing is proved: who is drawn, where
a removed client is nobody."""

CAPPED = "limited"
"""A contributor takes part in fewer releases than there are, so that samples depend on another."""
ALONE, ANY = (s.EACH_TIME, s.ONCE), (*s.DRAWS, CAPPED)

EVERYTHING, AMPLIFIED, DRAWN = ("everything", "amplified", "drawn")
CHARGES = {
    EVERYTHING: "as if the contributor took part in each of `participation` releases. Gaussian: "
    "`GaussianDpEvent`, the exact curve. Laplace: the sum of pure guarantees, or zCDP",
    AMPLIFIED: "with the sampling. Gaussian: `PoissonSampledDpEvent` or its mixture for a group, "
    "by privacy loss distributions; `SampledWithoutReplacementDpEvent` by Renyi divergences; one "
    "sample for all releases: ln(1 + q (e^epsilon - 1)) at delta / q. Laplace: the same of epsilon",
    DRAWN: "the unit takes part in K releases, K is binomial and known: the mean over K of the "
    "exact curve of K Gaussian releases",
}
GAP, PASSES, SAMPLE, OPEN = ("gap", "passes", "sample", "open sample")

LARGEST_GROUP = 1000
"""Contributors of a unit up to which samples of a group are accounted."""


@dataclass(frozen=True)
class Noise:
    """How much noise hides a contribution.

    added_by: one of `schema.ADDERS`.
    seen: what the observer sees.
    observers: who it is.
    shares: independent shares that it cannot know, from the fewest in a sum; in words: `told`.
    stays: whether the noise is there without the client that holds the data.
    """

    added_by: str
    seen: tuple[str, ...]
    observers: tuple[str, ...]
    shares: Callable[[int], int]
    told: str
    stays: bool


NOISE = (
    Noise(s.BY_SERVER, (s.SUM,), (RELEASED_MODEL, s.CLIENT), lambda n: 1, "all", True),
    Noise(s.BY_NOBODY_SEEN, (s.SUM,), s.WHO, lambda n: 1, "all", True),
    Noise(s.BY_HOLDER, (s.SUM, s.MESSAGES), s.WHO, lambda n: 1, "all", False),
    Noise(s.BY_CLIENTS, (s.MESSAGES,), s.WHO, lambda n: 1, "one share", False),
    Noise(s.BY_CLIENTS, (s.SUM,), (RELEASED_MODEL, SERVER), lambda n: n, "all shares", False),
    Noise(s.BY_CLIENTS, (s.SUM,), (s.CLIENT,), lambda n: n - 1, "all shares but its own", False),
)


@dataclass(frozen=True)
class Row:
    """A rule. It fits if the release has one of the values in each field.

    mechanism, sampling, drawn, sample, change: of the release as the observer sees it.
    result: the charge of a proof, or an attack.
    source: a proof, or where to find one.
    bounds: how many bounds one contributor moves the sum by.
    most: contributors of one unit for which it is proved.
    """

    mechanism: Collection[str]
    sampling: Collection[str]
    drawn: Collection[str]
    sample: Collection[str]
    change: Collection[str]
    result: str
    source: str
    bounds: int = 1
    most: float = math.inf

    def fits(self, view: View) -> bool:
        """Whether it covers a release."""
        return (
            view.release.noise.mechanism in self.mechanism
            and view.rule in self.sampling
            and view.drawn in self.drawn
            and view.sample in self.sample
            and view.change in self.change
            and view.contributors <= self.most
        )


BOTH, NORMAL, LAPLACE = (s.GAUSSIAN, s.LAPLACE), (s.GAUSSIAN,), (s.LAPLACE,)
ALL, FIXED, COINS = (s.EVERYTHING,), (s.WITHOUT_REPLACEMENT,), (s.POISSON,)
SHUFFLED, SAMPLED = (s.SHUFFLED,), (s.POISSON, s.WITHOUT_REPLACEMENT)
ABSENT, KEPT, OTHER, MOVED = (REMOVED, ZEROED), (ZEROED, REPLACED), (REPLACED,), (REPLACED, RESIZED)
FEWER = (REMOVED, RESIZED)
UNAMPLIFIED, TWICE, LEAVES_PLACE, OPEN_SAMPLE, OWN_COIN, PURE = (
    "one contribution of norm C; a sample never costs privacy",
    "two vectors of norm C are 2 C apart",
    "another contributor takes the place in the batch (coupling)",
    "one law of the sample for both neighbours: joint convexity",
    "coins of the unit are its own: joint convexity",
    "Balle, Barthe, Gaboardi 2018, Theorem {}, for each release",
)

PROOFS = (
    Row(BOTH, ALL + COINS, ANY, LEARNED, ABSENT, EVERYTHING, UNAMPLIFIED),
    Row(BOTH, FIXED + SHUFFLED, ANY, LEARNED, (ZEROED,), EVERYTHING, UNAMPLIFIED),
    Row(BOTH, ALL + COINS, ANY, LEARNED, MOVED, EVERYTHING, TWICE, 2),
    Row(BOTH, FIXED + SHUFFLED, ANY, LEARNED, OTHER, EVERYTHING, TWICE, 2),
    Row(BOTH, FIXED, s.DRAWS, (HIDDEN,), FEWER, EVERYTHING, LEAVES_PLACE, 2),
    Row(
        *(NORMAL, COINS, (s.EACH_TIME,), (HIDDEN,), ABSENT, AMPLIFIED),
        "Zhu, Dong, Wang 2022, Theorem 11; groups: Choquette-Choo et al. 2024, Corollary 4.7",
        most=LARGEST_GROUP,
    ),
    Row(
        *(NORMAL, COINS, (s.ONCE,), (HIDDEN,), ABSENT, AMPLIFIED),
        "the same, of all releases as one Gaussian",
        most=1,
    ),
    Row(LAPLACE, COINS, s.DRAWS[:1], (HIDDEN,), ABSENT, AMPLIFIED, PURE.format(8), most=1),
    Row(
        *(NORMAL, FIXED, (s.EACH_TIME,), (HIDDEN,), KEPT, AMPLIFIED),
        "Wang, Balle, Kasiviswanathan 2019, Theorem 9",
        bounds=2,
        most=1,
    ),
    Row(
        *(NORMAL, FIXED, (s.ONCE,), (HIDDEN,), KEPT, AMPLIFIED),
        "Balle, Barthe, Gaboardi 2018, Theorem 11, of all releases as one Gaussian",
        bounds=2,
        most=1,
    ),
    Row(LAPLACE, FIXED, s.DRAWS[:1], (HIDDEN,), KEPT, AMPLIFIED, PURE.format(11), 2, 1),
    Row(NORMAL, SAMPLED, ALONE, LEARNED, (ZEROED,), DRAWN, OPEN_SAMPLE),
    Row(NORMAL, SAMPLED, ALONE, LEARNED, OTHER, DRAWN, OPEN_SAMPLE, 2),
    Row(NORMAL, COINS, ALONE, LEARNED, (RESIZED,), DRAWN, OWN_COIN, 2),
    Row(NORMAL, COINS, ALONE, (HIDDEN, SHOWN), (REMOVED,), DRAWN, OWN_COIN),
    Row(NORMAL, FIXED, ALONE, (HIDDEN,), FEWER, DRAWN, LEAVES_PLACE, 2),
)
"""What is proved."""

SAME_NOISE, STILL = (HIDDEN, SHOWN, TOLD), (ZEROED, *MOVED)
ATTACKS = (
    Row(BOTH, ALL, ANY, LEARNED, CHANGES, GAP, "Balle and Wang 2018, Theorem 8; Laplace: exact"),
    Row(NORMAL, SHUFFLED, ANY, LEARNED, STILL, PASSES, "the sum of a pass is one Gaussian release"),
    Row(
        *(NORMAL, SAMPLED, s.DRAWS, SAME_NOISE, CHANGES, SAMPLE),
        "the exact curve of (1 - q) N(0) + q N(C) and N(0), losses rounded down",
    ),
    Row(BOTH, SAMPLED, ALONE, (TOLD,), STILL, OPEN, "the exact curve, given the sample"),
)
"""What is reached if all other vectors are zero and the unit's lies on the bound. Units of equal
size are neighbours too."""


@dataclass(frozen=True)
class View:
    """A release as the observer of a statement sees it.

    claim: whose release it is.
    release: the release.
    target: unit, adjacency and observer.
    """

    claim: s.PrivacyClaim
    release: s.NoisyRelease
    target: s.Statement

    @property
    def messages(self) -> bool:
        """Whether the observer sees each message."""
        return self.release.sight(self.target.observer) == s.MESSAGES

    @property
    def client_removed(self) -> bool:
        """Whether neighbours lack a whole client."""
        return self.target.adjacency == ADD_REMOVE and self.target.unit == s.CLIENT

    @property
    def stays(self) -> bool:
        """Whether a contributor is larger than the unit, and there without it."""
        return s.UNITS.index(self.release.contributor) > s.UNITS.index(self.target.unit)

    @cached_property
    def change(self) -> str:
        """What neighbours differ in, one of `CHANGES`."""
        if self.stays or self.target.adjacency == REPLACE:
            return REPLACED if self.stays or self.contributors == 1 else RESIZED
        return REMOVED if self.target.adjacency == ADD_REMOVE else ZEROED

    @property
    def contributors(self) -> int:
        """Contributors of one unit."""
        spread = self.claim.spread.get(self.target.unit)
        return spread.contributors if spread else 1

    @property
    def together(self) -> float:
        """How far they move what is seen, all together, over how far one of them does. Messages
        have Gaussian noise of their own each."""
        own = self.messages and self.release.contributor == s.CLIENT
        own &= self.release.noise.mechanism == s.GAUSSIAN
        return math.sqrt(self.contributors) if own else self.contributors

    @property
    def share(self) -> float:
        """Least probability of a contributor to take part: a batch may be of one more than all
        others."""
        sampling = self.release.sampling
        if sampling.rule in FIXED and self.change in FEWER:
            return sampling.batch / (sampling.of + 1)
        return sampling.share

    @property
    def rule(self) -> str:
        """The rule of sampling. A sample of all contributors is everything, if they stay: a batch
        of all others is one without the unit."""
        rule, all_drawn = self.release.sampling.rule, self.release.sampling.share == 1
        whole = all_drawn and (rule == s.POISSON or (rule in FIXED and self.change not in FEWER))
        return s.EVERYTHING if whole else rule

    @property
    def drawn(self) -> str:
        """When a sample is drawn, or `CAPPED`."""
        capped = self.release.participation < self.release.times
        return CAPPED if capped else self.release.sampling.drawn

    @cached_property
    def sample(self) -> str:
        """What the observer learns of the sample."""
        release, who = self.release, self.target.observer
        rule, added_by = self.rule, release.noise.added_by
        # A client that is not drawn by its coin sends neither a vector nor noise.
        absent = rule == s.POISSON and release.contributor == s.CLIENT
        silent = absent and added_by == s.BY_HOLDER
        if silent or (rule in SAMPLED and who not in release.sampling.hidden_from):
            return NAMED if self.client_removed else TOLD
        if absent and added_by == s.BY_CLIENTS:
            return BY_NOISE
        # A client knows its own place in a batch. Only data with one holder are surely not its own.
        alien = added_by == s.BY_HOLDER and release.scope != s.EVERYWHERE
        among = release.contributor == s.CLIENT or not alien
        own = rule == s.WITHOUT_REPLACEMENT and who == s.CLIENT and among
        counted = s.COUNTS in (release.weights, release.denominator)
        return SHOWN if own or counted or self.messages else HIDDEN

    @cached_property
    def noise(self) -> Noise | None:
        """The row of the noise that hides a contribution."""
        release, who = self.release, self.target.observer
        sight, added_by = release.sight(who), release.noise.added_by
        rows = (row for row in NOISE if added_by == row.added_by)
        return next((row for row in rows if sight in row.seen and who in row.observers), None)

    @property
    def deviation(self) -> float:
        """Deviation of the independent noise that hides a contribution."""
        noise = self.release.noise
        shares = self.noise.shares(noise.shares) if self.noise else 0
        # A sum of Laplace shares hides at least as much as one of them.
        return noise.deviation * (math.sqrt(shares) if noise.mechanism != s.LAPLACE else shares > 0)

    @property
    def twin(self) -> bool:
        """Whether the observer sees the same noise in another message: that of another client, or a
        release of another holder."""
        if self.release.noise.added_by == s.BY_CLIENTS:
            return self.messages and self.release.noise.shares > 1
        return any(
            other.scope != self.release.scope
            and other.noise.added_by == self.release.noise.added_by == s.BY_HOLDER
            and other.noise.generator == s.SHARED
            and other.times == self.release.times
            and other.sight(self.target.observer) != s.NOTHING
            for other in self.claim.releases
            if other
        )

    def proofs(self) -> list[Row]:
        """The rows that prove something, once every need is met."""
        return [row for row in PROOFS if row.fits(self)]

    def lacks(self) -> list[tuple[str, str]]:
        """Why nothing finite is proved: fields and texts."""
        found = [(field, why) for field, met, why in NEEDS if not met(self)]
        if not found and not self.proofs():
            why = "no rule covers {sampling.rule}, {0.drawn}, sample {0.sample}, {0.change}"
            found.append(("sampling.rule", why))
        shown = vars(self.release)
        return [(field, text.format(self, target=self.target, **shown)) for field, text in found]

    @property
    def one_differs(self) -> bool:
        """Whether neighbours differ by exactly one contribution, so that attacks are proofs."""
        bases = (self.release.weights, self.release.denominator)
        counts_change = s.COUNTS in bases and self.target.adjacency == ADD_REMOVE
        silent = self.client_removed and self.noise is not None and not self.noise.stays
        return not (self.stays or s.DATA_DEPENDENT in bases or counts_change or silent)

    def attacks(self) -> list[str]:
        """The attacks that reach a bound."""
        return [row.result for row in ATTACKS if self.one_differs and row.fits(self)]

    def cancelled(self) -> str:
        """The first attack that meets no noise, in words; empty if there is none."""
        found = (text for holds, text in CANCELLED if self.one_differs and holds(self))
        return next(found, "").format(target=self.target)


def _fixed(base: str, view: View) -> bool:
    """Whether neighbours have the same weights, or denominator. A user or client that replaces
    another one may have another number of records, as a record may have other copies."""
    several = view.target.unit != s.RECORD or view.contributors > 1
    changes = view.target.adjacency == ADD_REMOVE
    changes |= view.target.adjacency == REPLACE and several
    return base == s.FIXED or (base == s.COUNTS and not changes)


DEPENDS = "{%s}: it changes with the unit under {target.adjacency} of a {target.unit}"
NEEDS: tuple[tuple[str, Callable[[View], bool], str], ...] = (
    ("clip", lambda v: v.release.clip < math.inf, "nothing bounds a contribution"),
    (
        "noise.mechanism",
        lambda v: v.release.noise.mechanism in BOTH,
        "no noise hides a contribution",
    ),
    (
        "noise.generator",
        lambda v: v.release.noise.generator == s.INDEPENDENT,
        "noise is {noise.generator}: it can be computed or cancelled",
    ),
    (
        "noise.added_by",
        lambda v: v.release.noise.mechanism == s.NO_NOISE or v.deviation > 0,
        "the {target.observer} meets none of the noise ({noise.added_by})",
    ),
    (
        "noise.added_by",
        lambda v: not (v.client_removed and v.noise and not v.noise.stays),
        "a removed client sends no message and no noise, which shows under add/remove",
    ),
    ("weights", lambda v: _fixed(v.release.weights, v), DEPENDS % "weights"),
    ("denominator", lambda v: _fixed(v.release.denominator, v), DEPENDS % "denominator"),
)
"""What every proof needs: the field, whether it is met, and what happens without it."""

CANCELLED: tuple[tuple[Callable[[View], bool], str], ...] = (
    (lambda v: v.release.clip == math.inf, "one contribution can be larger than any noise"),
    (
        lambda v: v.release.noise.generator == s.PUBLIC,
        "the observer computes the noise from its seed",
    ),
    (
        lambda v: v.release.noise.generator == s.SHARED and v.twin,
        "the difference of two messages has no noise",
    ),
    (
        lambda v: v.release.noise.generator == s.SHARED and v.target.observer == s.CLIENT,
        "a client knows the noise of the others: it is its own",
    ),
    (
        lambda v: (
            v.release.noise.generator == s.REUSED and v.rule == s.EVERYTHING and v.release.times > 1
        ),
        "the difference of two releases has no noise",
    ),
    (lambda v: v.deviation == 0, "the {target.observer} sees contributions without noise"),
)
"""Attacks that meet no noise: when, and how."""
