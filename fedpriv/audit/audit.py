"""The audit of one experiment: certificates and claims beside what an attack on its own code proves."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fedpriv.accountants.events import Event, leaves
from fedpriv.accountants.ledger import EpsilonRow
from fedpriv.algorithms.base import silo_name
from fedpriv.audit.bounds import Bound, lower_bound
from fedpriv.audit.families import Family, GaussianFamily, SampledFamily
from fedpriv.audit.trials import Effort, chosen_attack, trials
from fedpriv.config import Experiment
from fedpriv.epsilon import Planned

if TYPE_CHECKING:
    from collections.abc import Iterable

CONFIDENCE = 0.95
"""With which each lower bound holds."""


QUICK, THOROUGH = Effort(20.0, 3000), Effort(300.0, 30_000)


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
    share, found = replace(effort, seconds=effort.seconds / max(1, len(units))), []
    for unit, adjacency in units:
        own = [event for event in events if (event.unit, event.adjacency) == (unit, adjacency)]
        with closing(chosen_attack(exp, planned.deployment, own, share, colluding)) as attack:
            scores = trials(attack, share, 2**40 * (exp.options.seed + 1))
        seen = own if attack.canaries.silo is None else _of_silo(own, attack.canaries.silo)
        for row in rows:
            if (row.unit, row.adjacency) == (unit, adjacency):
                family = _family((e for e in seen if e.observer == row.observer), exp.options.rounds)
                delta = exp.accountant.delta
                bound = lower_bound(*scores[row.observer], delta=delta, confidence=CONFIDENCE, family=family)
                found.append(_row(exp, row, bound, family))
    return found


def _of_silo(events: list[Event], silo: int) -> list[Event]:
    """The events of the canary's scope; all of them where none is its own."""
    return [event for event in events if event.scope == silo_name(silo)] or events


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
    found = leaves([(event.certified, rounds) for event in own])
    if not found or any(event.group_size > 1 for event in own):
        return None
    if all(isinstance(leaf, dp.GaussianDpEvent | dp.ZCDpEvent) for leaf in found):
        return GaussianFamily()
    [(leaf, times), *others] = found.items()
    if isinstance(leaf, dp.PoissonSampledDpEvent) and isinstance(leaf.event, dp.GaussianDpEvent) and not others:
        return SampledFamily(leaf.sampling_probability, times, leaf.event.noise_multiplier)
    return None
