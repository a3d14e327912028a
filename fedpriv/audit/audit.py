"""The audit of one experiment: certificates and claims beside what an attack on its own code proves."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.accountants.events import REPLACE, Event, leaves
from fedpriv.accountants.ledger import EpsilonRow
from fedpriv.audit.bounds import Bound, lower_bound
from fedpriv.audit.canary import canaries
from fedpriv.audit.families import Family, GaussianFamily, SampledFamily
from fedpriv.audit.watch import Attack, prepared_attack
from fedpriv.config import Experiment
from fedpriv.deployment import Deployment
from fedpriv.epsilon import Planned

if TYPE_CHECKING:
    from collections.abc import Iterable

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
    proves. assumed: of which mechanisms its larger number holds.
    """

    algorithm: str
    observer: str
    unit: str
    adjacency: str
    rounds: int
    certified: float
    claimed: float | None
    bound: Bound
    assumed: str

    @property
    def alarm(self) -> bool:
        """Whether the certificate is false, with the bound's confidence."""
        return self.bound.audited > self.certified


def audit(exp: Experiment, effort: Effort, *, colluding: int = 1) -> list[AuditRow]:
    """Attack every unit that certificates speak of. colluding: curious silos that share what they know."""
    planned = _colluding(Planned.of(exp), colluding)
    rows = _tightest(planned.rows_at([exp.options.rounds]))
    units = dict.fromkeys((row.unit, row.adjacency) for row in rows)
    events = [event for query in exp.algo.queries(1, planned.deployment) for event in query.events]
    found = []
    for unit, adjacency in units:
        share = replace(effort, seconds=effort.seconds / len(units))
        own = [event for event in events if (event.unit, event.adjacency) == (unit, adjacency)]
        attack = _attack(exp, planned.deployment, own, colluding)
        families = {
            row.observer: _family((e for e in own if e.observer == row.observer), exp.options.rounds) for row in rows
        }
        scores = _trials(attack, share, exp.options.seed)
        for row in rows:
            if (row.unit, row.adjacency) == (unit, adjacency):
                bound = lower_bound(
                    *scores[row.observer],
                    delta=exp.accountant.delta,
                    confidence=CONFIDENCE,
                    family=families[row.observer],
                )
                found.append(_row(exp, row, bound, families[row.observer]))
    return found


def _row(exp: Experiment, row: EpsilonRow, bound: Bound, family: Family | None) -> AuditRow:
    about = exp.algo.label, row.observer, row.unit, row.adjacency, row.round
    within = family is not None and (bound.within or 0.0) > bound.epsilon
    return AuditRow(*about, row.certified, row.claimed, bound, family.name if family and within else "any mechanism")


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


def _family(events: Iterable[Event], rounds: int) -> Family | None:
    """What the certificate says the releases to one observer are, if that is Gaussian, sampled or not."""
    import dp_accounting as dp

    own = list(events)
    if any(event.group_size > 1 for event in own):
        return None
    if len(own) == 1 and (hidden := _sampling(own)):
        [(rate, noise)] = hidden.values()
        return SampledFamily(rate, rounds, noise)
    found = [leaves([(event.certified, 1)]) for event in own]
    if any(part is None for part in found):
        return None
    kinds = {type(leaf) for part in found for leaf in part or ()}
    return GaussianFamily() if kinds <= {dp.GaussianDpEvent, dp.ZCDpEvent} else None


def _sampling(events: Iterable[Event]) -> dict[str, tuple[float, float]]:
    """Observers from whom a sample of users is hidden, with its rate and the noise multiplier."""
    import dp_accounting as dp

    hidden = {}
    for event in events:
        sampled = event.certified
        if isinstance(sampled, dp.PoissonSampledDpEvent) and isinstance(sampled.event, dp.GaussianDpEvent):
            hidden[event.observer] = (sampled.sampling_probability, sampled.event.noise_multiplier)
    return hidden


def _attack(exp: Experiment, run: Deployment, events: list[Event], colluding: int) -> Attack:
    """The attack with the canary that is farthest from its absence."""

    def revise(deployment: Deployment) -> Deployment:
        # Noise that is calibrated to what is known of the model must be the run's, not the canary's.
        channels = {n: replace(c, mechanism=run.channels[n].mechanism) for n, c in deployment.channels.items()}
        return replace(deployment, channels=channels)

    first = events[0]
    candidates = canaries(exp, first.unit, first.adjacency == REPLACE)
    attacks = [prepared_attack(exp, canary, revise, colluding) for canary in candidates]
    farthest = max(attack.length for attack in attacks)
    best = next(attack for attack in attacks if attack.length >= farthest * (1 - 1e-6))
    return replace(best, sampling=_sampling(events))


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
