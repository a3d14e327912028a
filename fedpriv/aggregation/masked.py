"""Sums under pairwise masks that cancel; no silo may drop out.

R. Hu, Y. Guo, Y. Gong, Concentrated differentially private and utility preserving federated
learning, the secure aggregation of its Fig. 2. Each pair of silos agrees once on a seed. In query t
silo i adds to its encoded vector

    sum over j in the cohort, j != i, of sign(j - i) * PRF(seed_ij, t, cohort, told)   modulo R.

The paper prints r_ij - r_ji with r_ij = PRF(seed_ij, t). With one seed for a pair both terms are
equal and hide nothing, hence the sign. Masks cost two exchanges of public keys once, and no traffic
in a query. `told` is a digest of what the server has sent down: masks cancel only if it is the same
for all silos.

Trust.

- A server that follows the protocol sees uniformly random integers and the sum of all of them. It
  sees the record counts if weights depend on them. Together with some silos it learns the sum of
  the others.
- The server passes the public keys on at the set-up, each with its owner's signature under the
  roster: a replaced key is refused. A silo refuses weights outside 0 to 1.
- A server that sends silos different models learns nothing of that query. Otherwise it could choose
  models for which all contributions but one silo's are known (D. Pasquini, D. Francati, G.
  Ateniese, Eluding secure aggregation in federated learning via model inconsistency, CCS 2022).
- A silo can send any vector. Only a sum that honest messages cannot reach is noticed. The sum does
  not show whose message was wrong, since each message is uniformly random.
- Every message is signed, so that a change on its way is found.
- A missing message ends the query without a sum. The messages that the server did receive stay
  hidden, because the missing silo's masks do not cancel. A late, repeated or foreign message is
  left aside. A damaged or malformed one ends the query and names its sender.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedpriv.aggregation.base import SERVER, server_trust
from fedpriv.aggregation.ring import RingAggregation, ring_encoding, ring_message
from fedpriv.aggregation.weighted import (
    PINNED,
    KeyPassingServer,
    WeightedSilo,
    added,
    answers_of,
    exchanged_keys,
)
from fedpriv.crypto.digest import digest
from fedpriv.crypto.prg import add_masks
from fedpriv.crypto.x25519 import PrivateKey, PublicKey
from fedpriv.parties.party import Mail, Party
from fedpriv.parties.post import Post, Serial, blaming
from fedpriv.rounds.contributors import Weighting
from fedpriv.rounds.local_job import LocalJob
from fedpriv.rounds.plan import ThreatModel
from fedpriv.rounds.query import Broadcast, Query, SetUpTask, Total
from fedpriv.util.work import Work

SILENT = "no silo tells the server its share of the noise"


@dataclass(frozen=True)
class Masked(RingAggregation):
    """The sum of masked messages modulo 2^bits."""

    def threat_model(self) -> ThreatModel:
        return server_trust(sees_messages=False, assumptions=(PINNED, SILENT), cheating=None)

    def silo(self, name: str, silos: tuple[str, ...], weighting: Weighting) -> MaskedSilo:
        return MaskedSilo(name, silos, weighting)

    def helper(self, name: str, silos: tuple[str, ...], weighting: Weighting) -> MaskedServer:
        return MaskedServer(silos, weighting)


@dataclass(repr=False)
class MaskedSilo(WeightedSilo):
    """Shares a seed with each other silo.

    seeds: by peer, 32 bytes each.
    spent: serial of the last query whose masks were used; rounds count from 1.
    told: digest of the last broadcast.
    """

    seeds: dict[str, bytes] = field(init=False)
    spent: Serial = field(init=False)
    told: bytes = field(init=False, default=b"")

    def setup(self, task: SetUpTask, counts: np.ndarray) -> Party:
        yield from super().setup(task, counts)
        post = task.post(self.name, self.signer)
        private = PrivateKey.generate()
        keys = yield from exchanged_keys(post, private.public.raw, task.silos or self.silos)
        self.seeds = {}
        for peer in keys.keys() - {self.name}:
            with blaming(peer):
                self.seeds[peer] = private.derive_shared_seed(
                    PublicKey(keys[peer]), digest("masked", *sorted((self.name, peer)))
                )
        self.spent = (0, 0)  # new seeds have made no mask yet; the private key is forgotten

    def note_broadcast(self, post: Post) -> None:
        self.told = post.told(SERVER)

    def messages(self, query: Query, job: LocalJob) -> Generator[Work[Any], Any, Mail]:
        self.spend(query.serial)
        encoded = yield from self.summed(query, job)
        masked = mask(
            encoded,
            self.name,
            query.silos,
            seeds=self.seeds,
            serial=query.serial,
            told=self.told,
        )
        return {SERVER: masked}

    def spend(self, serial: Serial) -> None:
        """Mark a query's masks as used. Raises RuntimeError if they, or a later query's, were used
        before: two messages under one mask reveal their difference."""
        if serial <= self.spent:
            raise RuntimeError(
                f"{self.name} has used its masks of round {serial[0]}, query {serial[1]} already"
            )
        self.spent = serial


class MaskedServer(KeyPassingServer):
    """Adds the answers, whose masks cancel."""

    def query(self, query: Query, broadcast: Broadcast) -> Party:
        silos = tuple(sorted(query.silos))
        encoding = ring_encoding(query)
        message = ring_message(query)
        answers = yield from answers_of(query, silos, broadcast, message, self.signer)
        return Total(encoding.decode(added(answers)), silos)


def mask(
    encoded: np.ndarray,
    name: str,
    cohort: Iterable[str],
    *,
    seeds: Mapping[str, bytes],
    serial: Serial,
    told: bytes = b"",
) -> np.ndarray:
    """Add silo `name`'s masks to `encoded` (size,), in place. The result is uniform, and the masks
    cancel in the sum over the cohort.

    seeds: of silo `name`, by peer.
    serial: of the query, so that no other query has the same masks.
    told: digest of what the server has sent down.
    """
    ordered = sorted(cohort)
    larger = [seeds[peer] for peer in ordered if peer > name]
    smaller = [seeds[peer] for peer in ordered if peer < name]
    return add_masks(encoded, larger, smaller, purpose=digest("masked", *serial, told, *ordered))
