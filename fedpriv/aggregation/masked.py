"""Sums under pairwise masks that cancel; nobody may drop out.

R. Hu, Y. Guo, Y. Gong, Concentrated differentially private and utility preserving federated
learning, the secure aggregation of its Fig. 2. Each pair of silos agrees once on a seed. In query t
silo i adds to its encoded vector

    sum over j in the cohort, j != i, of sign(j - i) * PRF(seed_ij, t, cohort)   modulo R.

The paper prints r_ij - r_ji with r_ij = PRF(seed_ij, t); with one agreed seed for a pair both terms
are the same and nothing is hidden, hence the sign. Masks cost two exchanges of public keys once,
and no traffic in a query.

Trust. A server that follows the protocol sees uniformly random integers, the sum of all of them,
and counts if weights depend on them. With some silos it learns the sum of the others. A server that
cheats at the set-up, where it passes the public keys on, can put its own in between, and then reads
every message; a silo notices only a change of its own key, and refuses weights outside 0 to 1. A
silo can send any vector; nothing but a sum beyond what honest messages can reach is found, and
whose message was wrong the sum does not tell, since any of them is uniformly random. The next query
then begins with new keys, in case it was those that did not fit. On the network, too, messages can
be changed unseen by whoever makes their checksums anew: channels must be authentic (TLS). A message
that never arrives ends the query: no sum is released, but what the server did receive stays hidden,
since the missing silo's masks do not cancel. A late, repeated or foreign message is left aside, a
damaged or malformed one ends the query with its sender's name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fedpriv.aggregation.base import MESSAGE, SERVER, awaited_broadcast, invited_silos, trained
from fedpriv.aggregation.ring import RingAggregation, RingSilo, ring_encoding, ring_message
from fedpriv.aggregation.weighted import (
    AUTHENTIC,
    KeyPassingServer,
    exchanged_keys,
    server_trust,
    sum_of_answers,
)
from fedpriv.crypto.digest import digest
from fedpriv.crypto.prg import add_masks
from fedpriv.crypto.x25519 import PrivateKey, PublicKey
from fedpriv.parties.post import blaming
from fedpriv.rounds.query import Total

if TYPE_CHECKING:
    import numpy as np

    from fedpriv.aggregation.base import Respond
    from fedpriv.parties.party import Party
    from fedpriv.rounds.plan import ThreatModel
    from fedpriv.rounds.query import Broadcast, Query, SetUp
    from fedpriv.rounds.weighting import Weighting


@dataclass(frozen=True)
class Masked(RingAggregation):
    """The sum of masked messages modulo 2^bits; the query's `encoding` turns vectors into
    integers.
    """

    def threat_model(self) -> ThreatModel:
        return server_trust(sees_messages=False, assumptions=(AUTHENTIC,))

    def silo(self, name: str, silos: tuple[str, ...], weighting: Weighting) -> MaskedSilo:
        return MaskedSilo(name, silos, weighting)

    def helper(self, name: str, silos: tuple[str, ...], weighting: Weighting) -> MaskedServer:
        return MaskedServer(silos, weighting)


@dataclass(repr=False)
class MaskedSilo(RingSilo):
    """Shares a seed with each of the others.

    seeds: by peer, 32 bytes each.
    spent: the last query that they have made masks for; rounds count from 1.
    """

    seeds: dict[str, bytes] = field(init=False)
    spent: tuple[int, int] = field(init=False)

    def setup(self, task: SetUp, counts: np.ndarray) -> Party:
        yield from super().setup(task, counts)
        post = task.post(self.name)
        private = PrivateKey.generate()
        keys = yield from exchanged_keys(post, private.public.raw, self.silos)
        self.seeds = {}
        for peer in keys.keys() - {self.name}:
            with blaming(peer):
                self.seeds[peer] = private.derive_shared_seed(
                    PublicKey(keys[peer]), _pair(self.name, peer)
                )
        self.spent = (0, 0)  # these seeds have made no mask yet; the private key is forgotten

    def query(self, query: Query, respond: Respond) -> Party:
        post = query.post(self.name)
        broadcast = yield from awaited_broadcast(post, query)
        if broadcast is None:
            return
        self.spend(query.serial)
        encoded = self.encoded((yield from trained(respond(broadcast))), ring_encoding(query))
        masked = mask(
            encoded, self.name, invited_silos(query), seeds=self.seeds, serial=query.serial
        )
        yield from post.send(MESSAGE, {SERVER: masked})

    def spend(self, serial: tuple[int, int]) -> None:
        """Note that the masks of a query are spent. Raises RuntimeError when they, or those of a
        later query, were before: two messages under one mask give their difference away."""
        if serial <= self.spent:
            raise RuntimeError(
                f"{self.name} has used its masks of round {serial[0]}, query {serial[1]} already"
            )
        self.spent = serial


class MaskedServer(KeyPassingServer):
    """Adds the answers, whose masks cancel."""

    def query(self, query: Query, broadcast: Broadcast) -> Party:
        silos = tuple(sorted(invited_silos(query)))
        encoding = ring_encoding(query)
        total = yield from sum_of_answers(query, silos, broadcast, ring_message(query))
        return Total(encoding.decode(total), silos)


def mask(
    encoded: np.ndarray,
    name: str,
    cohort: Iterable[str],
    *,
    seeds: Mapping[str, bytes],
    serial: tuple[int, int],
) -> np.ndarray:
    """Add to `encoded` (size,), in place, what makes it uniform and cancels in the sum over the
    cohort.

    seeds: silo `name`'s, by peer.
    serial: of the query, which makes the masks its own.
    """
    ordered = sorted(cohort)
    larger = [seeds[peer] for peer in ordered if peer > name]
    smaller = [seeds[peer] for peer in ordered if peer < name]
    return add_masks(encoded, larger, smaller, purpose=digest("masked", *serial, *ordered))


def _pair(name: str, peer: str) -> bytes:
    return digest("masked", *sorted((name, peer)))
