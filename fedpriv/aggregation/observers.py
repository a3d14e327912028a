"""The observers of a run: those that an aggregation declares, and those that it leaves out.

Every run has a released model, silos and the aggregation's helpers. An observer that the threat
model does not name stays in the certificate, with an infinite epsilon.

>>> from fedpriv.aggregation.plain import Plain
>>> [observer.name for observer in complete(Plain()).observers]
['released model', 'server', 'silo']
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fedpriv.accountants.events import RELEASED_MODEL, SILO
from fedpriv.aggregation.base import Aggregation
from fedpriv.rounds.plan import Observer, ThreatModel

OWN_NOISE = "a silo knows its own noise share, and the aggregation declares that it knows none"
"""Why nothing is certified against a silo without an own share."""


def complete(aggregation: Aggregation) -> ThreatModel:
    """The aggregation's threat model with every observer of a run. Nothing is certified against one
    that the aggregation leaves out, or that is declared to know less than it must."""
    model = aggregation.threat_model()
    declared = tuple(map(_corrected, model.observers))
    return replace(model, observers=(*declared, *_left_out(aggregation, model)))


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
