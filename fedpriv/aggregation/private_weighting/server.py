"""The server's part in private weighting: a key pair, the inverses of blinded totals, and the
decryption of sums."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from fractions import Fraction

from gmpy2 import invert

from fedpriv.aggregation.base import BROADCAST, MESSAGE, SERVER, HelperProtocol, encoding_of
from fedpriv.aggregation.private_weighting.sampling import options_to_hide, orders, transfer_session
from fedpriv.aggregation.private_weighting.settings import (
    CountsRefusedError,
    PrivateWeightingSettings,
)
from fedpriv.aggregation.private_weighting.weighted_product import multiply
from fedpriv.aggregation.weighted import COUNTS, KEYS, received_keys
from fedpriv.crypto.oblivious_transfer import ELEMENT_BYTES, Sender
from fedpriv.crypto.paillier.keys import DecryptionKey, generate_key
from fedpriv.crypto.paillier.modulus_proof import prove_modulus
from fedpriv.crypto.prg import KEY_BYTES
from fedpriv.crypto.sealing import TAG_BYTES
from fedpriv.crypto.uniform_integers import from_bytes, width
from fedpriv.encoding.slots import SlotEncoding
from fedpriv.parties.party import Mail, Party
from fedpriv.parties.post import Expected, Post, blaming
from fedpriv.parties.schema import Raw, Table
from fedpriv.rounds.query import Broadcast, Query, SetUpTask, Total

SEED, REQUESTS, OFFERS = "sealed seed", "requests", "offers"
"""Phases that no other aggregation has."""
NAMED = 10
"""Users named in an error."""
SEALED_SEED = KEY_BYTES + TAG_BYTES
"""Bytes of the sealed common seed."""


@dataclass(repr=False)
class PrivateWeightingServer(HelperProtocol):
    """A server that decrypts sums, and learns no counts.

    silos: all silos, sorted; the first one leads the set-up.
    aggregation: what all parties agree on.
    key: of the silos' sums; None before the set-up.
    inverses: of the blinded totals, by user.
    encrypted: all inverses under the key, since the first query in which everybody takes part.
    """

    silos: tuple[str, ...]
    aggregation: PrivateWeightingSettings
    key: DecryptionKey | None = None
    inverses: list[int] = field(default_factory=list)
    encrypted: bytes | None = None

    def setup(self, task: SetUpTask, n_units: int) -> Party:
        """Steps 1a to 1f: publish n with a proof; pass public keys and the sealed seed on; add up
        blinded counts; invert the totals.

        Raises CountsRefusedError for users whose blinded total is zero, AggregationAbortedError
        for a missing message.
        """
        key = generate_key(self.aggregation.key_bits)
        leader = self.silos[0]
        n = key.public.n
        post = task.post(SERVER, self.signer)
        keys = yield from received_keys(post, self.silos)
        proof = prove_modulus(key, task.session)
        down = dict.fromkeys(self.silos, (n.to_bytes(width(n), "little"), proof, keys))
        sealed = Expected(SEED, Table(self.silos[1:], Raw(SEALED_SEED)), (leader,))
        received = yield from post.exchange_all(KEYS, down, sealed)
        seeds = {name: received[leader].get(name) for name in self.silos}
        blinded = Expected(COUNTS, Raw(n_units * width(n)), self.silos)
        counts = yield from post.exchange_all(SEED, seeds, blinded)
        totals = [0] * n_units
        for name in self.silos:
            with blaming(name):
                totals = [(t + b) % n for t, b in zip(totals, from_bytes(counts[name], n, n_units))]
        absent = [str(user) for user, total in enumerate(totals) if total == 0]
        if absent:
            names = ", ".join(absent[:NAMED]) + (" and others" if len(absent) > NAMED else "")
            raise CountsRefusedError(
                f"no silo has a record of user {names}: aggregation=private_weighting shows this "
                "to the server; leave such users out of the list when linking records "
                "(allocator.n_users)"
            )
        self.key = key
        self.inverses = [int(invert(total, n)) for total in totals]
        self.encrypted = None

    def query(self, query: Query, broadcast: Broadcast) -> Party:
        """Steps 2a and 2c: send encrypted inverses, by oblivious transfer if nobody may know the
        sample; add up the messages and decrypt. Returns the Total.

        Raises AggregationAbortedError for a message that is missing or no list of ciphertexts,
        SlotOverflowError for a sum beyond its public bound.
        """
        key = self.key
        layout = encoding_of(query, SlotEncoding).layout
        if key is None:
            raise RuntimeError("private weighting needs a set-up before the first query")
        down = replace(broadcast, sampled=None)  # only the ciphertexts may depend on the sample
        options = options_to_hide(query.user_rate, self.aggregation.oblivious)
        post = query.post(SERVER, self.signer)
        columns = layout.columns(query.size)
        answers = Expected(MESSAGE, Raw(columns * key.public.ciphertext_bytes), self.silos)
        if options is None:
            mail = dict.fromkeys(self.silos, (down, self._encrypted_inverses(key, query)))
            received = yield from post.exchange_all(BROADCAST, mail, answers)
        else:
            sealed = yield from self._transfer(post, key, query, down, options=options)
            received = yield from post.exchange_all(OFFERS, sealed, answers)
        messages = []
        for name in self.silos:
            with blaming(name):
                messages.append(key.public.from_bytes(received[name], columns))
        products = multiply(key.public, messages)
        totals = [key.decrypt(product) for product in products]
        return Total(layout.decode(layout.unpack(totals, key.public.n, query.size)), self.silos)

    def _encrypted_inverses(self, key: DecryptionKey, query: Query) -> bytes:
        """Enc(1 / (r_u N_u)) for every sampled user and Enc(0) for the others.

        They are freshly encrypted for a sample. All queries in which everybody takes part have the
        same ones, so that silos can reuse what they have computed from them.
        """
        if query.sampled is not None:
            sample = zip(self.inverses, query.sampled, strict=True)
            return key.public.to_bytes(
                key.encrypt(inverse if here else 0) for inverse, here in sample
            )
        if self.encrypted is None:
            self.encrypted = key.public.to_bytes(map(key.encrypt, self.inverses))
        return self.encrypted

    def _transfer(
        self,
        post: Post,
        key: DecryptionKey,
        query: Query,
        down: Broadcast,
        *,
        options: Fraction,
    ) -> Generator[Mail, Mail, Mail]:
        """The inverses by oblivious transfer; returns what is sent next.

        For every user there are a / b = `options` b ciphertexts, of which a hold the
        inverse, in an order that the server draws. All silos get the same offers, and all of them
        choose the same place.
        """
        senders = {name: Sender(transfer_session(name, query)) for name in self.silos}
        mail = {name: (down, sender.element) for name, sender in senders.items()}
        requests = Expected(REQUESTS, Raw(len(self.inverses) * ELEMENT_BYTES), self.silos)
        received = yield from post.exchange_all(BROADCAST, mail, requests)
        offers = [
            [key.public.to_bytes([key.encrypt(inverse if real else 0)]) for real in row]
            for inverse, row in zip(
                self.inverses, orders(options, len(self.inverses), query), strict=True
            )
        ]
        sealed = {}
        for name, sender in senders.items():
            with blaming(name):
                sealed[name] = sender.seal(received[name], offers)
        return sealed
