"""Oblivious transfer, 1 out of b: the receiver gets the message that it chooses, and the sender
does not learn the choice.

T. Chou and C. Orlandi, The simplest protocol for oblivious transfer (LATINCRYPT 2015), in the
squares modulo the prime p of group 15 of RFC 3526, a group of prime order q = (p - 1) / 2. The
sender publishes S = g^y. For choice c the receiver sends R = S^c g^x with x uniform below q: R is
uniform in the group for every c, so the choice is hidden perfectly. The key of message j is a hash
of R^y S^(-jy) and of the transcript. The receiver can compute it only for j = c, as S^x. One S
serves for all transfers of a session. y has 512 bits, above the 420 that RFC 3526 asks for in this
group.

Security: against parties that follow the protocol, under the computational Diffie-Hellman
assumption with SHA-256 as a random oracle. A session is bytes that name who talks to whom and when;
no two pairs of parties, and no two exchanges of a pair, may have the same.

    S -> `element`      R -> `requests`      x, y -> exponents
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import cache

import gmpy2
from gmpy2 import invert, mpz, powmod

from fedpriv.crypto import sealing
from fedpriv.crypto.digest import digest
from fedpriv.crypto.uniform_integers import from_bytes, to_bytes

GENERATOR = 4
"""A square, and so a generator of the squares: their number is prime."""
SENDER_BITS = 512
ELEMENT_BYTES = 384
"""Bytes of a number below p in a message."""


@cache
def prime() -> int:
    """p = 2^3072 - 2^3008 - 1 + 2^64 (floor(2^2942 pi) + 1690314), RFC 3526, section 4."""
    with gmpy2.context(precision=3100, round=gmpy2.RoundDown):
        digits = int(gmpy2.floor(gmpy2.const_pi() * mpz(2) ** 2942))
    return 2**3072 - 2**3008 - 1 + 2**64 * (digits + 1690314)


def order() -> int:
    """q, the number of squares."""
    return (prime() - 1) // 2


class Sender:
    """The party that offers messages, in one session."""

    def __init__(self, session: bytes) -> None:
        self.session = session
        self._exponent = secrets.randbits(SENDER_BITS)
        self._own = powmod(GENERATOR, self._exponent, prime())
        self.element = to_bytes([int(self._own)], prime())

    def seal(self, requests: bytes, messages: Sequence[Sequence[bytes]]) -> list[bytes]:
        """All messages of every transfer, sealed, in order. The messages of a transfer have equal
        lengths and form one piece. Raises ValueError for requests that are no squares."""
        p = prime()
        step = invert(powmod(self._own, self._exponent, p), p)
        sealed = []
        for index, (request, offered) in enumerate(
            zip(_elements(requests, len(messages)), messages, strict=True)
        ):
            secret = powmod(request, self._exponent, p)
            pieces = []
            for message in offered:
                key = _key(self.session, self.element, index, request=request, secret=secret)
                pieces.append(sealing.seal(key, message))
                secret = secret * step % p
            sealed.append(b"".join(pieces))
        return sealed


class Receiver:
    """The party that chooses, in one session.

    session: names the parties and the exchange.
    element: the sender's.
    choices: index of the wanted message, for each transfer.

    Raises ValueError for an element that is no square.
    """

    def __init__(self, session: bytes, element: bytes, choices: Sequence[int]) -> None:
        p = prime()
        [other] = _elements(element, 1)
        self.choices = choices
        self._keys: list[bytes] = []
        requests = []
        for index, choice in enumerate(choices):
            exponent = secrets.randbelow(order())
            request = powmod(other, choice, p) * powmod(GENERATOR, exponent, p) % p
            requests.append(int(request))
            secret = powmod(other, exponent, p)
            self._keys.append(_key(session, element, index, request=request, secret=secret))
        self.requests = to_bytes(requests, p)

    def unseal(self, sealed: Sequence[bytes], size: int) -> list[bytes]:
        """The chosen messages, `size` bytes each. Raises SealBrokenError for an altered one."""
        whole = size + sealing.TAG_BYTES
        pieces = [
            raw[choice * whole : (choice + 1) * whole]
            for raw, choice in zip(sealed, self.choices, strict=True)
        ]
        return [sealing.unseal(key, piece) for key, piece in zip(self._keys, pieces, strict=True)]


def _elements(raw: bytes, count: int) -> list[mpz]:
    elements = [mpz(number) for number in from_bytes(raw, prime(), count)]
    if any(gmpy2.jacobi(element, prime()) != 1 for element in elements):
        raise ValueError("not an element of the group")
    return elements


def _key(session: bytes, element: bytes, index: int, *, request: mpz, secret: mpz) -> bytes:
    return digest(session, index, element, to_bytes([int(request), int(secret)], prime()))
