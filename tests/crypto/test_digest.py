import hashlib

from fedpriv.crypto.digest import digest


def test_a_digest_keeps_values_apart():
    assert (
        len(
            {
                digest("ab", "c"),
                digest("a", "bc"),
                digest("abc"),
                digest("ab", "c", ""),
                digest(1),
                digest(11),
            }
        )
        == 6
    )


def test_a_digest_is_the_hash_of_its_parts_with_their_lengths():
    parts = (
        bytes([2, *bytes(7)])
        + b"ab"
        + bytes([2, *bytes(7)])
        + b"\xff\x00"
        + bytes([2, *bytes(7)])
        + b"-7"
    )
    assert digest("ab", b"\xff\x00", -7) == hashlib.sha256(parts).digest()
