"""A silo's part in private weighting: blinded counts once, and in every round its users' weighted sum, encrypted."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from gmpy2 import mpz

from fedpriv.aggregation.base import SERVER, Party
from fedpriv.aggregation.masks import KEY_BYTES, agree, digest, new_key, use_masks_once
from fedpriv.aggregation.paillier.keys import PublicKey
from fedpriv.aggregation.paillier.residues import PublishedResidues, TableResidues, tables_pay
from fedpriv.aggregation.paillier.weighted_product import hoist, seal, weighted_product
from fedpriv.aggregation.private_weighting_counts import refuse_many
from fedpriv.aggregation.private_weighting_integers import blind, cancelling_masks, integers_below, reading, to_bytes
from fedpriv.aggregation.private_weighting_sampling import Options, choices
from fedpriv.aggregation.private_weighting_transfer import Receiver
from fedpriv.aggregation.weighted import require_all

if TYPE_CHECKING:
    from fedpriv.aggregation.private_weighting_code import SlotCode
    from fedpriv.algorithms.base import Contributions, Plan, Update

NONCE = bytes(12)
"""A pair's channel key serves for one message, so the nonce may be constant."""


def silo_setup(name: str, counts: np.ndarray, limit: int, memory: dict[str, Any]) -> Party:
    """Steps 1a to 1e: agree on seeds with every other silo and on the common one, R; send blinded, masked counts.

    counts: (n_users,) int64. Raises CountsRefused for one above `limit`, before anything is sent.
    """
    refuse_many(name, counts, limit)
    private, public = new_key()
    inbox = yield {SERVER: public}
    require_all([SERVER], inbox)
    raw, keys = inbox[SERVER]
    n, peers = int.from_bytes(raw, "little"), [peer for peer in keys if peer != name]
    memory["n"], memory["counts"] = n, counts
    memory["seeds"] = {peer: agree(private, keys[peer], _pair("masks", name, peer)) for peer in peers}
    memory["seed"] = yield from _common_seed(name, min(keys), private, keys)
    blinded = [blind(n, memory["seed"], user) * count if count else 0 for user, count in enumerate(counts.tolist())]
    masks = cancelling_masks(n, len(blinded), name, memory["seeds"], digest("private weighting counts"))
    yield {SERVER: to_bytes(((b + m) % n for b, m in zip(blinded, masks)), n)}


def _common_seed(name: str, leader: str, private: bytes, keys: dict[str, bytes]) -> Party:
    """R, which the leader draws and sends to each other silo under their own key, through the server."""
    if name != leader:
        inbox = yield {}
        require_all([SERVER], inbox)
        with reading(leader):
            channel = agree(private, keys[leader], _pair("channel", name, leader))
            return AESGCM(channel).decrypt(NONCE, inbox[SERVER], None)
    seed = secrets.token_bytes(KEY_BYTES)
    channels = {peer: agree(private, key, _pair("channel", name, peer)) for peer, key in keys.items() if peer != name}
    yield {SERVER: {peer: AESGCM(key).encrypt(NONCE, seed, None) for peer, key in channels.items()}}
    return seed


def silo_round(
    name: str,
    plan: Plan,
    update: Update,
    options: Options | None,
    workers: int,
    sound: bool,
    memory: dict[str, Any],
) -> Party:
    """Step 2b: train, weigh under the server's encryption, add noise, dither and masks, re-randomise and send.

    plan: what silos are told of it. sound: whether to dither and re-randomise. Raises OutOfRange for a contribution
    beyond the clip bound.
    """
    if len(plan.cohort) != len(memory["seeds"]) + 1:
        raise RuntimeError("private weighting needs every silo in every round: masks would not cancel")
    use_masks_once(name, plan.round, memory)
    public, code, size = PublicKey(memory["n"]), plan.code, len(update.noise)
    units, coefficients = _collect(update.blocks, code, size)
    users = len(memory["counts"])
    inbox = yield {}
    require_all([SERVER], inbox)
    if options is None or not options.hides:
        raw = inbox[SERVER]
    else:
        with reading(SERVER):
            receiver = Receiver(name, plan.round, inbox[SERVER], choices(options, users, plan, memory["seed"]))
        inbox = yield {SERVER: receiver.requests}
        require_all([SERVER], inbox)
        with reading(SERVER):
            raw = b"".join(receiver.open(inbox[SERVER], public.ciphertext_bytes))
    powers = _hoisted(public, raw, code, workers, memory)
    products = _products(public, [powers[user] for user in units], coefficients, code, workers)
    plaintexts = code.plaintexts(update.noise, _dither(name, plan) if sound else lambda bound: 0)
    masks = cancelling_masks(
        public.n, len(products), name, memory["seeds"], digest("private weighting sums", plan.round)
    )
    hidden = [plaintext + mask for plaintext, mask in zip(plaintexts, masks)]
    residues = _residues(public).draw(len(products)) if sound else [mpz(1)] * len(products)
    yield {SERVER: public.to_bytes(seal(public, products, hidden, residues))}


def _collect(blocks: Iterator[Contributions], code: SlotCode, size: int) -> tuple[list[int], np.ndarray]:
    """Users with a contribution, and their coordinates as integers, (k, size) int64. Trains as it goes."""
    units, rows = [], [np.empty((0, size), dtype=np.int64)]
    for block in blocks:
        units += block.units.tolist()
        rows.append(code.coefficients(block.vectors.cpu().numpy()))
    return units, np.concatenate(rows)


def _hoisted(public: PublicKey, raw: bytes, code: SlotCode, workers: int, memory: dict[str, Any]) -> dict[int, mpz]:
    """The server's ciphertexts `raw` raised to r_u n_su C_LCM, for every user with records here. Remembered, because
    the server sends the same ones for as long as all users take part."""
    counts = memory["counts"]
    users = np.flatnonzero(counts).tolist()
    stamp = digest("private weighting inverses", raw)
    if memory.get("hoisted_from") != stamp:
        with reading(SERVER):
            inverses = public.from_bytes(raw, len(counts))
        factors = [blind(public.n, memory["seed"], user) * int(counts[user]) * code.layout.lcm for user in users]
        powers = hoist(public, [inverses[user] for user in users], factors, workers)
        memory["hoisted"], memory["hoisted_from"] = public.to_bytes(powers), stamp
    return dict(zip(users, public.from_bytes(memory["hoisted"], len(users))))


def _products(
    public: PublicKey, powers: list[mpz], coefficients: np.ndarray, code: SlotCode, workers: int
) -> list[mpz]:
    """Enc(C_LCM sum_u n_su / N_u a_u), packed; of the number zero, and not yet hidden, where nobody contributes."""
    if not powers:
        return [mpz(1)] * code.layout.columns(coefficients.shape[1])
    return weighted_product(public, powers, coefficients, code.layout, workers)


def _dither(name: str, plan: Plan) -> Callable[[int], int]:
    """Draws integers below a bound: from the operating system, or in a seeded simulation from a stream."""
    read = plan.streams.secret("dither", plan.round, name).bytes
    return lambda bound: integers_below(bound, 1, read)[0]


class _Residues:
    """Fresh n-th residues, one by one until so many have been drawn that preparing tables would have paid."""

    def __init__(self, public: PublicKey) -> None:
        self.public, self.source, self.drawn = public, PublishedResidues(public), 0

    def draw(self, count: int) -> list[mpz]:
        before, self.drawn = self.drawn, self.drawn + count
        if tables_pay(self.public.bits, self.drawn) and not tables_pay(self.public.bits, before):
            self.source = TableResidues(self.public)
        return self.source.draw(count)


@lru_cache(maxsize=1)
def _residues(public: PublicKey) -> _Residues:
    """One source for all silos of this process: residues are as good for who knows the tables, which are large."""
    return _Residues(public)


def _pair(purpose: str, name: str, peer: str) -> bytes:
    return digest("private weighting", purpose, *sorted((name, peer)))
