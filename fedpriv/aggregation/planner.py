"""From components to a plan: cohort sizes, encodings and observers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from fedpriv.accountants.events import CHEATING_SERVER, RELEASED_MODEL, SERVER, SILO
from fedpriv.aggregation.base import Aggregation
from fedpriv.aggregation.epsilon_target import EpsilonTarget
from fedpriv.algorithms.base import Algorithm
from fedpriv.certificates.derive import require_suited
from fedpriv.errors import ConfigError, require
from fedpriv.mechanisms.base import Mechanism
from fedpriv.mechanisms.strategy import Strategy
from fedpriv.rounds.contributors import ONE_SILO_EACH
from fedpriv.rounds.plan import Federation, Observer, Plan, QueryParameters, ThreatModel
from fedpriv.training.optimizers import LocalOptimizer
from fedpriv.util.installed import others
from fedpriv.util.streams import Streams

MAX_ROUNDING = 1e-3
"""What rounding may add to a sum's sensitivity, in units of the bound on a contribution, if the
encoding is ours to choose. An epsilon then changes in its fourth digit."""


@dataclass(frozen=True)
class Planner:
    """The components that a plan is made of, and the epsilon that it may cost.

    target: the noise is solved for it; None: it is the method's (see `Algorithm.own_target`).
    noise: name of a query: its noise multiplier, where it is solved already; empty: it is not.
    assumptions: what every certificate rests on besides.
    """

    algo: Algorithm
    aggregation: Aggregation
    mechanism: Mechanism
    optimizer: LocalOptimizer
    streams: Streams
    target: EpsilonTarget | None = None
    noise: Mapping[str, float] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()

    def draft(self, federation: Federation) -> Plan:
        """The plan with the mechanisms as configured, checked as far as `federation` is known.
        Raises ConfigError for settings that cannot work together."""
        return self._checked(federation, self.algo.mechanisms(self.mechanism), self.aggregation)

    def plan(self, federation: Federation) -> Plan:
        """The plan with every noise multiplier a number, once records are allocated. Raises
        ConfigError as `draft` does."""
        draft = self.draft(federation)
        mechanisms = self.algo.calibrated(draft)
        if self.noise:
            mechanisms = {k: one.with_noise(self.noise[k]) for k, one in mechanisms.items()}
        own = self.algo.own_target
        target = self.target or (EpsilonTarget(*own) if own else None)
        if self.noise or target is None:
            return self._checked(federation, mechanisms, self.aggregation)
        configured = {name: one.mechanism for name, one in draft.query_parameters.items()}
        near = own is None and mechanisms != configured
        return self._solved(target, federation, mechanisms, near=near)

    def _solved(
        self,
        target: EpsilonTarget,
        federation: Federation,
        mechanisms: Mapping[str, Mechanism],
        *,
        near: bool,
    ) -> Plan:
        """The plan with the noise of `mechanisms` times one factor, which meets the target.

        near: whether the method has calibrated it for about this target.
        """
        first = next(iter(mechanisms.values())).noise_multiplier
        relative = {
            name: one.noise_multiplier / first if first else 1.0 for name, one in mechanisms.items()
        }

        def plan_with(noise: float) -> Plan:
            scaled = {
                name: one.with_noise(noise * relative[name]) for name, one in mechanisms.items()
            }
            return self._checked(federation, scaled, self.aggregation)

        start = first if near else 0.0
        return plan_with(target.noise(self.algo, plan_with, start=start))

    def _checked(
        self,
        federation: Federation,
        mechanisms: Mapping[str, Mechanism],
        aggregation: Aggregation,
    ) -> Plan:
        narrower = aggregation.narrower()
        if narrower is not None:
            with suppress(ConfigError):
                plan = self._checked(federation, mechanisms, narrower)
                size = federation.n_parameters
                if all(
                    _hardly_rounded(parameters, size)
                    for parameters in plan.query_parameters.values()
                ):
                    return plan
        query_parameters = {
            name: self._parameters(name, mechanism, federation, aggregation)
            for name, mechanism in mechanisms.items()
        }
        trust = complete(aggregation, federation.n_silos)
        plan = Plan(
            federation,
            query_parameters,
            replace(trust, assumptions=(*trust.assumptions, *self.assumptions)),
            self.streams,
            self.optimizer,
            authors=others(aggregation),
        )
        several = self.algo.contributors.weighting.one_silo_each and not federation.one_silo_each
        require(not several, "algo.weighting", "home", ONE_SILO_EACH)
        self.algo.check(plan)
        used = [parameters.mechanism for parameters in query_parameters.values()]
        if any(one.mixing or one.marks or one.norm == 1 for one in used):
            for request in self.algo.requests(1, plan):
                require_suited(request, plan, self.algo.contributors)
        return plan

    def _require_mixing(self, mixing: Strategy) -> None:
        """Raise ConfigError where silos cannot repeat earlier sums, or where no certificate would
        hold for them."""
        allowed = "gaussian with this aggregation: a silo has to know the weights of its messages"
        require(self.aggregation.weighs_at_silos, "mechanism", "correlated", allowed)
        contributors = self.algo.contributors
        allowed = "gaussian: groups of users with budgets have independent noise"
        require(not contributors.groups, "mechanism", "correlated", allowed)
        apart = contributors.rate == 1 or mixing.bands <= contributors.turns
        allowed = "at most algo.cycle, if users are sampled"
        require(apart, "mechanism.bands", mixing.bands, allowed)

    def _parameters(
        self, name: str, mechanism: Mechanism, federation: Federation, aggregation: Aggregation
    ) -> QueryParameters:
        n_invited = self.algo.n_invited(federation)
        least, most = aggregation.cohort_size(n_invited)
        fewest = aggregation.fewest
        lost = 0 if fewest is None else max(0, federation.n_silos - fewest)
        bound = self.algo.message_bound(name, mechanism, max(1, least - lost), federation)
        if mechanism.mixing is not None:
            self._require_mixing(mechanism.mixing)
            bound *= max(1.0, mechanism.mixing.row_sum)
        encoding = aggregation.encoding(most or least, bound, federation, mechanism)
        if encoding is None:
            encoding = mechanism.encoding(least, bound, real=self.streams.system)
        return QueryParameters(mechanism, n_invited, least, encoding, most)


def _hardly_rounded(parameters: QueryParameters, size: int) -> bool:
    """Whether noise hides the grid and sensitivities hardly grow by it. Without noise nothing says
    how fine the grid must be."""
    mechanism = parameters.mechanism
    noised = mechanism.clips and mechanism.noise_multiplier > 0
    return noised and mechanism.rounding(parameters.encoding, size) <= MAX_ROUNDING


OWN_NOISE = "a silo knows its own noise share, and the aggregation declares that it knows none"
"""Why nothing is certified against a silo without an own share."""
ALONE = "one silo holds all records: nothing is hidden from it"


def complete(aggregation: Aggregation, n_silos: int) -> ThreatModel:
    """The aggregation's threat model with every observer of a run. Nothing is certified against one
    that the aggregation leaves out, or that is declared to know less than it must. A server that
    cheats is an observer of its own. A silo observes the records of other silos, if there are any.
    """
    model = aggregation.threat_model()
    honest = (*map(_corrected, model.observers), *_left_out(aggregation, model))
    if n_silos == 1:
        honest = tuple(one for one in honest if one.name != SILO)
        model = replace(model, assumptions=(*model.assumptions, ALONE))
    cheating = (
        replace(one, name=CHEATING_SERVER, cheats=True) for one in honest if one.name == SERVER
    )
    return replace(model, observers=(*honest, *cheating))


def _corrected(observer: Observer) -> Observer:
    too_few = observer.name == SILO and observer.own_shares < 1
    why = observer.why_uncertified or (OWN_NOISE if too_few else None)
    return replace(observer, why_uncertified=why)


def _left_out(aggregation: Aggregation, model: ThreatModel) -> Iterator[Observer]:
    """The observers that the threat model does not name. They are taken to see everything."""
    declared = {observer.name for observer in model.observers}
    for name in dict.fromkeys((RELEASED_MODEL, *aggregation.helpers, SILO)):
        if name not in declared:
            why = f"{type(aggregation).__name__} does not declare what the {name} sees"
            yield Observer(name, sees_messages=True, why_uncertified=why)
