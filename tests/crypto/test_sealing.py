import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.crypto.sealing import TAG_BYTES, SealBrokenError, seal, unseal

KEY = bytes(range(32))


@given(st.binary(max_size=100))
def test_what_was_sealed_comes_back(content):
    sealed = seal(KEY, content)
    assert len(sealed) == len(content) + TAG_BYTES
    assert unseal(KEY, sealed) == content


def test_it_is_aes_256_in_galois_counter_mode():
    # Oracle: the library's cipher and its tag, in two pieces.
    encryptor = Cipher(algorithms.AES256(KEY), modes.GCM(bytes(12))).encryptor()
    expected = encryptor.update(b"content") + encryptor.finalize()
    assert seal(KEY, b"content") == expected + encryptor.tag


def test_altered_cut_and_foreign_messages_are_refused():
    sealed = seal(KEY, b"content")
    altered = [sealed[:k] + bytes([sealed[k] ^ 1]) + sealed[k + 1 :] for k in range(len(sealed))]
    for bad in (
        *altered,
        sealed[:-1],
        sealed + b"\0",
        b"",
        sealed[:5],
        seal(bytes(32), b"content"),
    ):
        with pytest.raises(SealBrokenError, match="seal is broken"):
            unseal(KEY, bad)
