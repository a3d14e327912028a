import pytest

from fedpriv.crypto.x25519 import PrivateKey, PublicKey

ALICE = "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a"
BOB = "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb"
# Points whose order divides 8: 0, 1, p - 1, p and a point of order 8 (RFC 7748, section 6.1, and
# cr.yp.to/ecdh.html).
LOW_ORDER = [
    "00" * 32,
    "01" + "00" * 31,
    "ec" + "ff" * 30 + "7f",
    "ed" + "ff" * 30 + "7f",
    "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
]


def test_both_parties_derive_one_seed_and_nobody_elses():
    a, b, c = PrivateKey.generate(), PrivateKey.generate(), PrivateKey.generate()
    assert a.derive_shared_seed(b.public, b"x") == b.derive_shared_seed(a.public, b"x")
    seeds = {
        a.derive_shared_seed(b.public, b"x"),
        a.derive_shared_seed(c.public, b"x"),
        c.derive_shared_seed(b.public, b"x"),
        a.derive_shared_seed(b.public, b"y"),
    }
    assert len(seeds) == 4
    assert {len(seed) for seed in seeds} == {32}


@pytest.mark.parametrize("point", LOW_ORDER)
def test_a_public_key_with_which_everybody_would_agree_is_refused(point):
    with pytest.raises(ValueError, match="shared key"):
        PrivateKey.generate().derive_shared_seed(PublicKey(bytes.fromhex(point)), b"x")


def test_public_keys_of_rfc_7748():
    # RFC 7748, section 6.1: Alice and Bob.
    alice, bob = (PrivateKey(bytes.fromhex(key)) for key in (ALICE, BOB))
    assert (
        alice.public.raw.hex() == "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
    )
    assert (
        bob.public.raw.hex() == "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
    )


def test_the_seed_is_hkdf_of_the_secret_of_rfc_7748():
    # Oracle: HKDF (RFC 5869) written out with hmac, on the shared secret that RFC 7748, section 6.1
    # gives.
    import hmac

    secret = bytes.fromhex("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742")
    extracted = hmac.digest(bytes(32), secret, "sha256")
    expected = hmac.digest(extracted, b"fedpriv seed/masks\x01", "sha256")
    alice, bob = (PrivateKey(bytes.fromhex(key)) for key in (ALICE, BOB))
    assert alice.derive_shared_seed(bob.public, b"masks") == expected


def test_a_private_key_does_not_print_itself():
    key = PrivateKey(bytes.fromhex(ALICE))
    assert repr(key) == str(key) == f"{key}" == "PrivateKey()"
    assert key.public.raw.hex() not in repr([key])
