import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from scipy.stats import chisquare

from fedpriv.aggregation.masks import BLOCK_BYTES, add_masks, agree, digest, new_key, public_key

SEED = bytes(range(32))


def mask(size, seed=SEED, purpose=b"", dtype=np.uint64):
    return add_masks(np.zeros(size, dtype), [seed], purpose=purpose)


def test_both_parties_derive_one_seed_and_nobody_elses():
    (a, A), (b, B), (c, C) = new_key(), new_key(), new_key()
    assert public_key(a) == A
    assert agree(a, B, b"x") == agree(b, A, b"x")
    assert len({agree(a, B, b"x"), agree(a, C, b"x"), agree(c, B, b"x"), agree(a, B, b"y")}) == 4
    with pytest.raises(ValueError, match="shared key"):
        agree(a, bytes(32), b"x")  # the point that makes every agreement zero


def test_public_keys_of_rfc_7748():
    # RFC 7748, section 6.1: Alice and Bob.
    alice = "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a"
    bob = "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb"
    assert public_key(bytes.fromhex(alice)).hex() == "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
    assert public_key(bytes.fromhex(bob)).hex() == "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"


@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
def test_a_mask_is_the_key_stream_across_blocks(dtype):
    # Oracle: the whole stream in one call.
    size = 2 * BLOCK_BYTES // np.dtype(dtype).itemsize + 5
    key = HKDFExpand(SHA256(), 32, info=b"fedpriv mask/p").derive(SEED)
    stream = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor().update(bytes(size * 8))
    np.testing.assert_array_equal(mask(size, SEED, b"p", dtype), np.frombuffer(stream, dtype)[:size])


def test_masks_cancel_and_differ_by_seed_and_purpose():
    vector = np.arange(10, dtype=np.uint64)
    masked = add_masks(vector.copy(), [SEED], [bytes(32)], b"p")
    assert not (masked == vector).any()
    np.testing.assert_array_equal(add_masks(masked, [bytes(32)], [SEED], b"p"), vector)
    assert len({mask(4, s, p).tobytes() for s in (SEED, bytes(32)) for p in (b"p", b"q")}) == 4


@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
def test_masks_are_uniform(dtype):
    counts = np.bincount(mask(100_000, dtype=dtype).view(np.uint8), minlength=256)
    assert chisquare(counts).pvalue > 1e-6


def test_a_digest_keeps_values_apart():
    assert len({digest("ab", "c"), digest("a", "bc"), digest("abc"), digest("ab", "c", ""), digest(1), digest(11)}) == 6
