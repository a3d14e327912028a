"""Oblivious transfer, 1 out of b: the receiver gets the message that it chooses, the sender does not learn which.

T. Chou and C. Orlandi, The simplest protocol for oblivious transfer (LATINCRYPT 2015), in the squares modulo the prime
p of group 15 of RFC 3526, a group of prime order q = (p - 1) / 2. The sender publishes S = g^y. For choice c the
receiver sends R = S^c g^x with x uniform below q: R is uniform in the group whatever c is, so the choice is hidden
perfectly. The key of message j is a hash of R^y S^(-jy) and of what was said before; the receiver can compute it for
j = c alone, as S^x. One S serves for all transfers of a silo and round, so that the receiver's powers have two fixed
bases; y has 512 bits, above the 420 that RFC 3526 asks for in this group.

Security: against parties that follow the protocol, under the computational Diffie-Hellman assumption with SHA-256 as a
random oracle. Messages are sealed with AES-256-GCM; a key serves once, so the nonce is constant.

    S -> `element`      R -> `requests`      x, y -> exponents
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import cache

import gmpy2
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from gmpy2 import invert, mpz, powmod

from fedpriv.aggregation.masks import digest
from fedpriv.aggregation.private_weighting_integers import from_bytes, to_bytes

NONCE = bytes(12)
GENERATOR = 4
"""A square, and so a generator of the squares, whose number is prime."""
TAG_BYTES = 16
SENDER_BITS = 512
WINDOW = 4
"""Bits of an exponent that one multiplication takes care of."""


@cache
def prime() -> int:
    """p = 2^3072 - 2^3008 - 1 + 2^64 (floor(2^2942 pi) + 1690314), RFC 3526, section 4."""
    with gmpy2.context(precision=3100, round=gmpy2.RoundDown):
        digits = int(gmpy2.floor(gmpy2.const_pi() * mpz(2) ** 2942))
    return 2**3072 - 2**3008 - 1 + 2**64 * (digits + 1690314)


def order() -> int:
    """q, how many squares there are."""
    return (prime() - 1) // 2


class Sender:
    """The server towards one silo in one round."""

    def __init__(self, silo: str, round: int) -> None:
        self.session = _session(silo, round)
        self._exponent = secrets.randbits(SENDER_BITS)
        self._own = powmod(GENERATOR, self._exponent, prime())
        self.element = to_bytes([int(self._own)], prime())

    def seal(self, requests: bytes, messages: Sequence[Sequence[bytes]]) -> list[bytes]:
        """All messages of every transfer, sealed, in order; a transfer's are equally long and together in one piece.
        Raises ValueError for requests that are no squares."""
        p = prime()
        step = invert(powmod(self._own, self._exponent, p), p)
        sealed = []
        for index, (request, offered) in enumerate(zip(_elements(requests, len(messages)), messages, strict=True)):
            secret, pieces = powmod(request, self._exponent, p), []
            for message in offered:
                key = _key(self.session, index, self.element, request, secret)
                pieces.append(AESGCM(key).encrypt(NONCE, message, None))
                secret = secret * step % p
            sealed.append(b"".join(pieces))
        return sealed


class Receiver:
    """A silo that has chosen. choices: for each transfer, which message it wants. Raises ValueError for an element that
    is no square."""

    def __init__(self, silo: str, round: int, element: bytes, choices: Sequence[int]) -> None:
        p, session = prime(), _session(silo, round)
        [other] = _elements(element, 1)
        of_generator, of_other = _windows(mpz(GENERATOR), p), _windows(other, p)
        self.choices, self._keys, requests = choices, [], []
        for index, choice in enumerate(choices):
            exponent = secrets.randbelow(order())
            request = powmod(other, choice, p) * _power(of_generator, exponent, p) % p
            requests.append(int(request))
            self._keys.append(_key(session, index, element, request, _power(of_other, exponent, p)))
        self.requests = to_bytes(requests, p)

    def open(self, sealed: Sequence[bytes], size: int) -> list[bytes]:
        """The chosen messages, `size` bytes each. Raises InvalidTag for an altered one."""
        whole = size + TAG_BYTES
        pieces = [raw[choice * whole : (choice + 1) * whole] for raw, choice in zip(sealed, self.choices, strict=True)]
        return [AESGCM(key).decrypt(NONCE, piece, None) for key, piece in zip(self._keys, pieces, strict=True)]


def _elements(raw: bytes, count: int) -> list[mpz]:
    elements = [mpz(number) for number in from_bytes(raw, prime(), count)]
    if any(gmpy2.jacobi(element, prime()) != 1 for element in elements):
        raise ValueError("not an element of the group")
    return elements


def _windows(base: mpz, p: int) -> list[list[mpz]]:
    """base^(digit * 2^(WINDOW * place)) for every place of an exponent below p and every digit."""
    tables = []
    for _ in range(0, p.bit_length(), WINDOW):
        table = [mpz(1)]
        for _ in range(2**WINDOW):
            table.append(table[-1] * base % p)
        base = table.pop()
        tables.append(table)
    return tables


def _power(tables: list[list[mpz]], exponent: int, p: int) -> mpz:
    result = mpz(1)
    for place, table in enumerate(tables):
        result = result * table[exponent >> (WINDOW * place) & (2**WINDOW - 1)] % p
    return result


def _session(silo: str, round: int) -> bytes:
    return digest("private weighting transfer", silo, round)


def _key(session: bytes, index: int, element: bytes, request: mpz, secret: mpz) -> bytes:
    return digest(session, index, element, to_bytes([int(request), int(secret)], prime()))
