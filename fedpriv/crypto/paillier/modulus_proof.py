"""A proof that a modulus n is prime to phi(n), and has no small factors, by the owner of the key.

R. Gennaro, D. Micciancio, T. Rabin, An efficient non-interactive statistical zero-knowledge proof
system for quasi-safe prime products (CCS 1998), section 3. The prover takes n-th roots modulo n of
random numbers. If n is prime to phi(n), every unit has exactly one root, and roots of random
numbers tell nothing: they are random units with their n-th powers. Otherwise a prime p divides n
and phi(n), and at most one unit in p has a root. No prime below `SMALL` divides n, so `ROOTS` roots
of all challenges exist with a probability of at most SMALL^-ROOTS = 2^-128. The challenges are a
digest of n and of a context (Fiat and Shamir, in the random oracle model).

What Paillier's encryption needs is just this: n-th residues and powers of n + 1 then make up all
units modulo n^2, so that a fresh residue hides everything about a ciphertext but its message. The
proof does not show that n has two prime factors. More of them make the owner's own key weaker.
"""

from __future__ import annotations

from functools import cache

from gmpy2 import gcd, invert, is_prime, isqrt, mpz, powmod, primorial

from fedpriv.crypto.digest import digest
from fedpriv.crypto.paillier.keys import DecryptionKey, EncryptionKey
from fedpriv.crypto.uniform_integers import from_bytes, shared_integers, to_bytes, width

SMALL = 2**16
"""No prime below it may divide a modulus."""
ROOTS = 8
"""Roots in a proof."""


def proof_bytes(bits: int) -> int:
    """Length of a proof for a modulus of so many bits."""
    return ROOTS * width(1 << (bits - 1))


def prove_modulus(key: DecryptionKey, context: bytes) -> bytes:
    """The n-th roots of the challenges, side by side."""
    n = key.public.modulus
    exponent = invert(n, (mpz(key.p) - 1) * (mpz(key.q) - 1))
    roots = [int(powmod(challenge, exponent, n)) for challenge in challenges(key.public, context)]
    return to_bytes(roots, key.public.n)


def check_modulus(public: EncryptionKey, proof: bytes, context: bytes, *, prime_to: int) -> None:
    """Raise ValueError unless n is prime to phi(n), to all small primes and to `prime_to`, and
    neither a prime nor a square.

    context: what the proof was made for.
    """
    n = public.modulus
    if gcd(n, _small_primes()) != 1 or gcd(n, prime_to) != 1:
        raise ValueError("a modulus with a small factor")
    if is_prime(n) or isqrt(n) ** 2 == n:
        raise ValueError("a modulus that is a prime or a square")
    roots = from_bytes(proof, public.n, ROOTS)
    for root, challenge in zip(roots, challenges(public, context), strict=True):
        if powmod(root, n, n) != challenge:
            raise ValueError("no proof that its modulus is prime to the order of its units")


def challenges(public: EncryptionKey, context: bytes) -> list[int]:
    """The numbers below n whose n-th roots are the proof."""
    seed = digest("paillier modulus", public.n, context)
    return shared_integers(public.n, ROOTS, seed=seed, purpose=b"modulus challenges")


@cache
def _small_primes() -> mpz:
    """The product of all primes below `SMALL`."""
    return primorial(SMALL)
