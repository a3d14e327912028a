"""The server's part in private weighting: a key pair, the inverses of blinded totals, and the
decryption of sums."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from functools import partial

from gmpy2 import invert, mpz

from fedpriv.aggregation.base import BROADCAST, MESSAGE, SERVER, HelperProtocol
from fedpriv.aggregation.private_weighting.counts import refuse_none
from fedpriv.aggregation.private_weighting.integers import slot_encoding
from fedpriv.aggregation.private_weighting.phases import OFFERS, REQUESTS, SEALED_SEED, SEED
from fedpriv.aggregation.private_weighting.sampling import (
    Options,
    options_to_hide,
    orders,
    transfer_session,
)
from fedpriv.aggregation.private_weighting.weighted_product import multiply
from fedpriv.aggregation.weighted import COUNTS, KEY, KEY_BYTES, KEYS
from fedpriv.crypto.oblivious_transfer import ELEMENT_BYTES, Sender
from fedpriv.crypto.paillier.keys import DecryptionKey, generate_key
from fedpriv.crypto.paillier.parallel import even_ranges, map_in_processes
from fedpriv.crypto.uniform_integers import from_bytes, width
from fedpriv.parties.party import Mail, Party
from fedpriv.parties.post import Expected, Post, at_fault, blaming
from fedpriv.parties.schema import Raw, Table
from fedpriv.rounds.query import Broadcast, Query, SetUp, Total


@dataclass(repr=False)
class PrivateWeightingServer(HelperProtocol):
    """silos: sorted; the first one leads the set-up.
    key_bits, oblivious, workers: as in `PrivateWeighting`.

    key: of the silos' sums; None before the set-up.
    inverses: of the blinded totals, by user.
    encrypted: all inverses under the key, since the first query in which everybody takes part.
    """

    silos: tuple[str, ...]
    key_bits: int
    oblivious: bool
    workers: int
    key: DecryptionKey | None = None
    inverses: list[int] = field(default_factory=list)
    encrypted: bytes | None = None

    def setup(self, task: SetUp) -> Party:
        """Steps 1a to 1f: publish n, pass public keys and the sealed seed on, add up blinded
        counts, invert the totals.

        Raises CountsRefusedError for users whose blinded total is zero, AggregationAbortedError
        when somebody is silent.
        """
        key = generate_key(self.key_bits)
        leader = self.silos[0]
        n = key.public.n
        n_users = task.n_units
        post = task.post(SERVER)
        keys = yield from post.receive(Expected(KEY, Raw(KEY_BYTES), self.silos))
        post.require_all(self.silos, keys)
        raw = n.to_bytes(width(n), "little")
        seeds = Expected(SEED, Table(self.silos[1:], Raw(SEALED_SEED)), [leader])
        heard = yield from post.exchange(KEYS, dict.fromkeys(self.silos, (raw, keys)), seeds)
        post.require_all([leader], heard)
        for_each = {name: heard[leader].get(name) for name in self.silos}
        blinded = Expected(COUNTS, Raw(n_users * width(n)), self.silos)
        heard = yield from post.exchange(SEED, for_each, blinded)
        post.require_all(self.silos, heard)
        totals = [0] * n_users
        for name in self.silos:
            with blaming(name):
                totals = [(t + b) % n for t, b in zip(totals, from_bytes(heard[name], n, n_users))]
        refuse_none(totals)
        self.key = key
        self.inverses = [int(invert(total, n)) for total in totals]
        self.encrypted = None

    def query(self, query: Query, broadcast: Broadcast) -> Party:
        """Steps 2a and 2c: send encrypted inverses, obliviously where nobody may know the sample;
        add up the messages and decrypt. Returns the Total.

        Raises AggregationAbortedError when a message is missing or no list of ciphertexts, and its
        SlotOverflowError when the sum lies beyond its public bound.
        """
        key = self.key
        layout = slot_encoding(query).layout
        if key is None:
            raise RuntimeError("private weighting needs a set-up before the first query")
        down = replace(
            broadcast, sampled=None
        )  # who is sampled is told by what the ciphertexts hold alone
        options = options_to_hide(query.user_rate, self.oblivious)
        post = query.post(SERVER)
        columns = layout.columns
        answers = Expected(
            MESSAGE, Raw(columns(query.size) * key.public.ciphertext_bytes), self.silos
        )
        if options is None:
            said = dict.fromkeys(self.silos, (down, self._encrypted_inverses(key, query)))
            heard = yield from post.exchange(BROADCAST, said, answers)
        else:
            sealed = yield from self._transfer(post, key, query, down, options=options)
            heard = yield from post.exchange(OFFERS, sealed, answers)
        post.require_all(self.silos, heard)
        messages = []
        for name in self.silos:
            with blaming(name):
                messages.append(key.public.from_bytes(heard[name], columns(query.size)))
        products = multiply(key.public, messages)
        parts = [
            products[part.start : part.stop] for part in even_ranges(len(products), self.workers)
        ]
        with at_fault(SERVER):
            totals = [
                t
                for part in map_in_processes(partial(_decrypted, key), parts, self.workers)
                for t in part
            ]
        return Total(layout.decode(layout.unpack(totals, key.public.n, query.size)), self.silos)

    def _encrypted_inverses(self, key: DecryptionKey, query: Query) -> bytes:
        """Enc(1 / (r_u N_u)) for every sampled user and Enc(0) for the others: freshly encrypted
        for a sample, and once for all queries in which everybody takes part, so that silos can go
        on with what they have computed from it."""
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
        options: Options,
    ) -> Generator[Mail, Mail, Mail]:
        """The inverses by oblivious transfer: for every user `options.offered` ciphertexts, of
        which `options.real` hold the inverse, in an order that the server draws. All silos are
        offered the same; each gets the one that all of them choose alike. Returns what is to be
        sent next."""
        senders = {name: Sender(transfer_session(name, query)) for name in self.silos}
        said = {name: (down, sender.element) for name, sender in senders.items()}
        requests = Expected(REQUESTS, Raw(len(self.inverses) * ELEMENT_BYTES), self.silos)
        heard = yield from post.exchange(BROADCAST, said, requests)
        post.require_all(self.silos, heard)
        offers = [
            [key.public.to_bytes([key.encrypt(inverse if real else 0)]) for real in row]
            for inverse, row in zip(
                self.inverses, orders(options, len(self.inverses), query), strict=True
            )
        ]
        sealed = {}
        for name, sender in senders.items():
            with blaming(name):
                sealed[name] = sender.seal(heard[name], offers)
        return sealed


def _decrypted(key: DecryptionKey, ciphertexts: list[mpz]) -> list[int]:
    return [key.decrypt(c) for c in ciphertexts]
