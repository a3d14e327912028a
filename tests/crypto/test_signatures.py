import pytest

from fedpriv.crypto.signatures import SigningKey, VerificationKey

# RFC 8032, section 7.1, test 3.
SECRET = "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7"
PUBLIC = "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025"
SIGNATURE = (
    "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
    "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a"
)


def test_the_signature_of_rfc_8032():
    key = SigningKey(bytes.fromhex(SECRET))
    assert key.verification_key == VerificationKey(bytes.fromhex(PUBLIC))
    assert key.sign(b"\xaf\x82").hex() == SIGNATURE


def test_only_the_owner_signs_and_only_what_was_signed():
    key, other = SigningKey.generate(), SigningKey.generate()
    signature = key.sign(b"statement")
    assert key.verification_key.verifies(signature, b"statement")
    assert not key.verification_key.verifies(signature, b"another")
    assert not key.verification_key.verifies(other.sign(b"statement"), b"statement")
    assert not other.verification_key.verifies(signature, b"statement")
    altered = bytes([signature[0] ^ 1, *signature[1:]])
    for bad in (altered, b"", signature[:-1], signature + b"\0"):
        assert not key.verification_key.verifies(bad, b"statement")


def test_a_key_that_is_no_point_verifies_nothing():
    assert not VerificationKey(b"\xff" * 32).verifies(bytes(64), b"statement")


@pytest.mark.parametrize("kind", [SigningKey, VerificationKey])
@pytest.mark.parametrize("length", [0, 31, 33])
def test_keys_of_another_length_are_refused(kind, length):
    with pytest.raises(ValueError, match=f"32 bytes, not {length}"):
        kind(bytes(length))


def test_a_signing_key_does_not_print_itself():
    key = SigningKey(bytes.fromhex(SECRET))
    assert repr(key) == str(key) == "SigningKey()"
