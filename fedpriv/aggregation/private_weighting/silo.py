"""A silo's part in private weighting: blinded counts once, then in every query its users' weighted
sum, encrypted.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache

import numpy as np
from gmpy2 import mpz

from fedpriv.aggregation.base import (
    BROADCAST,
    MESSAGE,
    SERVER,
    Respond,
    SiloProtocol,
    encoding_of,
)
from fedpriv.aggregation.private_weighting.sampling import (
    choices,
    options_to_hide,
    transfer_session,
)
from fedpriv.aggregation.private_weighting.server import OFFERS, REQUESTS, SEALED_SEED, SEED
from fedpriv.aggregation.private_weighting.settings import (
    CountsRefusedError,
    PrivateWeightingSettings,
)
from fedpriv.aggregation.private_weighting.weighted_product import (
    add_and_rerandomise,
    raise_to_factors,
    weighted_product,
)
from fedpriv.aggregation.weighted import (
    COUNTS,
    KEY,
    KEYS,
    signed_key,
    signed_key_schema,
    verified_keys,
)
from fedpriv.crypto import sealing, x25519
from fedpriv.crypto.digest import digest
from fedpriv.crypto.oblivious_transfer import ELEMENT_BYTES, Receiver
from fedpriv.crypto.paillier.keys import EncryptionKey
from fedpriv.crypto.paillier.modulus_proof import check_modulus, proof_bytes
from fedpriv.crypto.paillier.residues import TABLES_PAY, PublishedResidues, TableResidues
from fedpriv.crypto.prg import KEY_BYTES
from fedpriv.crypto.uniform_integers import integers_below, shared_bytes, shared_integers, to_bytes
from fedpriv.encoding.slot_layout import lcm_up_to
from fedpriv.encoding.slots import SlotEncoding
from fedpriv.parties.party import Mail, Party
from fedpriv.parties.post import Expected, Post, Serial, at_fault, blaming
from fedpriv.parties.schema import Maybe, Parts, Raw, Table
from fedpriv.rounds.query import Query, SetUpTask
from fedpriv.training.contributions import Contributions


def blind(n: int, seed: bytes, user: int) -> int:
    """r_u: uniform among 1..n-1 without a divisor in common with n."""
    read = shared_bytes(seed, digest("private weighting blind", n, user))
    while math.gcd(r := integers_below(n, 1, read)[0], n) != 1:
        pass
    return r


def cancelling_masks(
    *, n: int, count: int, name: str, seeds: Mapping[str, bytes], purpose: bytes
) -> list[int]:
    """Masks of silo `name` for `count` numbers modulo n. They are uniform for a party that lacks
    one of its pairs' seeds, and zero in the sum over all silos.

    seeds: by peer.
    purpose: must never mask two different lists.
    """
    sums = [0] * count
    for peer, seed in seeds.items():
        masks = shared_integers(n, count, seed=seed, purpose=purpose)
        sums = [s + m if peer > name else s - m for s, m in zip(sums, masks)]
    return sums


@dataclass(repr=False)
class PrivateWeightingSilo(SiloProtocol):
    """A silo whose record counts stay hidden.

    name: of this silo.
    silos: all silos, sorted; the first one leads the set-up.
    aggregation: what all parties agree on.
    public: the server's key; None before the set-up.
    counts: records that count, (n_users,) int64.
    pair_seeds: for masks, by the other silo.
    common_seed: R, which all silos have.
    spent: serial of the last query whose masks were used.
    powers: the server's ciphertexts raised to r_u n_su C_LCM, by user. They are kept, because the
        server sends the same ciphertexts for as long as all users take part.
    powers_of: digest of the ciphertexts behind `powers`.
    """

    name: str
    silos: tuple[str, ...]
    aggregation: PrivateWeightingSettings
    public: EncryptionKey | None = None
    counts: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    pair_seeds: dict[str, bytes] = field(default_factory=dict)
    common_seed: bytes = b""
    spent: Serial = (0, 0)
    powers: dict[int, mpz] = field(default_factory=dict)
    powers_of: bytes = b""

    def setup(self, task: SetUpTask, counts: np.ndarray) -> Party:
        """Steps 1a to 1e: agree on seeds with every other silo and on the common seed R; send
        blinded, masked counts.

        Raises CountsRefusedError for a count above the limit, before anything is sent.
        """
        limit = self.aggregation.count_limit(len(self.silos))
        if self.aggregation.count_cap is not None:
            counts = np.minimum(counts, limit)
        if counts.max(initial=0) > limit:
            raise CountsRefusedError(  # of public numbers alone
                f"{self.name} has a user with more than {limit} records, aggregation.n_max over "
                "the number of silos: raise aggregation.n_max, or set aggregation.count_cap to "
                "weigh by counts that are cut there"
            )
        private = x25519.PrivateKey.generate()
        post = task.post(self.name, self.signer)
        own = private.public.raw
        keys_of_all = Table(self.silos, signed_key_schema(self.signer))
        bits = self.aggregation.key_bits
        schema = Parts((Raw(-(-bits // 8)), Raw(proof_bytes(bits)), keys_of_all))
        answer = yield from post.ask(KEY, SERVER, signed_key(post, own), (KEYS, schema))
        raw, proof, signed = answer
        with blaming(SERVER):
            public = self._checked_key(int.from_bytes(raw, "little"), proof, task.session)
        keys = verified_keys(post, own, signed)
        peers = {peer: x25519.PublicKey(keys[peer]) for peer in self.silos if peer != self.name}
        seeds = self._seeds(private, peers, "masks")
        common = yield from self._common_seed(post, private, peers)
        self.public = public
        self.counts = counts
        self.pair_seeds = seeds
        self.common_seed = common
        self.spent = (0, 0)  # the new seeds have made no mask for a query yet; rounds begin at 1
        self.powers_of = b""
        blinded = [
            blind(public.n, common, user) * count if count else 0
            for user, count in enumerate(counts.tolist())
        ]
        masked = self._masked(public, blinded, digest("private weighting counts"))
        yield from post.send(COUNTS, {SERVER: to_bytes(masked, public.n)})

    def _checked_key(self, n: int, proof: bytes, session: bytes) -> EncryptionKey:
        """Raises ValueError for a modulus of another length, or with which the server would learn
        more than sums.

        The server learns r_u N_u modulo n for a random unit r_u, and so the greatest common divisor
        of N_u and n. Nothing is learned from it if n is prime to all possible N_u.
        """
        bits = self.aggregation.key_bits
        if n.bit_length() != bits or n % 2 == 0:
            raise ValueError(f"a modulus of {n.bit_length()} bits, not an odd one of {bits}")
        public = EncryptionKey(n)
        check_modulus(public, proof, session, prime_to=lcm_up_to(self.aggregation.n_max))
        return public

    def query(self, query: Query, respond: Respond) -> Party:
        """Step 2b: train; weigh under the server's encryption; add noise, dither and masks;
        re-randomise and send.

        Raises OutOfRangeError for a contribution beyond the clip bound, RuntimeError for a query
        that leaves a silo out or whose masks are used up.
        """
        public = self.public
        encoding = encoding_of(query, SlotEncoding)
        if public is None or len(query.invited) != len(self.silos):
            raise RuntimeError(
                "private weighting needs every silo in set-up and queries: masks would not cancel"
            )
        if query.serial <= self.spent:  # two messages under one mask reveal their difference
            raise RuntimeError(f"{self.name} has used its masks of round {query.round} already")
        self.spent = query.serial
        post = query.post(self.name, self.signer)
        options = options_to_hide(query.user_rate, self.aggregation.oblivious)
        size = len(self.counts) * public.ciphertext_bytes if options is None else ELEMENT_BYTES
        schema = Parts((query.broadcast_schema, Raw(size)))
        received = yield from post.receive_all(Expected(BROADCAST, schema, (SERVER,)))
        broadcast, raw = received[SERVER]
        job = yield from respond(broadcast).batched()
        with at_fault(self.name):
            users, coefficients = _collect(job.contributions, encoding, query.size)
        if options is not None:
            raw = yield from self._choose(post, public, query, raw, options=options)
        sound = self.aggregation.variant == "sound"
        with at_fault(self.name):
            self._raise_powers(public, raw, encoding)
            products = self._products(public, users, coefficients, encoding=encoding)
            dither = self._dither(query) if sound else lambda bound: 0
            plaintexts = encoding.plaintexts(job.noise, dither)
        masked = self._masked(public, plaintexts, digest("private weighting sums", *query.serial))
        residues = _residues(public).draw(len(products)) if sound else [mpz(1)] * len(products)
        message = add_and_rerandomise(public, products, plaintexts=masked, residues=residues)
        yield from post.send(MESSAGE, {SERVER: public.to_bytes(message)})

    def _seeds(
        self, private: x25519.PrivateKey, peers: dict[str, x25519.PublicKey], purpose: str
    ) -> dict[str, bytes]:
        """The seeds for `purpose` that this silo shares with each peer."""
        return {
            peer: private.derive_shared_seed(
                key, digest("private weighting", purpose, *sorted((self.name, peer)))
            )
            for peer, key in peers.items()
        }

    def _common_seed(
        self, post: Post, private: x25519.PrivateKey, peers: dict[str, x25519.PublicKey]
    ) -> Generator[Mail, Mail, bytes]:
        """R. The first silo draws it and sends it to each other silo, sealed, through the
        server."""
        leader = self.silos[0]
        if self.name != leader:
            received = yield from post.receive_all(Expected(SEED, Raw(SEALED_SEED), (SERVER,)))
            with blaming(leader):
                channel = self._seeds(private, {leader: peers[leader]}, "channel")[leader]
                return sealing.unseal(channel, received[SERVER])
        seed = secrets.token_bytes(KEY_BYTES)
        channels = self._seeds(private, peers, "channel")
        sealed = {peer: sealing.seal(key, seed) for peer, key in channels.items()}
        # The server's answer only says that the others have their seeds.
        yield from post.exchange(SEED, {SERVER: sealed}, Expected(SEED, Maybe(Raw(0)), (SERVER,)))
        return seed

    def _choose(
        self, post: Post, public: EncryptionKey, query: Query, element: bytes, *, options: Fraction
    ) -> Generator[Mail, Mail, bytes]:
        """The ciphertexts of all users, side by side, that this silo chooses from the server's
        offers."""
        places = choices(options, len(self.counts), query, seed=self.common_seed)
        with blaming(SERVER):
            receiver = Receiver(transfer_session(self.name, query), element, places)
        each = options.denominator * (public.ciphertext_bytes + sealing.TAG_BYTES)
        answer = (OFFERS, Parts((Raw(each),) * len(places), list))
        offers = yield from post.ask(REQUESTS, SERVER, receiver.requests, answer)
        with blaming(SERVER):
            return b"".join(receiver.unseal(offers, public.ciphertext_bytes))

    def _raise_powers(self, public: EncryptionKey, raw: bytes, encoding: SlotEncoding) -> None:
        """Raise the server's ciphertexts for every user with records here, unless they are those of
        the last query."""
        powers_of = digest("private weighting inverses", raw)
        if powers_of == self.powers_of:
            return
        with blaming(SERVER):
            inverses = public.from_bytes(raw, len(self.counts))
        users = np.flatnonzero(self.counts).tolist()
        lcm = encoding.layout.lcm
        factors = [
            blind(public.n, self.common_seed, user) * int(self.counts[user]) * lcm for user in users
        ]
        powers = raise_to_factors(public, [inverses[user] for user in users], factors)
        self.powers = dict(zip(users, powers))
        self.powers_of = powers_of

    def _products(
        self,
        public: EncryptionKey,
        users: list[int],
        coefficients: np.ndarray,
        *,
        encoding: SlotEncoding,
    ) -> list[mpz]:
        """Enc(C_LCM sum_u n_su / N_u a_u), packed. Without contributions an encryption of zero
        that hides nothing yet."""
        layout = encoding.layout
        if not users:
            return [mpz(1)] * layout.columns(coefficients.shape[1])
        powers = [self.powers[user] for user in users]
        return weighted_product(public, powers, coefficients, layout=layout)

    def _dither(self, query: Query) -> Callable[[int], int]:
        """Draws integers below a bound: from the operating system, or from a stream in a seeded
        simulation."""
        read = query.streams.secret(query.stream("dither"), query.round, self.name).bytes
        return lambda bound: integers_below(bound, 1, read)[0]

    def _masked(self, public: EncryptionKey, numbers: list[int], purpose: bytes) -> list[int]:
        """The numbers modulo n under masks that cancel in the sum over all silos."""
        masks = cancelling_masks(
            n=public.n, count=len(numbers), name=self.name, seeds=self.pair_seeds, purpose=purpose
        )
        return [(number + mask) % public.n for number, mask in zip(numbers, masks)]


def _collect(
    blocks: Iterator[Contributions], encoding: SlotEncoding, size: int
) -> tuple[list[int], np.ndarray]:
    """Users with a contribution, and their coordinates as integers, (k, size) int64. Reading the
    blocks trains."""
    users: list[int] = []
    rows = [np.empty((0, size), dtype=np.int64)]
    for block in blocks:
        users += block.units.tolist()
        rows.append(encoding.coefficients(block.vectors.cpu().numpy()))
    return users, np.concatenate(rows)


class _ResidueSource:
    """Fresh n-th residues: one by one until tables would have paid, then from tables."""

    def __init__(self, public: EncryptionKey) -> None:
        self.public = public
        self.drawn = 0
        self.source: PublishedResidues | TableResidues = PublishedResidues(public)

    def draw(self, count: int) -> list[mpz]:
        self.drawn += count
        if self.drawn > TABLES_PAY and isinstance(self.source, PublishedResidues):
            self.source = TableResidues(self.public)
        return self.source.draw(count)


@lru_cache(maxsize=1)
def _residues(public: EncryptionKey) -> _ResidueSource:
    """One source for all silos of this process: the tables are large, and knowing them does not
    weaken residues."""
    return _ResidueSource(public)
