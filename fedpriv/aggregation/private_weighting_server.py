"""The server's part in private weighting: a key pair, the inverses of blinded totals, and the decryption of sums."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from gmpy2 import invert, mpz

from fedpriv.aggregation.base import Party, Total
from fedpriv.aggregation.paillier.keys import PrivateKey, PublicKey, generate_key
from fedpriv.aggregation.paillier.spread import shares, spread
from fedpriv.aggregation.paillier.weighted_product import multiply
from fedpriv.aggregation.private_weighting_counts import refuse_none
from fedpriv.aggregation.private_weighting_integers import from_bytes, reading, width
from fedpriv.aggregation.private_weighting_sampling import Options, orders
from fedpriv.aggregation.private_weighting_transfer import Sender
from fedpriv.aggregation.weighted import require_all

if TYPE_CHECKING:
    from fedpriv.algorithms.base import Plan


def server_setup(silos: list[str], users: int, key_bits: int, memory: dict[str, Any]) -> Party:
    """Steps 1a to 1f: publish n, pass public keys and the sealed seed on, add up blinded counts, invert the totals.

    Raises CountsRefused for users whose blinded total is zero, AggregationAborted when somebody is silent.
    """
    key = generate_key(key_bits)
    n = key.public.n
    keys = yield {}
    require_all(silos, keys)
    raw = n.to_bytes(width(n), "little")
    inbox = yield {name: (raw, dict(keys)) for name in silos}
    require_all(silos[:1], inbox)
    sealed = inbox[silos[0]]
    inbox = yield {name: sealed.get(name, b"") for name in silos}
    require_all(silos, inbox)
    blinded = [_counts(name, inbox[name], n, users) for name in silos]
    totals = [sum(column) % n for column in zip(*blinded)]
    refuse_none(totals)
    memory["p"], memory["q"] = key.p, key.q
    memory["inverses"] = [int(invert(total, n)) for total in totals]


def server_round(
    silos: list[str], plan: Plan, size: int, options: Options | None, workers: int, memory: dict[str, Any]
) -> Party:
    """Steps 2a and 2c: send encrypted inverses, obliviously where nobody may know the sample; add up the messages and
    decrypt. Returns the Total of (size,) parameters.

    Raises AggregationAborted when a message is missing or no list of ciphertexts, SlotOverflow when the sum lies beyond
    its public bound.
    """
    key, layout = PrivateKey(memory["p"], memory["q"]), plan.code.layout
    if options is None or not options.hides:
        inbox = yield dict.fromkeys(silos, _inverses(key, plan, memory))
    else:
        inbox = yield from _transfer(key, silos, plan, options, memory["inverses"])
    require_all(silos, inbox)
    messages = [_ciphertexts(key.public, name, inbox[name], layout.columns(size)) for name in silos]
    products = multiply(key.public, messages)
    parts = [products[part.start : part.stop] for part in shares(len(products), workers)]
    totals = [total for part in spread(partial(_decrypted, key), parts, workers) for total in part]
    return Total(layout.decode(layout.unpack(totals, key.public.n, size)), tuple(silos))


def _inverses(key: PrivateKey, plan: Plan, memory: dict[str, Any]) -> bytes:
    """Enc(1 / (r_u N_u)) for every sampled user and Enc(0) for the others: freshly encrypted for a sample, and once for
    all rounds in which everybody takes part, so that silos can go on with what they have computed from it."""
    inverses = memory["inverses"]
    if plan.users is not None:
        return key.public.to_bytes(key.encrypt(i if here else 0) for i, here in zip(inverses, plan.users, strict=True))
    if "everybody" not in memory:
        memory["everybody"] = key.public.to_bytes(map(key.encrypt, inverses))
    return memory["everybody"]


def _transfer(key: PrivateKey, silos: list[str], plan: Plan, options: Options, inverses: list[int]) -> Party:
    """The inverses by oblivious transfer: for every user `options.all` ciphertexts, of which `options.real` hold the
    inverse, in an order that the server draws. All silos are offered the same; each gets the one that all of them
    choose alike. Returns the mail that follows."""
    senders = {name: Sender(name, plan.round) for name in silos}
    inbox = yield {name: sender.element for name, sender in senders.items()}
    require_all(silos, inbox)
    offers = [
        [key.public.to_bytes([key.encrypt(inverse if real else 0)]) for real in row]
        for inverse, row in zip(inverses, orders(options, len(inverses), plan), strict=True)
    ]
    return (yield {name: _sealed(sender, name, inbox[name], offers) for name, sender in senders.items()})


def _decrypted(key: PrivateKey, ciphertexts: list[mpz]) -> list[int]:
    return [key.decrypt(c) for c in ciphertexts]


def _counts(name: str, raw: bytes, n: int, users: int) -> list[int]:
    with reading(name):
        return from_bytes(raw, n, users)


def _ciphertexts(public: PublicKey, name: str, raw: bytes, count: int) -> list[mpz]:
    with reading(name):
        return public.from_bytes(raw, count)


def _sealed(sender: Sender, name: str, requests: bytes, offers: list[list[bytes]]) -> list[bytes]:
    with reading(name):
        return sender.seal(requests, offers)
