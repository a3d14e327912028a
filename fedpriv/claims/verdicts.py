"""Verdicts: what a statement is worth, which field is responsible, and the smallest change that
would make it true."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from fedpriv.accountants.calibrate import most_rounds, smallest_noise
from fedpriv.accountants.events import ADD_REMOVE
from fedpriv.claims import schema as s
from fedpriv.claims.certificates import Certificate, certify
from fedpriv.claims.refutations import NO_ATTACK, Refutation, attack_bound
from fedpriv.errors import ConfigError

HOLDS = "holds"
HOLDS_ELSEWHERE = "holds for another adjacency or population"
NOT_SUPPORTED = "not supported"
NO_CERTIFICATE = "no certificate"

MOST_SEARCHED = 10
"""Different sampled releases up to which a change is searched for, by some fifty certificates."""
_ROUNDING = 1e-9
"""A certificate may exceed a claim by this share: claims are printed from floats too."""


@dataclass(frozen=True)
class Finding:
    """What one observer can learn, and what is said about it.

    observer, unit, adjacency, delta: the target.
    claimed: the stated epsilon; None for an observer that the statement does not name.
    certified: proved upper bound.
    attack: proved lower bound; its epsilon is 0 without an attack.
    verdict: one of the four texts above; "" without a stated epsilon.
    elsewhere: where the statement would hold; "" if nowhere or not needed.
    responsible: fields that keep it from holding.
    change: the smallest change that would make it true, by a field.
    questions: fields to answer before anything can be proved.
    """

    observer: str
    unit: str
    adjacency: str
    delta: float
    claimed: float | None
    certified: Certificate
    attack: Refutation
    verdict: str
    elsewhere: str = ""
    responsible: tuple[str, ...] = ()
    change: str = ""
    questions: tuple[s.Question, ...] = ()

    @property
    def refuted(self) -> bool:
        """Whether a proof shows that the statement is false, for neighbours in the worst case."""
        return self.claimed is not None and self.attack.epsilon > self.claimed * (1 + _ROUNDING)


def judge(claim: s.PrivacyClaim) -> list[Finding]:
    """Findings for every statement and observer, in the order of the file."""
    findings = []
    for number, statement in enumerate(claim.statements or (None,)):
        if statement is None:
            findings.append(_unanswered(claim, number))
        else:
            targets = (replace(statement, observer=observer) for observer in s.WHO)
            findings += [_finding(claim, target, statement) for target in targets]
    return findings


def _unanswered(claim: s.PrivacyClaim, number: int) -> Finding:
    """The finding for a statement that does not say what it promises. Its own questions come
    first."""
    own = f"claims.{number}."
    questions = tuple(sorted(claim.questions, key=lambda one: not one.path.startswith(own)))
    nothing = Certificate(math.inf, "", claim.questions)
    named = ("?", "?", "?", math.nan, None)
    return Finding(*named, nothing, NO_ATTACK, NO_CERTIFICATE, questions=questions)


def _finding(claim: s.PrivacyClaim, target: s.Statement, statement: s.Statement) -> Finding:
    certified = certify(claim, target)
    attack = attack_bound(claim, target)
    about = target.observer, target.unit, target.adjacency, target.delta
    if target != statement:
        return Finding(*about, None, certified, attack, "")
    if holds(certified, statement):
        return Finding(*about, statement.epsilon, certified, attack, HOLDS)
    elsewhere = "" if claim.questions else _elsewhere(claim, statement)
    refuted = attack.epsilon > statement.epsilon * (1 + _ROUNDING)
    if elsewhere:
        verdict = HOLDS_ELSEWHERE
    elif math.isfinite(certified.epsilon) or refuted:
        verdict = NOT_SUPPORTED
    else:
        verdict = NO_CERTIFICATE
    responsible, change = ((), "") if claim.questions else _repair(claim, statement)
    return Finding(
        *about,
        statement.epsilon,
        certified,
        attack,
        verdict,
        elsewhere,
        responsible or tuple(dict.fromkeys(reason.path for reason in certified.reasons)),
        change,
        claim.questions,
    )


def holds(certified: Certificate, statement: s.Statement) -> bool:
    """Whether the certificate proves the statement."""
    return certified.epsilon <= statement.epsilon * (1 + _ROUNDING)


def _elsewhere(claim: s.PrivacyClaim, statement: s.Statement) -> str:
    """Other adjacencies, then finer units, for which the same number is proved."""
    for adjacency in (ADD_REMOVE, s.ZERO_OUT):
        if adjacency != statement.adjacency:
            other = replace(statement, adjacency=adjacency)
            if holds(certify(claim, other), other):
                return f"{adjacency} of a {statement.unit}"
    for unit in s.UNITS[: s.UNITS.index(statement.unit)]:
        for adjacency in dict.fromkeys((statement.adjacency, *s.ADJACENCIES)):
            other = replace(statement, unit=unit, adjacency=adjacency)
            if unit in claim.spread and holds(certify(claim, other), other):
                return f"{adjacency} of a {unit}"
    return ""


def _repair(claim: s.PrivacyClaim, statement: s.Statement) -> tuple[tuple[str, ...], str]:
    """The fields that are responsible, and the smallest change.

    One field that repairs the statement alone comes first, then all repairable fields together,
    then more noise or fewer releases. Neither is searched for among very many releases.
    """
    sampled = {
        replace(release, name="")
        for release in claim.releases
        if release and release.sampling.rule != s.EVERYTHING
    }
    if len(sampled) > MOST_SEARCHED:
        return (), ""
    repairs = list(_repairs(claim, statement))
    together = claim
    for path, text, repaired in repairs:
        if holds(certify(repaired, statement), statement):
            return (path,), f"{path}: {text}"
        others = (other for at, _, other in _repairs(together, statement) if at == path)
        together = next(others, together)
    paths = tuple(path for path, _, _ in repairs)
    words = [f"{path}: {text}" for path, text, _ in repairs]
    found, change = _more_noise(claim, statement)
    if not found and paths:
        if holds(certify(together, statement), statement):
            return paths, "; ".join(words)
        found, change = _more_noise(together, statement)
        return (paths + found, "; ".join([*words, change])) if found else ((), "")
    return found, change


def _repairs(
    claim: s.PrivacyClaim, statement: s.Statement
) -> Iterator[tuple[str, str, s.PrivacyClaim]]:
    """Changes of one field each: path, new value, claim."""
    for number, release in claim.seen_by(statement.observer):
        for field, text, other in _release_repairs(release):
            yield f"releases.{number}.{field}", text, _with_release(claim, number, other)
    spread = claim.spread.get(statement.unit)
    for name in ("contributors", "scopes"):
        if spread and getattr(spread, name) > 1:
            units = claim.spread | {statement.unit: replace(spread, **{name: 1})}
            yield f"population.{statement.unit}.{name}", "1", replace(claim, spread=units)
    if claim.choices:
        yield "choices", "none", replace(claim, choices=())
    if not claim.complete:
        yield "complete", "true, with every other release listed", replace(claim, complete=True)


def _release_repairs(release: s.NoisyRelease) -> Iterator[tuple[str, str, s.NoisyRelease]]:
    noise, sampling = release.noise, release.sampling
    if noise.mechanism != s.NO_NOISE and noise.generator != s.INDEPENDENT:
        other = replace(noise, generator=s.INDEPENDENT)
        yield "noise.generator", s.INDEPENDENT, replace(release, noise=other)
    if release.tensors > 1:
        yield "tensors", "1 (clip jointly)", replace(release, tensors=1)
    for field in ("weights", "denominator"):
        if getattr(release, field) != s.FIXED:
            changes: dict[str, Any] = {field: s.FIXED}
            yield field, s.FIXED, replace(release, **changes)
    if sampling.drawn == s.ONCE:
        each = replace(sampling, drawn=s.EACH_TIME)
        yield "sampling.drawn", s.EACH_TIME, replace(release, sampling=each)
    if sampling.rule in (s.WITHOUT_REPLACEMENT, s.SHUFFLED):
        rate = sampling.batch / sampling.of
        fresh = s.ReleaseSampling(s.POISSON, rate, hidden_from=s.WHO)
        changed = replace(release, sampling=fresh, participation=release.times)
        yield "sampling.rule", f"{s.POISSON}, rate {rate:.4g}", changed


def _more_noise(claim: s.PrivacyClaim, statement: s.Statement) -> tuple[tuple[str, ...], str]:
    """How much more noise, or how many fewer releases, the statement needs."""
    if not math.isfinite(certify(claim, statement).epsilon):
        return (), ""
    try:
        factor = smallest_noise(
            lambda factor: certify(_scaled(claim, factor), statement).epsilon,
            statement.epsilon,
            near=2.0,
        )
    except ConfigError:
        return (), ""
    seen = claim.seen_by(statement.observer)
    paths = tuple(f"releases.{number}.noise.deviation" for number, _ in seen)
    change = f"noise.deviation: {_larger(factor)} times as large"
    if len(seen) == 1:
        [(number, release)] = seen
        fewer = most_rounds(
            lambda times: certify(_shorter(claim, number, release, times), statement).epsilon,
            statement.epsilon,
            limit=10**6,
        )
        if fewer:
            paths += (f"releases.{number}.times",)
            change += f", or releases.{number}.times: {fewer}"
    return paths, change


def _larger(factor: float) -> str:
    """A factor with four digits, rounded up."""
    digits = 3 - math.floor(math.log10(factor))
    return f"{math.ceil(factor * 10**digits) / 10**digits:.4g}"


def _scaled(claim: s.PrivacyClaim, factor: float) -> s.PrivacyClaim:
    releases = tuple(
        replace(release, noise=replace(release.noise, deviation=release.noise.deviation * factor))
        for release in claim.releases
        if release
    )
    return replace(claim, releases=releases)


def _shorter(
    claim: s.PrivacyClaim, number: int, release: s.NoisyRelease, times: int
) -> s.PrivacyClaim:
    """The claim with so many releases of one entry, and a share of its participation."""
    share = math.ceil(times * release.participation / release.times)
    return _with_release(claim, number, replace(release, times=times, participation=share))


def _with_release(claim: s.PrivacyClaim, number: int, release: s.NoisyRelease) -> s.PrivacyClaim:
    """The claim with another release of this number."""
    releases = (*claim.releases[:number], release, *claim.releases[number + 1 :])
    return replace(claim, releases=releases)
