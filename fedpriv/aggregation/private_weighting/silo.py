"""A silo's part in private weighting: blinded counts once, and in every query its users' weighted
sum, encrypted."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from gmpy2 import mpz

from fedpriv.aggregation.base import BROADCAST, MESSAGE, SERVER, Respond, SiloProtocol, trained
from fedpriv.aggregation.private_weighting.counts import refuse_many
from fedpriv.aggregation.private_weighting.integers import blind, cancelling_masks, slot_encoding
from fedpriv.aggregation.private_weighting.phases import OFFERS, REQUESTS, SEALED_SEED, SEED
from fedpriv.aggregation.private_weighting.sampling import (
    Options,
    choices,
    options_to_hide,
    transfer_session,
)
from fedpriv.aggregation.private_weighting.weighted_product import (
    add_and_rerandomise,
    raise_to_factors,
    weighted_product,
)
from fedpriv.aggregation.weighted import COUNTS, KEY, KEYS
from fedpriv.crypto import sealing, x25519
from fedpriv.crypto.digest import digest
from fedpriv.crypto.oblivious_transfer import ELEMENT_BYTES, Receiver
from fedpriv.crypto.paillier.keys import EncryptionKey
from fedpriv.crypto.paillier.residues import PublishedResidues, Residues, TableResidues, tables_pay
from fedpriv.crypto.prg import KEY_BYTES
from fedpriv.crypto.uniform_integers import integers_below, to_bytes
from fedpriv.encoding.slots import SlotEncoding
from fedpriv.parties.party import Mail, Party
from fedpriv.parties.post import Expected, Post, at_fault, blaming
from fedpriv.parties.schema import Maybe, Parts, Raw, Series, Table
from fedpriv.rounds.query import Contributions, Query, SetUp


@dataclass(repr=False)
class PrivateWeightingSilo(SiloProtocol):
    """silos: sorted; the first one leads the set-up.
    limit: most records of a user that count here.
    cut: counts above it are cut to it; without, they are refused.
    key_bits, oblivious, workers: as in `PrivateWeighting`.
    sound: whether to dither and re-randomise.

    public: the server's key; None before the set-up.
    counts: records that count, (n_users,) int64.
    pair_seeds: for masks, by the other silo.
    common_seed: R, which all silos have.
    spent: the last query whose masks are used up.
    powers: the server's ciphertexts raised to r_u n_su C_LCM, by user; kept, because the server
        sends the same ones for as long as all users take part.
    powers_of: stands for the ciphertexts that they were made from.
    """

    name: str
    silos: tuple[str, ...]
    limit: int
    cut: bool
    key_bits: int
    oblivious: bool
    workers: int
    sound: bool
    public: EncryptionKey | None = None
    counts: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    pair_seeds: dict[str, bytes] = field(default_factory=dict)
    common_seed: bytes = b""
    spent: tuple[int, int] = (0, 0)
    powers: dict[int, mpz] = field(default_factory=dict)
    powers_of: bytes = b""

    def setup(self, task: SetUp, counts: np.ndarray) -> Party:
        """Steps 1a to 1e: agree on seeds with every other silo and on the common one, R; send
        blinded, masked counts.

        Raises CountsRefusedError for a count above `limit`, before anything is sent.
        """
        counts = np.minimum(counts, self.limit) if self.cut else counts
        refuse_many(self.name, counts, self.limit)
        private = x25519.PrivateKey.generate()
        post = task.post(self.name)
        own = private.public.raw
        answer = Parts((Raw(-(-self.key_bits // 8)), Table(self.silos, Raw(x25519.KEY_BYTES))))
        heard = yield from post.exchange(KEY, {SERVER: own}, Expected(KEYS, answer, (SERVER,)))
        post.require_all([SERVER], heard)
        raw, keys = heard[SERVER]
        with blaming(SERVER):
            public = self._checked_key(int.from_bytes(raw, "little"))
            if keys[self.name] != own:
                raise ValueError(f"it holds another key for {self.name}")
            peers = {peer: x25519.PublicKey(keys[peer]) for peer in self.silos if peer != self.name}
            seeds = {
                peer: private.derive_shared_seed(key, self._pair("masks", peer))
                for peer, key in peers.items()
            }
        common = yield from self._common_seed(post, private, peers)
        self.public = public
        self.counts = counts
        self.pair_seeds = seeds
        self.common_seed = common
        self.spent, self.powers_of = (
            (0, 0),
            b"",
        )  # no mask for a query is made of these seeds yet; rounds begin at 1
        blinded = [
            blind(public.n, common, user) * count if count else 0
            for user, count in enumerate(counts.tolist())
        ]
        masked = self._masked(public, blinded, digest("private weighting counts"))
        yield from post.send(COUNTS, {SERVER: to_bytes(masked, public.n)})

    def _checked_key(self, n: int) -> EncryptionKey:
        """Raises ValueError for a modulus that is not `key_bits` long, or even."""
        if n.bit_length() != self.key_bits or n % 2 == 0:
            raise ValueError(
                f"a modulus of {n.bit_length()} bits, not an odd one of {self.key_bits}"
            )
        return EncryptionKey(n)

    def query(self, query: Query, respond: Respond) -> Party:
        """Step 2b: train, weigh under the server's encryption, add noise, dither and masks,
        re-randomise and send.

        Raises OutOfRangeError for a contribution beyond the clip bound, RuntimeError for a query
        that leaves a silo out, or whose masks are spent.
        """
        public = self.public
        encoding = slot_encoding(query)
        if public is None or len(query.invited) != len(self.silos):
            raise RuntimeError(
                "private weighting needs every silo in set-up and queries: masks would not cancel"
            )
        self._spend_masks(query)
        post = query.post(self.name)
        options = options_to_hide(query.user_rate, self.oblivious)
        size = len(self.counts) * public.ciphertext_bytes if options is None else ELEMENT_BYTES
        kind = Parts((query.broadcast_schema, Raw(size)))
        heard = yield from post.receive(Expected(BROADCAST, kind, (SERVER,)))
        post.require_all([SERVER], heard)
        broadcast, said = heard[SERVER]
        update = yield from trained(respond(broadcast))
        with at_fault(self.name):
            users, coefficients = _collect(update.blocks, encoding, query.size)
        raw = (
            said
            if options is None
            else (yield from self._choose(post, public, query, said, options=options))
        )
        with at_fault(self.name):
            self._raise_powers(public, raw, encoding)
            products = self._products(public, users, coefficients, encoding=encoding)
            plaintexts = encoding.plaintexts(update.noise, self._dither(query))
        masked = self._masked(public, plaintexts, digest("private weighting sums", *query.serial))
        residues = _residues(public).draw(len(products)) if self.sound else [mpz(1)] * len(products)
        message = add_and_rerandomise(public, products, plaintexts=masked, residues=residues)
        yield from post.send(MESSAGE, {SERVER: public.to_bytes(message)})

    def _common_seed(
        self, post: Post, private: x25519.PrivateKey, peers: dict[str, x25519.PublicKey]
    ) -> Generator[Mail, Mail, bytes]:
        """R, which the first silo draws and sends to each other one under their own key, through
        the server."""
        leader = self.silos[0]
        if self.name != leader:
            heard = yield from post.receive(Expected(SEED, Raw(SEALED_SEED), (SERVER,)))
            post.require_all([SERVER], heard)
            with blaming(leader):
                channel = private.derive_shared_seed(peers[leader], self._pair("channel", leader))
                return sealing.unseal(channel, heard[SERVER])
        seed = secrets.token_bytes(KEY_BYTES)
        channels = {
            peer: private.derive_shared_seed(key, self._pair("channel", peer))
            for peer, key in peers.items()
        }
        sealed = {peer: sealing.seal(key, seed) for peer, key in channels.items()}
        # The server's answer only tells the leader that the others have theirs.
        yield from post.exchange(SEED, {SERVER: sealed}, Expected(SEED, Maybe(Raw(0)), (SERVER,)))
        return seed

    def _choose(
        self,
        post: Post,
        public: EncryptionKey,
        query: Query,
        element: bytes,
        *,
        options: Options,
    ) -> Generator[Mail, Mail, bytes]:
        """The ciphertexts of all users, side by side, that this silo takes from those that the
        server offers."""
        places = choices(options, len(self.counts), query, seed=self.common_seed)
        with blaming(SERVER):
            receiver = Receiver(transfer_session(self.name, query), element, places)
        each = options.offered * (public.ciphertext_bytes + sealing.TAG_BYTES)
        offers = Expected(OFFERS, Series(len(places), Raw(each)), (SERVER,))
        heard = yield from post.exchange(REQUESTS, {SERVER: receiver.requests}, offers)
        post.require_all([SERVER], heard)
        with blaming(SERVER):
            return b"".join(receiver.unseal(heard[SERVER], public.ciphertext_bytes))

    def _raise_powers(self, public: EncryptionKey, raw: bytes, encoding: SlotEncoding) -> None:
        """Raise the server's ciphertexts for every user with records here, unless they are those of
        the last query."""
        stamp = digest("private weighting inverses", raw)
        if stamp == self.powers_of:
            return
        with blaming(SERVER):
            inverses = public.from_bytes(raw, len(self.counts))
        users = np.flatnonzero(self.counts).tolist()
        lcm = encoding.layout.lcm
        factors = [
            blind(public.n, self.common_seed, user) * int(self.counts[user]) * lcm for user in users
        ]
        powers = raise_to_factors(
            public, [inverses[user] for user in users], factors, workers=self.workers
        )
        self.powers = dict(zip(users, powers))
        self.powers_of = stamp

    def _products(
        self,
        public: EncryptionKey,
        users: list[int],
        coefficients: np.ndarray,
        *,
        encoding: SlotEncoding,
    ) -> list[mpz]:
        """Enc(C_LCM sum_u n_su / N_u a_u), packed; of the number zero, and not yet hidden, where
        nobody contributes."""
        if not users:
            return [mpz(1)] * encoding.layout.columns(coefficients.shape[1])
        powers = [self.powers[user] for user in users]
        return weighted_product(
            public, powers, coefficients, layout=encoding.layout, workers=self.workers
        )

    def _dither(self, query: Query) -> Callable[[int], int]:
        """Draws integers below a bound: from the operating system, or in a seeded simulation from a
        stream."""
        if not self.sound:
            return lambda bound: 0
        read = query.streams.secret(query.stream("dither"), query.round, self.name).bytes
        return lambda bound: integers_below(bound, 1, read)[0]

    def _masked(self, public: EncryptionKey, numbers: list[int], purpose: bytes) -> list[int]:
        """The numbers modulo n under masks that cancel in the sum over all silos."""
        masks = cancelling_masks(
            n=public.n, count=len(numbers), name=self.name, seeds=self.pair_seeds, purpose=purpose
        )
        return [(number + mask) % public.n for number, mask in zip(numbers, masks)]

    def _spend_masks(self, query: Query) -> None:
        """Raises RuntimeError when the query's masks, or a later one's, were used before: two
        messages under one mask give their difference away."""
        if query.serial <= self.spent:
            raise RuntimeError(f"{self.name} has used its masks of round {query.round} already")
        self.spent = query.serial

    def _pair(self, purpose: str, peer: str) -> bytes:
        return digest("private weighting", purpose, *sorted((self.name, peer)))


def _collect(
    blocks: Iterator[Contributions], encoding: SlotEncoding, size: int
) -> tuple[list[int], np.ndarray]:
    """Users with a contribution, and their coordinates as integers, (k, size) int64. Trains as it
    goes."""
    users: list[int] = []
    rows = [np.empty((0, size), dtype=np.int64)]
    for block in blocks:
        users += block.units.tolist()
        rows.append(encoding.coefficients(block.vectors.cpu().numpy()))
    return users, np.concatenate(rows)


class _ResidueSource:
    """Fresh n-th residues, one by one until so many have been drawn that preparing tables would
    have paid."""

    def __init__(self, public: EncryptionKey) -> None:
        self.public = public
        self.drawn = 0
        self.source: Residues = PublishedResidues(public)

    def draw(self, count: int) -> list[mpz]:
        before = self.drawn
        self.drawn = self.drawn + count
        if tables_pay(self.public.bits, self.drawn) and not tables_pay(self.public.bits, before):
            self.source = TableResidues(self.public)
        return self.source.draw(count)


@lru_cache(maxsize=1)
def _residues(public: EncryptionKey) -> _ResidueSource:
    """One source for all silos of this process: residues are as good for who knows the tables,
    which are large."""
    return _ResidueSource(public)
