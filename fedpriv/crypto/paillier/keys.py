"""Paillier's cryptosystem (P. Paillier, Public-key cryptosystems based on composite degree
residuosity classes, EUROCRYPT 1999) with generator n + 1.

The ciphertext of m is (1 + m n) r modulo n^2, where r is an n-th residue: a number s^n. Multiplying
ciphertexts adds their messages modulo n, and raising one to k multiplies its message by k. Key
pairs come from python-paillier, and ciphertexts of either library are good for the other.
Arithmetic is not constant-time.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from gmpy2 import gcd, invert, mpz, powmod


class BadCiphertextError(ValueError):
    """Bytes that are no list of ciphertexts under this key."""


@dataclass(frozen=True)
class EncryptionKey:
    """The modulus n, product of two primes of equal length."""

    n: int

    @property
    def bits(self) -> int:
        """Length of n in bits."""
        return self.n.bit_length()

    @property
    def ciphertext_bytes(self) -> int:
        """Bytes of one ciphertext in a message."""
        return -(-2 * self.bits // 8)

    @cached_property
    def modulus(self) -> mpz:
        """n as gmpy2's integer."""
        return mpz(self.n)

    @cached_property
    def square(self) -> mpz:
        """n^2, the modulus of ciphertexts."""
        return self.modulus**2

    def encrypt(self, message: int, residue: mpz) -> mpz:
        """Ciphertext of `message` modulo n (a negative number counts from n downwards). `residue`
        must be a fresh n-th residue that serves once, see `residues`."""
        return self.add(residue, message)

    def add(self, ciphertext: mpz, message: int) -> mpz:
        """Ciphertext of the old message plus `message` modulo n. The n-th residue stays what it
        was."""
        return ciphertext * (1 + (message % self.modulus) * self.modulus) % self.square

    def to_bytes(self, ciphertexts: Iterable[mpz]) -> bytes:
        """Ciphertexts side by side, `ciphertext_bytes` each, least significant byte first."""
        return b"".join(int(c).to_bytes(self.ciphertext_bytes, "little") for c in ciphertexts)

    def from_bytes(self, raw: bytes, count: int) -> list[mpz]:
        """The `count` ciphertexts in `raw`. Raises BadCiphertextError for a wrong length, and for a
        number that is out of range or has a divisor in common with n."""
        size = self.ciphertext_bytes
        if len(raw) != count * size:
            raise BadCiphertextError(f"{len(raw)} bytes for {count} ciphertexts of {size}")
        numbers = [
            mpz(int.from_bytes(raw[k * size : (k + 1) * size], "little")) for k in range(count)
        ]
        product = mpz(1)
        for number in numbers:
            product = product * number % self.modulus  # one gcd serves for all
        if any(number >= self.square for number in numbers) or gcd(product, self.modulus) != 1:
            raise BadCiphertextError("not a ciphertext under this key")
        return numbers


@dataclass(frozen=True)
class DecryptionKey:
    """The two primes. Their holder reads every ciphertext, and its n-th residue too."""

    p: int = field(repr=False)
    q: int = field(repr=False)

    @cached_property
    def public(self) -> EncryptionKey:
        """The public key."""
        return EncryptionKey(self.p * self.q)

    def encrypt(self, message: int) -> mpz:
        """Ciphertext of `message` modulo n with a fresh n-th residue."""
        return self.public.add(self.residue(), message)

    def residue(self) -> mpz:
        """A uniform n-th residue modulo n^2, by the Chinese remainder theorem.

        s -> s^p maps the units modulo p one to one onto the n-th residues modulo p^2 (there are p -
        1 of either, and n is prime to p - 1), so the exponents have half the length of n. Fresh
        from the operating system.
        """
        p = mpz(self.p)
        q = mpz(self.q)
        halves = [powmod(1 + secrets.randbelow(int(r) - 1), r, r * r) for r in (p, q)]
        return _join(halves, (p * p, q * q), self._inverse_of_squares)

    def decrypt(self, ciphertext: mpz) -> int:
        """The message, 0..n-1, by the Chinese remainder theorem."""
        p = mpz(self.p)
        q = mpz(self.q)
        halves = [
            (powmod(ciphertext, r - 1, r * r) - 1) // r * scale % r
            for r, scale in zip((p, q), self._scales, strict=True)
        ]
        return int(_join(halves, (p, q), self._inverse_of_primes))

    @cached_property
    def _scales(self) -> tuple[mpz, mpz]:
        """Inverses of (p - 1) q modulo p and of (q - 1) p modulo q: they remove the factor that
        (n + 1)^(p-1) adds to the message."""
        return invert(-self.q, self.p), invert(-self.p, self.q)

    @cached_property
    def _inverse_of_primes(self) -> mpz:
        return invert(self.p, self.q)

    @cached_property
    def _inverse_of_squares(self) -> mpz:
        return invert(self.p**2, self.q**2)


def generate_key(bits: int) -> DecryptionKey:
    """A fresh key whose n has `bits` bits, by python-paillier from the operating system's
    randomness. 3072 bits for real use; a few hundred only in tests."""
    from phe import generate_paillier_keypair

    _, private = generate_paillier_keypair(n_length=bits)
    return DecryptionKey(int(private.p), int(private.q))


def _join(residues: Sequence[mpz], moduli: tuple[mpz, mpz], inverse: mpz) -> mpz:
    """The number below p q that is a modulo p and b modulo q; `inverse` is that of p modulo q."""
    (a, b), (p, q) = residues, moduli
    return a + p * ((b - a) * inverse % q)
