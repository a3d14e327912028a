import math
import sys

import pytest
from gmpy2 import mpz
from hypothesis import given, settings
from hypothesis import strategies as st
from phe import EncryptedNumber, PaillierPrivateKey, PaillierPublicKey
from refusals import refused

from fedpriv.aggregation.private_weighting.settings import require_extra
from fedpriv.crypto.paillier.keys import BadCiphertextError, EncryptionKey, generate_key
from fedpriv.crypto.paillier.pairs import (
    doublings,
    join,
    power,
    split,
    subset_products,
    times,
)
from fedpriv.crypto.paillier.residues import PublishedResidues
from fedpriv.errors import ConfigError

KEY = generate_key(512)
PUBLIC = KEY.public
PHE_PUBLIC = PaillierPublicKey(PUBLIC.n)
PHE = PaillierPrivateKey(PHE_PUBLIC, KEY.p, KEY.q)
messages = st.integers(-(2**510), 2**510)


@settings(max_examples=30)
@given(messages)
def test_python_paillier_reads_our_ciphertexts_and_we_read_its(message):
    [residue] = PublishedResidues(PUBLIC).draw(1)
    for ciphertext in (KEY.encrypt(message), PUBLIC.encrypt(message, residue)):
        assert PHE.raw_decrypt(int(ciphertext)) == KEY.decrypt(ciphertext) == message % PUBLIC.n
    assert KEY.decrypt(PHE_PUBLIC.raw_encrypt(message % PUBLIC.n)) == message % PUBLIC.n
    assert PHE.decrypt(EncryptedNumber(PHE_PUBLIC, int(KEY.encrypt(5)))) == 5


@settings(max_examples=20)
@given(messages, messages)
def test_products_add_and_powers_multiply(a, b):
    product = KEY.encrypt(a) * KEY.encrypt(b) % PUBLIC.square
    assert KEY.decrypt(product) == (a + b) % PUBLIC.n
    assert KEY.decrypt(PUBLIC.add(KEY.encrypt(a), b)) == (a + b) % PUBLIC.n
    assert KEY.decrypt(pow(KEY.encrypt(a), b % PUBLIC.n, PUBLIC.square)) == a * b % PUBLIC.n


def test_a_key_has_the_length_asked_for_and_two_encryptions_differ():
    assert PUBLIC.bits == 512
    assert KEY.encrypt(1) != KEY.encrypt(1)
    assert generate_key(256) != generate_key(256)


def test_a_private_key_does_not_print_its_primes():
    assert str(KEY.p) not in repr(KEY)
    assert str(KEY.q) not in repr(KEY)


def test_the_key_holders_residues_are_nth_residues():
    # n-th residues are the numbers whose power phi(n) is one modulo n^2.
    phi = (KEY.p - 1) * (KEY.q - 1)
    drawn = {int(KEY.residue()) for _ in range(20)}
    assert len(drawn) == 20
    assert all(pow(r, phi, PUBLIC.n**2) == 1 for r in drawn)


def test_bytes_keep_ciphertexts_and_refuse_other_things():
    ciphertexts = [KEY.encrypt(k) for k in range(3)]
    raw = PUBLIC.to_bytes(ciphertexts)
    assert len(raw) == 3 * PUBLIC.ciphertext_bytes == 3 * 128
    assert PUBLIC.from_bytes(raw, 3) == ciphertexts
    assert PUBLIC.from_bytes(b"", 0) == []
    for bad in (
        raw[:-1],
        raw + b"\0",
        bytes(len(raw)),
        b"\xff" * len(raw),
        EncryptionKey.to_bytes(PUBLIC, [KEY.p] * 3),
    ):
        with pytest.raises(BadCiphertextError):
            PUBLIC.from_bytes(bad, 3)


# -- pairs of keys ---------------------------------------------------------------------------------


N = mpz(10**40 + 1)
numbers = st.integers(0, int(N) ** 2 - 1).map(mpz)


@given(numbers, numbers)
def test_products_are_those_modulo_the_square(a, b):
    assert join(split(a, N), N) == a
    assert join(times(split(a, N), split(b, N), N), N) == a * b % N**2


@given(numbers, st.integers(0, 2**80), st.integers(0, 9))
def test_powers_are_those_modulo_the_square(a, exponent, count):
    assert join(power(split(a, N), exponent, N), N) == pow(int(a), exponent, int(N) ** 2)
    assert join(doublings(split(a, N), count, N), N) == pow(int(a), 2**count, int(N) ** 2)


def test_subset_products_are_indexed_by_who_takes_part():
    products = [
        join(pair, N) for pair in subset_products([split(mpz(p), N) for p in (2, 3, 5, 7)], N)
    ]
    assert products == [
        math.prod(p for bit, p in enumerate((2, 3, 5, 7)) if k >> bit & 1) for k in range(16)
    ]


# -- without the extra -----------------------------------------------------------------------------


def test_without_the_extra_one_line_says_what_to_install(monkeypatch):
    require_extra()
    monkeypatch.setitem(sys.modules, "phe", None)
    start = "aggregation=private_weighting: needs gmpy2 and phe: "
    line = refused(require_extra, error=ConfigError, start=start)
    assert line.endswith("[private-weighting]'")
