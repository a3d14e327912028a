"""The proof of a modulus, and moduli that have none."""

import pytest
from gmpy2 import invert, next_prime, powmod

from fedpriv.crypto.paillier.keys import EncryptionKey, generate_key
from fedpriv.crypto.paillier.modulus_proof import (
    ROOTS,
    challenges,
    check_modulus,
    proof_bytes,
    prove_modulus,
)
from fedpriv.crypto.uniform_integers import to_bytes

KEY = generate_key(512)


def prime(start):
    return int(next_prime(start))


def refused(n, proof, match, *, context=b"here", prime_to=1):
    with pytest.raises(ValueError, match=match):
        check_modulus(EncryptionKey(n), proof, context, prime_to=prime_to)


def test_a_key_has_a_proof_for_one_context():
    proof = prove_modulus(KEY, b"here")
    assert len(proof) == proof_bytes(512) == ROOTS * 64
    check_modulus(KEY.public, proof, b"here", prime_to=6)
    refused(KEY.public.n, proof, "no proof", context=b"there")
    refused(KEY.public.n, bytes(len(proof)), "no proof")
    refused(KEY.public.n, proof[:-1], "bytes for")
    other = generate_key(512)
    refused(KEY.public.n, prove_modulus(other, b"here"), "no proof|not below")


def best_roots(p, q, context=b"here"):
    """What the owner of p and q = k p + 1 can answer: roots of those challenges that have any."""
    n = p * q
    exponent = invert(n, (p - 1) * (q - 1) // p)
    roots = [int(powmod(each, exponent, n)) for each in challenges(EncryptionKey(n), context)]
    return to_bytes(roots, n)


def test_a_modulus_that_is_not_prime_to_the_order_has_no_proof():
    p = prime(2**100)
    k = 2
    while (q := k * p + 1) and prime(q - 1) != q:
        k += 2
    refused(p * q, best_roots(p, q), "no proof")


def test_primes_squares_and_small_factors_are_refused():
    p = prime(2**255)
    refused(p, bytes(ROOTS * 32), "a prime or a square")
    refused(p * p, bytes(ROOTS * 64), "a prime or a square")
    for small in (3, 7, 65521):
        refused(small * p, bytes(ROOTS * 40), "a small factor")
    large = prime(2**17)
    refused(large * p, bytes(ROOTS * 40), "a small factor", prime_to=large)


def test_more_primes_have_a_proof_too():
    """It shows what encryption rests on, not that there are two."""
    p, q = prime(2**128), prime(2**129) * prime(2**130)
    n = p * q
    order = (p - 1) * (prime(2**129) - 1) * (prime(2**130) - 1)
    roots = [
        int(powmod(challenge, invert(n, order), n))
        for challenge in challenges(EncryptionKey(n), b"here")
    ]
    check_modulus(EncryptionKey(n), to_bytes(roots, n), b"here", prime_to=6)
