"""How often single records are in the batches that silos draw.

A record is in a batch where other content of its moves the silo's sum. No distance shows that it is
drawn more often than its certificate says, or in every round if in one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from fedpriv.accountants.events import RELEASED_MODEL
from fedpriv.certificates.request import Target
from fedpriv.parties.party import silo_name
from fedpriv.rounds.query import Query
from fedpriv.testing.event_parameters import inclusion
from fedpriv.testing.premise import Premise, too_often


@dataclass(frozen=True)
class Draws:
    """In which rounds one record was in a query's sample.

    query: name of the query.
    rate: declared probability of a round.
    drawn: for each round, whether it was.
    """

    query: str
    rate: float
    drawn: tuple[bool, ...]


def draws_of(target: Target, silo: int, moved: list[tuple[Query, bool]]) -> Iterator[Draws]:
    """The draws of a protected record of a silo, from whether each query's sum moved."""
    for name in dict.fromkeys(query.name for query, _ in moved):
        own = [(query, here) for query, here in moved if query.name == name]
        rate = max(_rate(query, target, silo) for query, _ in own)
        yield Draws(name, rate, tuple(here for _, here in own))


def _rate(query: Query, target: Target, silo: int) -> float:
    """The probability that a query's sample has a record of a silo; 1 if none is declared."""
    here = [
        inclusion(event)
        for event in query.events
        if (event.observer, event.unit, event.adjacency)
        == (RELEASED_MODEL, target.unit, target.adjacency)
        and event.scope.partition("/")[0] in ("", silo_name(silo))
    ]
    ever = [1.0 if rate == 1 else -math.expm1(n * math.log1p(-rate)) for rate, n in here]
    return min(ever, default=1.0)


def draw_premises(draws: Iterable[Draws]) -> Iterator[Premise]:
    """Whether records are drawn as often as declared, and afresh in each round."""
    sampled = [one for one in draws if one.rate < 1 and one.drawn]
    for name in dict.fromkeys(one.query for one in sampled):
        own = [one for one in sampled if one.query == name]
        once = np.concatenate([one.drawn for one in own])
        both = np.concatenate([np.logical_and(one.drawn[:-1:2], one.drawn[1::2]) for one in own])
        for what, hits, chances in (
            ("a batch", once, [(one.rate, len(one.drawn)) for one in own]),
            ("two batches in a row", both, [(one.rate**2, len(one.drawn) // 2) for one in own]),
        ):
            if len(hits):
                # Silos with rates of their own differ less than all at the mean rate.
                rate = sum(one * times for one, times in chances) / len(hits)
                about = f"share of records in {what} of {name}"
                yield too_often("", about, int(hits.sum()), len(hits), rate)
