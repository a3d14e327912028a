"""The rules for claims: what is proved about a release, what an attack reaches, and why.

A release is looked at as the observer of a statement sees it (`fedpriv.claims.view`). Certificate,
reasons and attacks read these tables and nothing else:

- `NEEDS`: what every proof needs, field by field, and `view.NOISE`: how much noise hides a
  contribution;
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

from fedpriv.accountants.events import ADD_REMOVE, REPLACE
from fedpriv.claims import schema as s
from fedpriv.claims.view import (
    CAPPED,
    CHANGES,
    FEWER,
    FIXED,
    HIDDEN,
    LEARNED,
    REMOVED,
    REPLACED,
    RESIZED,
    SAMPLED,
    SHOWN,
    TOLD,
    ZEROED,
    View,
)

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
ALL, COINS, SHUFFLED = (s.EVERYTHING,), (s.POISSON,), (s.SHUFFLED,)
ABSENT, KEPT, OTHER, MOVED = (REMOVED, ZEROED), (ZEROED, REPLACED), (REPLACED,), (REPLACED, RESIZED)
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


def proofs(view: View) -> list[Row]:
    """The rows that prove something of a release, once every need is met."""
    return [row for row in PROOFS if row.fits(view)]


def lacks(view: View) -> list[tuple[str, str]]:
    """Why nothing finite is proved of a release: fields and texts."""
    found = [(field, why) for field, met, why in NEEDS if not met(view)]
    if not found and not proofs(view):
        why = "no rule covers {sampling.rule}, {0.drawn}, sample {0.sample}, {0.change}"
        found.append(("sampling.rule", why))
    shown = vars(view.release)
    return [(field, text.format(view, target=view.target, **shown)) for field, text in found]


def attacks(view: View) -> list[str]:
    """The attacks on a release that reach a bound."""
    return [row.result for row in ATTACKS if view.one_differs and row.fits(view)]


def cancelled(view: View) -> str:
    """The first attack on a release that meets no noise, in words; empty if there is none."""
    found = (text for holds, text in CANCELLED if view.one_differs and holds(view))
    return next(found, "").format(target=view.target)
