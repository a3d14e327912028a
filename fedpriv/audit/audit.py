"""The audit of one experiment: certificates and claims beside what an attack on its own code proves."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.accountants.events import REPLACE, Event
from fedpriv.accountants.ledger import EpsilonRow
from fedpriv.audit.bounds import Bound, lower_bound
from fedpriv.audit.canary import canaries
from fedpriv.audit.families import Family, family_of, sampling_of
from fedpriv.audit.watch import Attack, Revise, prepared_attack
from fedpriv.config import Experiment
from fedpriv.deployment import Deployment
from fedpriv.epsilon import Planned

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fedpriv.audit.guessing import GuessBound

CONFIDENCE = 0.95
"""With which each lower bound holds."""


@dataclass(frozen=True)
class Effort:
    """How long an audit may take: `seconds` of trials, at most `trials` of each world, and 20 of each at least."""

    seconds: float
    trials: int


QUICK, THOROUGH = Effort(30.0, 2000), Effort(300.0, 20_000)
FEWEST = 20


@dataclass(frozen=True)
class AuditRow:
    """Epsilons against one observer after all rounds, at the accountant's delta.

    certified: a guarantee. claimed: by the paper, None where it claims nothing. bound: what the attack
    proves. assumed: of which mechanisms its larger number holds. estimate: no bound, but what the audit in one run
    expects epsilon to be.
    """

    algorithm: str
    observer: str
    unit: str
    adjacency: str
    rounds: int
    certified: float
    claimed: float | None
    bound: Bound | GuessBound
    assumed: str
    estimate: float | None = None

    @property
    def alarm(self) -> bool:
        """Whether the certificate is false, with the bound's confidence."""
        return self.bound.audited > self.certified


@dataclass(frozen=True)
class Subject:
    """One kind of unit that certificates speak of.

    run: the deployment of the experiment itself. events: those of one round that speak of the unit, of all observers.
    rows: the tightest certificate of each observer after all rounds. families: by observer, what the certificate says
    the releases are.
    """

    unit: str
    adjacency: str
    run: Deployment
    events: list[Event]
    rows: list[EpsilonRow]
    families: dict[str, Family | None]


def subjects(exp: Experiment, colluding: int) -> list[Subject]:
    """Every unit that certificates speak of, where `colluding` curious silos share what they know."""
    planned = _colluding(Planned.of(exp), colluding)
    rows = _tightest(planned.rows_at([exp.options.rounds]))
    events = [event for query in exp.algo.queries(1, planned.deployment) for event in query.events]
    found = []
    for about in dict.fromkeys((row.unit, row.adjacency) for row in rows):
        of_unit = [row for row in rows if (row.unit, row.adjacency) == about]
        own = [event for event in events if (event.unit, event.adjacency) == about]
        families = {
            row.observer: family_of((e for e in own if e.observer == row.observer), exp.options.rounds)
            for row in of_unit
        }
        found.append(Subject(*about, planned.deployment, own, of_unit, families))
    return found


def audit(exp: Experiment, effort: Effort, *, colluding: int = 1) -> list[AuditRow]:
    """Attack every unit that certificates speak of. colluding: curious silos that share what they know."""
    found = []
    units = subjects(exp, colluding)
    for subject in units:
        share = replace(effort, seconds=effort.seconds / len(units))
        scores = _trials(_attack(exp, subject, colluding), share, exp.options.seed)
        for row in subject.rows:
            family = subject.families[row.observer]
            bound = lower_bound(*scores[row.observer], delta=exp.accountant.delta, confidence=CONFIDENCE, family=family)
            found.append(audit_row(exp, row, bound, family))
    return found


def audit_row(
    exp: Experiment, row: EpsilonRow, bound: Bound | GuessBound, family: Family | None, estimate: float | None = None
) -> AuditRow:
    """The line of one observer. family: that of its certificate."""
    about = exp.algo.label, row.observer, row.unit, row.adjacency, row.round
    within = family is not None and (bound.within or 0.0) > bound.epsilon
    assumed = family.name if family and within else "any mechanism"
    return AuditRow(*about, row.certified, row.claimed, bound, assumed, estimate)


def _colluding(planned: Planned, silos: int) -> Planned:
    """The same plans where every observer who knows noise shares knows those of so many silos."""
    trust = planned.deployment.trust
    observers = tuple(replace(o, own_shares=silos if o.own_shares else 0) for o in trust.observers)
    deployment = replace(planned.deployment, trust=replace(trust, observers=observers))
    return replace(planned, deployment=deployment)


def _tightest(rows: Iterable[EpsilonRow]) -> list[EpsilonRow]:
    """Of the methods that certify the same, the one with the smallest epsilon."""
    best: dict[tuple[str, str, str], EpsilonRow] = {}
    for row in rows:
        key = row.observer, row.unit, row.adjacency
        if key not in best or row.certified < best[key].certified:
            best[key] = row
    return list(best.values())


def noised_like(run: Deployment) -> Revise:
    """A canary's deployment with the run's mechanisms: noise that is calibrated to what is known of the model must be
    the run's, not the canary's."""

    def revise(deployment: Deployment) -> Deployment:
        channels = {n: replace(c, mechanism=run.channels[n].mechanism) for n, c in deployment.channels.items()}
        return replace(deployment, channels=channels)

    return revise


def _attack(exp: Experiment, subject: Subject, colluding: int) -> Attack:
    """The attack with the canary that is farthest from its absence."""
    candidates = canaries(exp, subject.unit, subject.adjacency == REPLACE)
    attacks = [prepared_attack(exp, canary, noised_like(subject.run), colluding) for canary in candidates]
    farthest = max(attack.length for attack in attacks)
    best = next(attack for attack in attacks if attack.length >= farthest * (1 - 1e-6))
    return replace(best, sampling=sampling_of(subject.events))


def _trials(attack: Attack, effort: Effort, seed: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Scores without and with the canary, by observer: fresh runs until the time is up. Which comes first never
    depends on scores, so trials stay independent."""
    scores: tuple[list[dict[str, float]], list[dict[str, float]]] = ([], [])
    end = time.monotonic() + effort.seconds
    for trial in range(effort.trials):
        if trial >= FEWEST and time.monotonic() > end:
            break
        for present in (False, True):
            scores[present].append(attack.scores(present, (seed + 1) * 2**40 + 2 * trial + present))
    return {
        name: (np.array([score[name] for score in scores[0]]), np.array([score[name] for score in scores[1]]))
        for name in attack.direction
    }
