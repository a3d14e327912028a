"""The epsilon that an attack on the described releases reaches: a lower bound, with a proof.

The neighbours are those that a worst case allows: all other contributions are zero, and the
contribution of the unit lies on the bound, in one direction. What the observer sees then has a
known distribution, and the bound is its exact epsilon. `fedpriv.claims.rules.ATTACKS` says which
releases allow which attack; `CANCELLED` lists noise that can be computed or cancelled.

Releases that the bound does not use are ignored, as an attacker may do. A unit inside a larger
contributor has no such bound, since its influence depends on the local training.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from fedpriv.accountants.pld import gaussian_epsilon
from fedpriv.claims import schema as s
from fedpriv.claims.curves import drawn_epsilon, optimistic_epsilon
from fedpriv.claims.rules import GAP, MOVED, OPEN, PASSES, SAMPLE, attacks, cancelled
from fedpriv.claims.view import View


@dataclass(frozen=True)
class Refutation:
    """What an attack reaches.

    epsilon: lower bound; 0 without an attack.
    how: the attack, in words.
    """

    epsilon: float
    how: str


NO_ATTACK = Refutation(0.0, "")


def attack_bound(claim: s.PrivacyClaim, target: s.Statement) -> Refutation:
    """The best lower bound for `target`. Releases with open questions are ignored.

    None if a choice was made on protected data: it may have changed the described values, such as a
    clipping bound.
    """
    if claim.choices or any(question.path == "choices" for question in claim.questions):
        return NO_ATTACK
    found = [NO_ATTACK]
    gaps: dict[str, float] = {}
    for _, release in claim.seen_by(target.observer):
        view = View(claim, release, target)
        found += [*_noiseless(view), *_curves(view)]
        gaps[release.scope] = math.hypot(gaps.get(release.scope, 0.0), _gap(view))
    everywhere = gaps.pop(s.EVERYWHERE, 0.0)
    gap = max((math.hypot(everywhere, gap) for gap in gaps.values()), default=everywhere)
    how = f"the unit's contributions all point one way: {gap:.4g} deviations in all"
    found.append(Refutation(gaussian_epsilon(gap, target.delta), how))
    return max(found, key=lambda one: one.epsilon)


def _noiseless(view: View) -> Iterator[Refutation]:
    """An attack that meets no noise. It sees the unit whenever that takes part, so that no epsilon
    is possible if this happens more often than delta."""
    # Another release may have one sample for all times.
    each = view.release.sampling.drawn == s.EACH_TIME
    tries = view.release.participation if each else 1
    ever = -math.expm1(tries * math.log1p(-view.share)) if view.share < 1 else 1.0
    if ever > view.target.delta and (how := cancelled(view)):
        yield Refutation(math.inf, how)


def _gap(view: View) -> float:
    """How far the unit moves the unsampled Gaussian releases, in deviations."""
    release, noise, sampling = view.release, view.release.noise, view.release.sampling
    reached = attacks(view)
    if noise.mechanism != s.GAUSSIAN or release.clip == math.inf:
        return 0.0
    count = float(release.participation if noise.generator != s.REUSED else 1)
    if PASSES in reached:
        # The sum of all batches of a pass has the unit once, and the noise of every batch.
        # A pass may leave out those who do not fill a batch.
        if sampling.of % sampling.batch:
            return 0.0
        steps = sampling.of // sampling.batch
        count = min(release.participation, release.times // steps) / steps
    elif GAP not in reached:
        return 0.0
    deviation = view.deviation
    if noise.generator == s.SHARED and noise.added_by == s.BY_CLIENTS and not view.messages:
        deviation = noise.deviation * noise.shares  # the shares are equal
    return math.sqrt(count) * _moved(view) / deviation if deviation else math.inf


def _moved(view: View) -> float:
    """How far the unit moves the sum: from a zero vector, or from its opposite."""
    return view.release.bound * (1 + (view.change in MOVED))


def _curves(view: View) -> Iterator[Refutation]:
    """The exact curves of one release entry with independent noise."""
    release, sampling, delta = view.release, view.release.sampling, view.target.delta
    if release.noise.generator != s.INDEPENDENT or not view.deviation or release.clip == math.inf:
        return
    reached, count, moved = attacks(view), release.times, _moved(view) / view.deviation
    if release.noise.mechanism == s.LAPLACE:
        if delta < view.share and {GAP, OPEN} & {*reached}:
            epsilon = moved + 2 * math.log1p(-delta / view.share)
            yield Refutation(max(0.0, epsilon), "the exact curve of one Laplace release")
        return
    once = count if sampling.drawn != s.EACH_TIME else 1  # so many releases have one sample
    if OPEN in reached:
        sample = (view.share, count // once, math.sqrt(once) * moved)
        how = "the unit's releases are known, and its contributions all point one way"
        yield Refutation(drawn_epsilon(0.0, (sample,), delta, up=False), how)
    if SAMPLE in reached:
        ratio = view.deviation / release.bound
        ways = {once, 1} if sampling.drawn == s.TOGETHER else {once}
        bounds = (
            optimistic_epsilon(view.share, ratio / math.sqrt(one), count // one, delta)
            for one in ways
        )
        yield Refutation(min(bounds), "the unit is sampled, and its contributions point one way")
