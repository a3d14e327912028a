"""Summation in the clear: each silo sends its weighted, noised vector to the server.

Trust: the server sees every silo's message, and with weights that depend on record counts it sees the counts too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedpriv.aggregation.base import SERVER, Aggregation, awaited_broadcast, invited_silos
from fedpriv.aggregation.ring import RingSilo, ring_encoding
from fedpriv.aggregation.weighted import WeighingServer, server_trust, sum_of_answers
from fedpriv.query import Total

if TYPE_CHECKING:
    from fedpriv.aggregation.base import Respond
    from fedpriv.deployment import Trust
    from fedpriv.parties.party import Party
    from fedpriv.query import Broadcast, Query
    from fedpriv.weighting import Weighting


@dataclass(frozen=True)
class Plain(Aggregation):
    """The sum of the silos' messages, added in the order of their invitation."""

    def trust(self) -> Trust:
        return server_trust(sees_messages=True)

    def silo(self, name: str, silos: tuple[str, ...], weighting: Weighting) -> PlainSilo:
        return PlainSilo(name, silos, weighting)

    def helper(self, name: str, silos: tuple[str, ...], weighting: Weighting) -> PlainServer:
        return PlainServer(silos, weighting)


class PlainSilo(RingSilo):
    """Answers a broadcast with its message, as integers where the mechanism's noise is one."""

    def query(self, query: Query, respond: Respond) -> Party:
        broadcast = yield from awaited_broadcast()
        if broadcast is not None:
            update = respond(broadcast)
            if query.encoding is None:
                yield {SERVER: self.weighted_sum(update) + update.noise}
            else:
                yield {SERVER: self.encoded(update, ring_encoding(query))}


class PlainServer(WeighingServer):
    """Adds the answers."""

    def query(self, query: Query, broadcast: Broadcast) -> Party:
        silos = invited_silos(query)
        total = yield from sum_of_answers(silos, broadcast)
        return Total(total if query.encoding is None else ring_encoding(query).decode(total), silos)
