"""From components to a plan: how many silos a sum covers, how messages are encoded, who sees
what.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from fedpriv.aggregation.base import Aggregation
from fedpriv.algorithms.base import Algorithm
from fedpriv.errors import ConfigError
from fedpriv.mechanisms.base import Mechanism
from fedpriv.rounds.conformance_record import has_passed
from fedpriv.rounds.plan import Channel, Federation, Plan
from fedpriv.training.optimizers import LocalOptimizer
from fedpriv.util.streams import Streams

MOST_ROUNDING = 1e-3
"""What rounding may add to a sum's sensitivity, in units of the bound on a contribution, where the
encoding is ours to choose: an epsilon then changes in its fourth digit."""


@dataclass(frozen=True)
class Planner:
    """The components that a plan is made of."""

    algo: Algorithm
    aggregation: Aggregation
    mechanism: Mechanism
    optimizer: LocalOptimizer
    streams: Streams

    def draft(self, federation: Federation) -> Plan:
        """The plan with mechanisms as configured, checked as far as `federation` is known. Raises
        ConfigError for settings that cannot work together."""
        return self._checked(federation, self.algo.mechanisms(self.mechanism))

    def plan(self, federation: Federation) -> Plan:
        """The plan with all noise a number, once records are allocated. Raises as `draft` does."""
        return self._checked(federation, self.algo.calibrated(self.draft(federation)))

    def _checked(self, federation: Federation, mechanisms: Mapping[str, Mechanism]) -> Plan:
        narrower = self.aggregation.narrower()
        if narrower is not None:
            with suppress(ConfigError):
                plan = replace(self, aggregation=narrower)._checked(federation, mechanisms)
                if all(
                    _hardly_rounded(channel, federation.n_parameters)
                    for channel in plan.channels.values()
                ):
                    return plan
        channels = {
            name: self._channel(name, mechanism, federation)
            for name, mechanism in mechanisms.items()
        }
        plan = Plan(
            federation,
            channels,
            self.aggregation.threat_model(),
            self.streams,
            self.optimizer,
            checked=has_passed(type(self.algo), Algorithm),
        )
        self.algo.check(plan)
        return plan

    def _channel(self, name: str, mechanism: Mechanism, federation: Federation) -> Channel:
        n_invited = self.algo.n_invited(federation)
        n_summed = self.aggregation.n_summed(n_invited)
        bound = self.algo.message_bound(name, mechanism, n_summed, federation)
        n_most = self.aggregation.n_most(n_invited)
        encoding = self.aggregation.encoding(n_most or n_summed, bound, federation, mechanism)
        if encoding is None:
            encoding = mechanism.encoding(n_summed, bound, real=self.streams.system)
        return Channel(mechanism, n_invited, n_summed, encoding, n_most)


def _hardly_rounded(channel: Channel, size: int) -> bool:
    """Whether noise hides the grid and sensitivities hardly grow by it. Without noise nothing says
    how fine it must be."""
    mechanism = channel.mechanism
    noised = mechanism.clips and mechanism.noise_multiplier > 0
    return noised and mechanism.rounding(channel.encoding, size) <= MOST_ROUNDING
