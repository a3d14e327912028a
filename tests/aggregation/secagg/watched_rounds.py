"""Real rounds of secure sums, everything that the server received in them, and who knows which
secrets."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from unittest.mock import patch

import numpy as np
from coalition_view import Functional, ObservedRelease, is_multiple_of_sum
from parties_of_generators import noting
from queries import query_for
from secure_sums import leaving, names, parties, ready, total_of

from fedpriv.aggregation.base import SERVER
from fedpriv.aggregation.secagg import aggregation as secagg
from fedpriv.aggregation.secagg.messages import Envelope, pair_seed, points
from fedpriv.aggregation.secagg.silo import Member
from fedpriv.crypto.prg import add_masks
from fedpriv.crypto.secret_sharing import LIMBS, Reconstruction
from fedpriv.crypto.x25519 import PrivateKey, PublicKey
from fedpriv.errors import AggregationAbortedError
from fedpriv.util.streams import Streams

D = 4
KEY, SEED = "mask key", "seed of the own mask"


class SecAggRound:
    """A round in which each silo sends so many messages and then drops out. Pads are known to who
    knows their secrets, and these to who holds enough shares.

    letters: contents that the server received, by silo, in order. summed: silos in the sum, None if
    there is none. total, aborted: the sum over them, or why there is none. chosen: U5 as the silos
    were told it, empty when they were not. member: what the silos are instead of `Member`.
    """

    def __init__(self, aggregation, sends, seed=0, member=Member):
        self.members = {}

        def remembered(**parts):
            made = member(**parts)
            self.members[made.name] = made
            return made

        with patch.object(secagg, "Member", remembered):
            self._run(aggregation, sends, seed)
        self.threshold = aggregation.terms(self.query).topology.shares
        drawn = [member for member in self.members.values() if hasattr(member, "roster")]
        self.roster, self.session = (drawn[0].roster, drawn[0].session) if drawn else ({}, b"")
        self.graph = drawn[0].graph if drawn else None
        self.purpose = next((member.purpose for member in drawn if hasattr(member, "purpose")), b"")
        self.chosen = next((member.chosen for member in drawn if hasattr(member, "chosen")), set())
        self.secrets = {(u, KEY): self.members[u].masking.raw for u in self.roster}
        self.secrets |= {(u, SEED): self.members[u].seed for u in self.roster}
        self.in_clear = {blob for said in self.letters.values() for blob in blobs(said)}
        sharing = [u for u, said in self.letters.items() if len(said) > 1]
        self.shares = {(u, v): self._shares(u, v) for u in sharing for v in self.graph.around(u)}
        messages = {name: said[2][0] for name, said in self.letters.items() if len(said) > 2}
        self.view = ObservedRelease(aggregation.bits, self.inputs, messages, self._pads())

    def _run(self, aggregation, sends, seed):
        self.aggregation, self.silos = aggregation, names(len(sends))
        self.protocols = ready(aggregation, len(sends))
        vectors = np.random.default_rng(seed).normal(size=(len(sends), D))
        sent = {name: [] for name in self.silos}
        cast = parties(self.protocols, vectors, streams=Streams(seed))
        for name, count in zip(self.silos, sends):
            cast[name] = noting(leaving(cast[name], count), sent[name])
        try:
            total = total_of(cast)
            self.summed, self.total = set(total.silos), total.vector
            self.aborted = ""
        except AggregationAbortedError as abort:
            self.summed, self.aborted = None, str(abort)
        self.letters = {name: [mail[SERVER] for mail in sent[name]] for name in self.silos}
        self.query = query_for(aggregation, len(sends))
        encode = self.query.encoding.encode
        self.inputs = {name: encode(vector, name) for name, vector in zip(self.silos, vectors)}

    def coalitions(self, largest):
        return [set(some) for size in range(largest + 1) for some in combinations(self.silos, size)]

    def _shares(self, owner, holder):
        """The holder's shares of the owner's secrets, by kind, from the sealed letter."""
        if owner == holder:
            return dict(zip((KEY, SEED), self.members[owner].own))
        keys = {"own": self.members[holder].channel, "peer": PublicKey(self.roster[owner][0])}
        envelope = Envelope(**keys, session=self.session, sender=owner, receiver=holder)
        both = np.frombuffer(envelope.unseal(self.letters[owner][1][1][holder]), dtype=np.uint32)
        return {KEY: both[:LIMBS], SEED: both[LIMBS:]}

    def _pads(self):
        pads = {frozenset([u]): pad(self.secrets[u, SEED], self.purpose) for u in self.roster}
        for u, v in combinations(self.roster, 2):
            if v not in self.graph.around(u):
                continue
            seed = pair_seed(self.members[u].masking, PublicKey(self.roster[v][1]), self.session)
            pads[frozenset([u, v])] = pad(seed, self.purpose)
        return pads

    def holders(self, owner, kind, colluding):
        """Whose shares of the secret the coalition has: the colluding silos', and those that were
        sent in the clear."""
        return {
            holder
            for holder in self.roster
            if (owner, holder) in self.shares
            and (holder in colluding or self.shares[owner, holder][kind].tobytes() in self.in_clear)
        }

    def known(self, colluding):
        """(owner, kind) of the secrets in the coalition's hands; those that are shared are put
        together to see."""
        return {
            (owner, kind)
            for (owner, kind), secret in self.secrets.items()
            if owner in colluding
            or secret in self.in_clear
            or self._rebuilds(owner, kind, colluding)
        }

    def _rebuilds(self, owner, kind, colluding):
        holders = sorted(self.holders(owner, kind, colluding))[: self.threshold]
        if len(holders) < self.threshold:
            return False
        place = points(self.graph.around(owner))
        rows = np.array([[self.shares[owner, holder][kind] for holder in holders]])
        (secret,) = Reconstruction.at([place[holder] for holder in holders]).secrets(rows)
        assert secret == self.secrets[owner, kind]
        assert kind == SEED or PrivateKey(secret).public.raw == self.roster[owner][1]
        return True

    def learned(self, colluding) -> list[Functional]:
        known = self.known(colluding)
        own = {frozenset([u]) for u, kind in known if kind == SEED}
        pairs = {
            pad for pad in self.view.pads if len(pad) == 2 and any((u, KEY) in known for u in pad)
        }
        return self.view.learned(colluding, own | pairs)

    def leaks(self, colluding) -> list[Functional]:
        """What the coalition learns beyond the sum of the honest silos that were chosen."""
        return [
            f for f in self.learned(colluding) if not is_multiple_of_sum(f, self.chosen - colluding)
        ]

    def revealed_to(self, colluding):
        """Whether the coalition holds enough shares to take the honest silos' own masks off the
        sum."""
        honest = self.chosen - colluding
        return bool(honest) and all(
            len(self.holders(u, SEED, colluding)) >= self.threshold for u in honest
        )


def pad(seed, purpose):
    return add_masks(np.zeros(D, dtype=np.uint64), [seed], purpose=purpose)


def blobs(content) -> Iterator[bytes]:
    """Everything in a message that could be a secret or a share."""
    if isinstance(content, dict):
        content = [*content.values()]
    if isinstance(content, list | tuple):
        for part in content:
            yield from blobs(part)
    elif not isinstance(content, str):
        yield content if isinstance(content, bytes) else content.tobytes()
