"""The audit of one experiment: certificates and claims beside what an attack on its own code
proves."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fedpriv.accountants.ledger import EpsilonRow
from fedpriv.audit.bounds import Bound, lower_bound
from fedpriv.audit.families import Family, family_of
from fedpriv.audit.trials import Effort, chosen_attack, trials
from fedpriv.runs.epsilon_forecast import EpsilonForecast
from fedpriv.settings.experiment import Experiment

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fedpriv.accountants.events import Event
    from fedpriv.audit.guessing import GuessBound
    from fedpriv.rounds.plan import Plan

CONFIDENCE = 0.95
"""With which each lower bound holds."""


QUICK = Effort(20.0, 3000)
THOROUGH = Effort(300.0, 30_000)


@dataclass(frozen=True)
class AuditRow:
    """Epsilons against one observer after all rounds, at the accountant's delta.

    certified: a guarantee.
    claimed: by the paper, None where it claims nothing.
    bound: what the attack proves.
    assumed: of which mechanisms its larger number holds.
    estimate: no bound, but what the audit in one run expects epsilon to be.
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

    run: the plan of the experiment itself.
    events: those of one round that speak of the unit, of all observers.
    rows: the tightest certificate of each observer after all `rounds`.
    """

    unit: str
    adjacency: str
    run: Plan
    rounds: int
    events: list[Event]
    rows: list[EpsilonRow]

    def family(self, observer: str, silo: int | None = None) -> Family | None:
        """What certificates say the releases to an observer are, for units of one silo or of
        any.
        """
        return family_of(
            [event for event in self.events if event.observer == observer], self.rounds, silo
        )


def subjects(exp: Experiment, colluding: int) -> list[Subject]:
    """Every unit that certificates speak of, where `colluding` curious silos share what they
    know.
    """
    planned = _colluding(EpsilonForecast.of(exp), colluding)
    rounds = exp.options.rounds
    rows = _tightest(planned.rows_at([rounds]))
    events = [event for query in exp.algo.queries(1, planned.plan) for event in query.events]
    found = []
    for about in dict.fromkeys((row.unit, row.adjacency) for row in rows):
        own = [event for event in events if (event.unit, event.adjacency) == about]
        of_unit = [row for row in rows if (row.unit, row.adjacency) == about]
        found.append(Subject(*about, planned.plan, rounds, own, of_unit))
    return found


def audit(exp: Experiment, effort: Effort, *, colluding: int = 1) -> list[AuditRow]:
    """Attack every unit that certificates speak of.

    colluding: curious silos that share what they know.
    """
    found = []
    units = subjects(exp, colluding)
    for subject in units:
        share = replace(effort, seconds=effort.seconds / len(units))
        with closing(chosen_attack(exp, subject.run, subject.events, share, colluding)) as attack:
            scores = trials(attack, share, 2**40 * (exp.options.seed + 1))
        for row in subject.rows:
            family = subject.family(row.observer, attack.canaries.silo)
            bound = lower_bound(
                *scores[row.observer],
                delta=exp.accountant.delta,
                confidence=CONFIDENCE,
                family=family,
            )
            found.append(audit_row(exp, row, bound, family))
    return found


def audit_row(
    exp: Experiment,
    row: EpsilonRow,
    bound: Bound | GuessBound,
    family: Family | None,
    estimate: float | None = None,
) -> AuditRow:
    """The line of one observer.

    family: that of its certificate.
    """
    about = exp.algo.label, row.observer, row.unit, row.adjacency, row.round
    within = family is not None and (bound.within or 0.0) > bound.epsilon
    assumed = family.name if family and within else "any mechanism"
    return AuditRow(*about, row.certified, row.claimed, bound, assumed, estimate)


def _colluding(planned: EpsilonForecast, silos: int) -> EpsilonForecast:
    """The same plans where every observer who knows noise shares knows those of so many silos."""
    threat_model = planned.plan.threat_model
    observers = tuple(
        replace(o, own_shares=silos if o.own_shares else 0) for o in threat_model.observers
    )
    plan = replace(planned.plan, threat_model=replace(threat_model, observers=observers))
    return replace(planned, plan=plan)


def _tightest(rows: Iterable[EpsilonRow]) -> list[EpsilonRow]:
    """Of the methods that certify the same, the one with the smallest epsilon."""
    best: dict[tuple[str, str, str], EpsilonRow] = {}
    for row in rows:
        key = row.observer, row.unit, row.adjacency
        if key not in best or row.certified < best[key].certified:
            best[key] = row
    return list(best.values())
