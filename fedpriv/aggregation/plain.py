"""Summation in the clear: each silo sends its weighted, noised vector to the server.

Trust. The server sees every silo's message, and with weights that depend on record counts it sees
the counts too; and nobody checks the sum that it tells. A silo refuses weights outside 0 to 1.
Silos that collude with it learn nothing that it does not see. A silo can send any vector: the noise
it owes may be missing, and one silo can move the sum as far as it likes, or as far as messages on a
grid can reach; infinite numbers and NaN are refused. Whoever is on the network reads everything
and, by making checksums anew, can change it unseen: channels must be secret and authentic (TLS).
What is damaged or not of the declared kind, or no message, ends the query with its sender's name;
what is late, repeated or of another query is left aside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.aggregation.base import (
    MESSAGE,
    SERVER,
    Aggregation,
    awaited_broadcast,
    invited_silos,
    trained,
)
from fedpriv.aggregation.ring import RingSilo, clear_message, ring_encoding
from fedpriv.aggregation.weighted import AUTHENTIC, WeighingServer, server_trust, sum_of_answers
from fedpriv.parties.schema import Array
from fedpriv.rounds.query import Total

if TYPE_CHECKING:
    from fedpriv.aggregation.base import Respond
    from fedpriv.parties.party import Party
    from fedpriv.rounds.plan import ThreatModel
    from fedpriv.rounds.query import Broadcast, Query, Update
    from fedpriv.rounds.weighting import Weighting


@dataclass(frozen=True)
class Plain(Aggregation):
    """The sum of the silos' messages, added in the order of their invitation."""

    def threat_model(self) -> ThreatModel:
        return server_trust(sees_messages=True, assumptions=(AUTHENTIC,))

    def silo(self, name: str, silos: tuple[str, ...], weighting: Weighting) -> PlainSilo:
        return PlainSilo(name, silos, weighting)

    def helper(self, name: str, silos: tuple[str, ...], weighting: Weighting) -> PlainServer:
        return PlainServer(silos, weighting)


class PlainSilo(RingSilo):
    """Answers a broadcast with its message, as integers where the mechanism's noise is one."""

    def query(self, query: Query, respond: Respond) -> Party:
        post = query.post(self.name)
        broadcast = yield from awaited_broadcast(post, query)
        if broadcast is None:
            return
        yield from post.send(
            MESSAGE, {SERVER: self._message((yield from trained(respond(broadcast))), query)}
        )

    def _message(self, update: Update, query: Query) -> np.ndarray:
        if query.encoding is not None:
            return self.encoded(update, ring_encoding(query))
        message: np.ndarray = self.weighted_sum(update) + update.noise
        return message


class PlainServer(WeighingServer):
    """Adds the answers."""

    def query(self, query: Query, broadcast: Broadcast) -> Party:
        silos = invited_silos(query)
        real = query.encoding is None
        kind = Array(np.float64, (query.size,), finite=True) if real else clear_message(query)
        total = yield from sum_of_answers(query, silos, broadcast, kind)
        return Total(total if real else ring_encoding(query).decode(total), silos)
