"""What neighbours show beside a sum: where nothing is proved, what samples prove, and attacks.

Every rule is a line: a condition on a release as an observer of a statement sees it, and what
follows. Only this module reads who adds noise, who learns what, and which counts are public.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from fedpriv.accountants.events import ADD_REMOVE, REPLACE, SERVER
from fedpriv.claims import schema as s

LARGEST_GROUP = 1000
"""Contributors of a unit up to which samples of a group are accounted."""
SMALLEST_SAMPLED = 0.01
"""Noise below which samples count as everything: the curves leave the grids, and a release costs
thousands either way."""


@dataclass(frozen=True)
class View:
    """A release as the observer of a statement sees it, and how its neighbours differ.

    release: the release.
    target: unit, adjacency and observer.
    """

    release: s.NoisyRelease
    target: s.Statement

    @property
    def noised(self) -> bool:
        """Whether there is any noise."""
        return self.release.noise.mechanism != s.NO_NOISE

    @property
    def messages(self) -> bool:
        """Whether the observer sees each message."""
        return self.release.sight(self.target.observer) == s.MESSAGES

    @property
    def removed(self) -> bool:
        """Whether neighbours lack the unit."""
        return self.target.adjacency == ADD_REMOVE

    @property
    def replaced(self) -> bool:
        """Whether neighbours have another unit in its place."""
        return self.target.adjacency == REPLACE

    @property
    def counted(self) -> bool:
        """Whether a count shows in weights or denominator."""
        return s.COUNTS in (self.release.weights, self.release.denominator)

    @property
    def counts_change(self) -> bool:
        """Whether neighbours differ in counts. Who replaces a user or a client may have another
        number of records."""
        return self.removed or (self.replaced and self.target.unit != s.RECORD)

    @property
    def stays(self) -> bool:
        """Whether a contributor is still there without the unit, with another vector."""
        return s.UNITS.index(self.release.contributor) > s.UNITS.index(self.target.unit)

    @property
    def capped(self) -> bool:
        """Whether a contributor takes part in some releases only, whatever is sampled."""
        return self.release.participation < self.release.times

    @property
    def repeats(self) -> bool:
        """Whether a contributor is in several releases for sure."""
        everything = self.release.sampling.rule == s.EVERYTHING
        return everything and not self.capped and self.release.times > 1

    @property
    def knows_whether_chosen(self) -> bool:
        """Whether a client knows whether it or a record of its own was chosen, which tells it about
        the others. Only data with one holder are surely not its own; another scope can be several
        clients."""
        release = self.release
        alien = release.noise.added_by == s.BY_HOLDER and release.scope != s.EVERYWHERE
        among = release.contributor == s.CLIENT or not alien
        return self.target.observer == s.CLIENT and among

    @property
    def own_noise(self) -> bool:
        """Whether who holds data adds noise too, which is missing with them."""
        return self.release.noise.added_by in (s.BY_CLIENTS, s.BY_HOLDER)

    @property
    def share_shows(self) -> bool:
        """Whether a client that is chosen shows by its share of noise."""
        own = self.release.noise.added_by == s.BY_CLIENTS
        return own and self.release.contributor == s.CLIENT

    @property
    def share(self) -> float:
        """Probability that a contributor takes part in one release."""
        sampling = self.release.sampling
        if sampling.rule == s.POISSON:
            return sampling.rate
        return sampling.batch / sampling.of if sampling.rule == s.WITHOUT_REPLACEMENT else 1.0

    @property
    def deviation(self) -> float:
        """Deviation of the independent noise that hides a contribution."""
        noise, observer = self.release.noise, self.target.observer
        if noise.added_by == s.BY_HOLDER:
            return noise.deviation
        if noise.added_by == s.BY_CLIENTS:
            shares = 1 if self.messages else noise.shares - (observer == s.CLIENT)
            scale = math.sqrt(shares) if noise.mechanism == s.GAUSSIAN else min(shares, 1)
            return noise.deviation * scale
        unseen = not self.messages and not (noise.added_by == s.BY_SERVER and observer == SERVER)
        return noise.deviation if unseen else 0.0

    @property
    def unknown_deviation(self) -> float:
        """Deviation of the noise that the observer cannot compute; of equal shares if clients
        share it."""
        noise = self.release.noise
        shared = noise.generator == s.SHARED and noise.added_by == s.BY_CLIENTS
        if shared and self.release.sight(self.target.observer) == s.SUM:
            return noise.deviation * noise.shares
        return self.deviation


Condition = Callable[[View], bool]

OBSTACLES: tuple[tuple[str, Condition, str], ...] = (
    ("clip", lambda v: v.release.clip == math.inf, "nothing bounds a contribution"),
    (
        "noise.mechanism",
        lambda v: v.release.noise.mechanism == s.NO_NOISE,
        "no noise hides a contribution",
    ),
    (
        "noise.generator",
        lambda v: v.noised and v.release.noise.generator != s.INDEPENDENT,
        "noise is {noise.generator}: it can be computed or cancelled",
    ),
    (
        "noise.added_by",
        lambda v: v.noised and v.release.noise.generator == s.INDEPENDENT and v.deviation == 0,
        "the {target.observer} meets none of the noise ({noise.added_by})",
    ),
    (
        "weights",
        lambda v: v.release.weights == s.DATA_DEPENDENT,
        "it is computed from protected data, and may show them",
    ),
    (
        "denominator",
        lambda v: v.release.denominator == s.DATA_DEPENDENT != v.release.weights,
        "it is computed from protected data, and may show them",
    ),
    (
        "weights",
        lambda v: v.counts_change and v.release.weights == s.COUNTS,
        "counts change under {target.adjacency} of a {target.unit}",
    ),
    (
        "denominator",
        lambda v: v.counts_change and v.release.denominator == s.COUNTS != v.release.weights,
        "counts change under {target.adjacency} of a {target.unit}",
    ),
    (
        "sampling.rule",
        lambda v: v.removed and v.release.sampling.rule == s.SHUFFLED,
        "the number and sizes of batches change under add/remove",
    ),
    (
        "participation",
        lambda v: v.removed and v.release.sampling.rule == s.WITHOUT_REPLACEMENT and v.capped,
        "whom a removed contributor leaves its places to takes part in fewer later batches",
    ),
    (
        "noise.added_by",
        lambda v: v.removed and v.target.unit == s.CLIENT and (v.own_noise or v.messages),
        "a removed client sends no message and no noise, which shows under add/remove",
    ),
)
"""Why nothing finite is proved: the field, when, and what it prevents."""


def obstacles(view: View) -> list[tuple[str, str]]:
    """Why nothing finite is proved for one release: fields and texts."""
    return [
        (field, text.format(noise=view.release.noise, target=view.target))
        for field, holds, text in OBSTACLES
        if holds(view)
    ]


AMPLIFIED: dict[str, Condition] = {
    # Who takes part must not show in a count, nor in how much noise there is.
    s.POISSON: lambda v: not (v.replaced or v.counted or v.share_shows or v.stays),
    # Contributors of different sizes show in a count who they are.
    s.WITHOUT_REPLACEMENT: lambda v: not (v.removed or v.counted or v.knows_whether_chosen),
}
"""When the samples of a rule hide who takes part."""


def amplifies(view: View, spread: s.UnitSpread) -> bool:
    """Whether a theorem lets the samples of a release count. Two releases of one sample show the
    unit at once."""
    release, sampling = view.release, view.release.sampling
    hidden = view.target.observer in sampling.hidden_from
    hidden &= release.sight(view.target.observer) == s.SUM
    whole = hidden and not view.capped and sampling.drawn != s.TOGETHER
    if not whole or view.deviation < SMALLEST_SAMPLED * release.bound:
        return False
    fresh = sampling.rule == s.POISSON and sampling.drawn == s.EACH_TIME
    group = fresh and release.noise.mechanism == s.GAUSSIAN
    fits = spread.contributors <= (LARGEST_GROUP if group else 1)
    return fits and sampling.rule in AMPLIFIED and AMPLIFIED[sampling.rule](view)


def attackable(view: View) -> bool:
    """Whether neighbours differ by exactly one contribution on the bound. With a client that does
    not take part, its noise is missing too: another pair of curves."""
    release = view.release
    fewer = view.own_noise and view.removed and view.target.unit == s.CLIENT
    fewer |= view.share_shows and release.sampling.rule == s.POISSON
    dependent = s.DATA_DEPENDENT in (release.weights, release.denominator)
    return not (view.stays or dependent or fewer or (view.counted and view.removed))


CANCELLED: tuple[tuple[Callable[[View, s.PrivacyClaim], bool], str], ...] = (
    (lambda v, claim: not v.noised, "the release has no noise"),
    (lambda v, claim: v.release.clip == math.inf, "one contribution can be larger than any noise"),
    (
        lambda v, claim: v.release.noise.generator == s.PUBLIC,
        "the observer computes the noise from its seed",
    ),
    (
        lambda v, claim: v.release.noise.generator == s.SHARED and _second_message(v, claim),
        "the difference of two messages has no noise",
    ),
    (
        lambda v, claim: v.release.noise.generator == s.SHARED and v.target.observer == s.CLIENT,
        "a client knows the noise of the others: it is its own",
    ),
    (
        lambda v, claim: v.release.noise.generator == s.REUSED and v.repeats,
        "the difference of two releases has no noise",
    ),
    (
        lambda v, claim: v.unknown_deviation == 0,
        "the {target.observer} sees contributions without noise",
    ),
)
"""Attacks that meet no noise."""


def cancelled(view: View, claim: s.PrivacyClaim) -> str:
    """The first attack that meets no noise, in words; empty if there is none."""
    found = (text for holds, text in CANCELLED if holds(view, claim))
    return next(found, "").format(target=view.target)


def _second_message(view: View, claim: s.PrivacyClaim) -> bool:
    """Whether the observer sees another message with the same noise."""
    release = view.release
    if release.noise.added_by != s.BY_HOLDER:
        return view.messages and release.noise.shares > 1
    return any(
        other.scope != release.scope
        and other.noise.added_by == s.BY_HOLDER
        and other.noise.generator == s.SHARED
        and other.times == release.times
        and other.sight(view.target.observer) != s.NOTHING
        for other in claim.releases
        if other
    )
