"""Sums in the clear: each silo sends its weighted, noised vector to the server.

Trust.

- The server sees every silo's message. It sees the record counts too if weights depend on them.
  Nobody checks the sum that it announces. Colluding silos tell it nothing new.
- A silo refuses weights outside 0 to 1.
- A silo can send any vector. It can leave its noise out, and it can move the sum as far as it likes
  (on a grid: as far as messages can reach). Infinite numbers and NaN are refused.
- An attacker on the network reads everything: channels must be secret (TLS). Every message is
  signed, so that a change is found.
- A damaged, malformed or missing message ends the query and names its sender. A late, repeated or
  foreign message is left aside.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedpriv.aggregation.base import SERVER, Aggregation, server_trust
from fedpriv.aggregation.ring import clear_message, ring_encoding
from fedpriv.aggregation.weighted import (
    PINNED,
    WeighingServer,
    WeightedSilo,
    added,
    answers_of,
)
from fedpriv.parties.party import Mail, Party
from fedpriv.parties.schema import Array
from fedpriv.rounds.contributors import Weighting
from fedpriv.rounds.local_job import LocalJob
from fedpriv.rounds.plan import ThreatModel
from fedpriv.rounds.query import Broadcast, Query, Total
from fedpriv.util.work import Work


@dataclass(frozen=True)
class Plain(Aggregation):
    """The sum of the silos' messages, added in the order of their invitation."""

    def threat_model(self) -> ThreatModel:
        return server_trust(sees_messages=True, assumptions=(PINNED,), cheating=None)

    weighs_at_silos = True

    def silo(self, name: str, silos: tuple[str, ...], weighting: Weighting) -> PlainSilo:
        return PlainSilo(name, silos, weighting)

    def helper(self, name: str, silos: tuple[str, ...], weighting: Weighting) -> PlainServer:
        return PlainServer(silos, weighting)


class PlainSilo(WeightedSilo):
    """Sends its noised sum, as integers if the mechanism's noise is discrete."""

    def messages(self, query: Query, job: LocalJob) -> Generator[Work[Any], Any, Mail]:
        return {SERVER: (yield from self.summed(query, job))}


class PlainServer(WeighingServer):
    """Adds the answers."""

    def query(self, query: Query, broadcast: Broadcast) -> Party:
        silos = query.silos
        real = query.encoding is None
        schema = Array(np.float64, (query.size,), finite=True) if real else clear_message(query)
        answers = yield from answers_of(query, silos, broadcast, schema, self.signer)
        return Total(self.combined(query, answers), silos)

    def combined(self, query: Query, answers: list[np.ndarray]) -> np.ndarray:
        """The total (d,) of the silos' messages (d,)."""
        total = added(answers)
        return total if query.encoding is None else ring_encoding(query).decode(total)
