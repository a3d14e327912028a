"""The audit of one experiment: what an attack proves, beside certificates and claims."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from fedpriv.accountants.events import Event
from fedpriv.accountants.ledger import EpsilonRow, tightest
from fedpriv.audit.attack import ALL_ROUNDS
from fedpriv.audit.bounds import Bound, lower_bound
from fedpriv.audit.candidates import round_events
from fedpriv.audit.families import Family, family_of
from fedpriv.audit.premises import Unit, file_premises, run_noise, run_samples
from fedpriv.audit.progress import AuditProgress
from fedpriv.audit.trials import Effort, chosen_attack, trials
from fedpriv.rounds.plan import Plan
from fedpriv.runs.epsilon_forecast import EpsilonForecast, with_solved_noise
from fedpriv.settings.experiment import Experiment
from fedpriv.testing.premise import Premise, sharing_level

CONFIDENCE = 0.95
"""Confidence of each lower bound."""
PREMISE_SHARE = 0.5
"""Time that the measurement of samples takes, as a share of that of the trials."""
NOISE_SHARE = 1.0
"""The same for noise, in processor time."""
FILE_SHARE = 0.125
"""The same for the distances of units of each file."""
NOISE_VALUES = 70
"""Noise values for each trial: with 3000 trials a standard deviation is known to 0.16 %."""
QUICK = Effort(20.0, 3000)
THOROUGH = Effort(300.0, 30_000)


@dataclass(frozen=True, kw_only=True)
class AuditRow(EpsilonRow):
    """A certificate beside what an attack proves, at the accountant's delta.

    algorithm: label of the method.
    bound: what the attack proves.
    family: family of the certificate's curve; None if it has none.
    estimate: expected epsilon from an audit in one run, which proves nothing; None otherwise.
    estimate_low, estimate_high: ends of its interval; NaN without one.
    metric: the scores that the bound is made of.
    premises: what the certificate assumes, measured.
    """

    algorithm: str
    bound: Bound
    family: Family | None
    estimate: float | None = None
    estimate_low: float | None = None
    estimate_high: float | None = None
    metric: str = ALL_ROUNDS
    premises: tuple[Premise, ...] = ()

    @property
    def refuted(self) -> bool:
        """Whether the bound refutes the certificate, with the bound's confidence."""
        return self.bound.audited > self.certified

    @property
    def broken(self) -> tuple[Premise, ...]:
        """The assumptions of the certificate that the measurements refute."""
        return tuple(premise for premise in self.premises if premise.alarm)

    @property
    def alarm(self) -> bool:
        """Whether the certificate is refuted, or an assumption of it."""
        return self.refuted or bool(self.broken)

    @property
    def powerless(self) -> bool:
        """Whether no outcome of these trials could have refuted the certificate."""
        return self.bound.provable <= self.certified

    @property
    def assumed(self) -> str:
        """The mechanisms for which the larger number of the bound holds."""
        within = (self.bound.within or 0.0) > self.bound.epsilon
        return self.family.name if self.family and within else "any mechanism"


@dataclass(frozen=True)
class Subject:
    """One type of unit that certificates describe.

    unit: the unit.
    adjacency: how neighbours differ in a unit.
    plan: plan of the audited experiment.
    rounds: number of rounds; those that the unit's group of users takes part in, if it ends first.
    events: events of one round that describe the unit, of all observers.
    rows: each observer's tightest certificate after all rounds.
    group: group of users that the certificates are of; "": all.
    turns: number of parts of the users that take turns.
    """

    unit: str
    adjacency: str
    plan: Plan
    rounds: int
    events: list[Event]
    rows: list[EpsilonRow]
    group: str = ""
    turns: int = 1

    def family(self, observer: str, silo: int | None = None) -> Family | None:
        """The family of an observer's certificate for units of one silo, or of any silo."""
        own = [event for event in self.events if event.observer == observer]
        return family_of(own, -(-self.rounds // self.turns), silo)


def subjects(exp: Experiment, colluding: int) -> list[Subject]:
    """Every type of unit that certificates describe.

    colluding: number of curious silos that share what they know.
    """
    forecast = _with_colluding_silos(EpsilonForecast.of(exp), colluding)
    rounds = exp.options.rounds
    rows = tightest(forecast.rows_at([rounds]))
    events = round_events(exp, forecast.plan)
    found = []
    for about in dict.fromkeys(map(_protected, rows)):
        own = [event for event in events if _protected(event) == about]
        of_unit = [row for row in rows if _protected(row) == about]
        unit, adjacency, group = about
        ends = (own.last_round for own in exp.algo.contributors.groups if own.name == group)
        last = min(rounds, next(ends, None) or rounds)
        turns = exp.algo.contributors.turns
        found.append(Subject(unit, adjacency, forecast.plan, last, own, of_unit, group, turns))
    return found


def audit(
    exp: Experiment,
    effort: Effort,
    *,
    colluding: int = 1,
    progress: AuditProgress | None = None,
) -> list[AuditRow]:
    """Attack every type of unit that certificates describe.

    colluding: number of curious silos that share what they know.
    progress: shows what is done; None: nothing.
    """
    progress = progress or AuditProgress(quiet=True)
    exp = with_solved_noise(exp)

    def attack(subject: Subject, share: Effort) -> Evidence:
        progress.stage(f"{subject.unit}: trials of attacks", share.seconds)
        with closing(chosen_attack(exp, subject.plan, subject.events, share, colluding)) as chosen:
            scores = trials(chosen, share, 2**40 * (exp.options.seed + 1))

        def evidence(row: EpsilonRow) -> dict[str, Any]:
            family = subject.family(row.observer, chosen.canaries.silo)
            bound = lower_bound(
                *scores[row.observer],
                delta=exp.accountant.delta,
                confidence=CONFIDENCE,
                family=family,
            )
            return {"bound": bound, "family": family, "metric": chosen.metrics[bound.metric]}

        return evidence

    return audited(exp, attack, effort, colluding, progress)


Evidence = Callable[[EpsilonRow], dict[str, Any]]
"""From a certificate: `bound`, `family` and what else an attack has found, by names of
`AuditRow`."""


def audited(
    exp: Experiment,
    attack: Callable[[Subject, Effort], Evidence],
    effort: Effort,
    colluding: int,
    progress: AuditProgress,
) -> list[AuditRow]:
    """What attacks prove, and the premises of every certificate.

    attack: runs the attack on one type of unit.
    effort: of all attacks together; a share of it is for the premises.
    """
    progress.stage(f"{exp.algo.label}: accounting")
    units = subjects(exp, colluding)
    share = replace(effort, seconds=effort.seconds / len(units))
    premises = measured_premises(exp, units, share, colluding, progress)
    found = []
    for subject in units:
        evidence = attack(subject, share)
        for row in subject.rows:
            about = None, _protected(row)
            own = tuple(
                one for of, one in premises if of in about and one.observer in ("", row.observer)
            )
            known = vars(row) | evidence(row)
            found.append(AuditRow(**known, algorithm=exp.algo.label, premises=own))
    return found


def measured_premises(
    exp: Experiment,
    units: list[Subject],
    effort: Effort,
    colluding: int,
    progress: AuditProgress,
) -> list[tuple[Unit | None, Premise]]:
    """What all certificates assume, with the unit that a premise is about; None: all units."""
    plan = units[0].plan
    if not any(math.isfinite(row.certified) for one in units for row in one.rows):
        return []
    seconds = effort.seconds
    progress.stage("distances from the file to the noise", seconds * FILE_SHARE)
    found: list[tuple[Unit | None, Premise]] = [*file_premises(exp, plan, seconds * FILE_SHARE)]
    progress.stage("noise", seconds * NOISE_SHARE)
    values = NOISE_VALUES * effort.trials
    noise = run_noise(exp, plan, colluding=colluding, seconds=seconds * NOISE_SHARE, values=values)
    found += ((None, one) for one in noise)
    progress.stage("samples", seconds * PREMISE_SHARE)
    found += ((None, one) for one in run_samples(exp, plan, seconds * PREMISE_SHARE))
    shared = sharing_level(one for _, one in found)
    return list(zip((about for about, _ in found), shared))


def _protected(about: EpsilonRow | Event) -> tuple[str, str, str]:
    """Unit, adjacency and group of users."""
    return about.unit, about.adjacency, about.group


def _with_colluding_silos(forecast: EpsilonForecast, silos: int) -> EpsilonForecast:
    """The same plan; an observer who knows noise shares knows those of so many silos."""
    threat_model = forecast.plan.threat_model
    observers = tuple(
        replace(o, own_shares=silos if o.own_shares else 0) for o in threat_model.observers
    )
    plan = replace(forecast.plan, threat_model=replace(threat_model, observers=observers))
    return replace(forecast, plan=plan)
