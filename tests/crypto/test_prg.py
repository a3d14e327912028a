import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from fedpriv.crypto.prg import BLOCK_BYTES, SeededGenerator, add_masks, key_stream

SEED = bytes(range(32))


def mask(size, seed=SEED, purpose=b"", dtype=np.uint64):
    return add_masks(np.zeros(size, dtype), [seed], purpose=purpose)


@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
def test_a_mask_is_the_key_stream_across_blocks(dtype):
    # Oracle: the whole stream in one call.
    size = 2 * BLOCK_BYTES // np.dtype(dtype).itemsize + 5
    key = HKDFExpand(SHA256(), 32, info=b"fedpriv mask/p").derive(SEED)
    stream = (
        Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor().update(bytes(size * 8))
    )
    np.testing.assert_array_equal(
        mask(size, SEED, b"p", dtype), np.frombuffer(stream, dtype)[:size]
    )


def test_masks_cancel_and_differ_by_seed_and_purpose():
    vector = np.arange(10, dtype=np.uint64)
    masked = add_masks(vector.copy(), [SEED], [bytes(32)], purpose=b"p")
    assert not (masked == vector).any()
    np.testing.assert_array_equal(add_masks(masked, [bytes(32)], [SEED], purpose=b"p"), vector)
    assert len({mask(4, s, p).tobytes() for s in (SEED, bytes(32)) for p in (b"p", b"q")}) == 4


def test_a_seeded_generator_repeats_its_draws_and_no_other_seed_or_purpose_does():
    def drawn(seed, purpose):
        generator = SeededGenerator(seed, purpose)
        return (
            generator.bytes(3)
            + generator.integers(0, 1000, size=5).tobytes()
            + generator.random(4).tobytes()
        )

    first = drawn(bytes(32), b"one")
    assert drawn(bytes(32), b"one") == first
    assert len({first, drawn(bytes(31) + b"1", b"one"), drawn(bytes(32), b"two")}) == 3
    assert first[:3] == key_stream(bytes(32), b"one").update(bytes(3))
