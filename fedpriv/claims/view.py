"""A release as the observer of a statement sees it: what neighbours differ in, what is learned of
the sample, and which noise hides a contribution.

`fedpriv.claims.rules` says what follows for proofs and attacks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from fedpriv.accountants.events import ADD_REMOVE, RELEASED_MODEL, REPLACE, SERVER
from fedpriv.claims import schema as s

REMOVED, ZEROED, REPLACED, RESIZED = CHANGES = ("removed", "zeroed", "replaced", "resized")
"""Contributors of the unit are absent, send a zero vector, send another vector, or send another one
and are others in number. One that is larger than the unit is replaced under every adjacency."""
FEWER = (REMOVED, RESIZED)
"""Changes of the number of contributors."""
FIXED, SAMPLED = (s.WITHOUT_REPLACEMENT,), (s.POISSON, s.WITHOUT_REPLACEMENT)
"""Rules of sampling: batches of a fixed size; these and coins."""

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

    @property
    def one_differs(self) -> bool:
        """Whether neighbours differ by exactly one contribution, so that attacks are proofs."""
        bases = (self.release.weights, self.release.denominator)
        counts_change = s.COUNTS in bases and self.target.adjacency == ADD_REMOVE
        silent = self.client_removed and self.noise is not None and not self.noise.stays
        return not (self.stays or s.DATA_DEPENDENT in bases or counts_change or silent)
