"""The roster of long-term keys: what a file may hold, rotation, revocation, and binding."""

from hashlib import sha256

import pytest

from fedpriv.crypto.roster import Identity, Roster, new_identities
from fedpriv.crypto.signatures import SigningKey, VerificationKey
from fedpriv.errors import FedprivError

FIRST = "party,number,key,fingerprint,state\n"
NAMES = ("silo0", "silo1", "server")


def test_a_roster_comes_back_from_its_file(tmp_path):
    roster = new_identities(NAMES)["silo0"].roster
    rotated = roster.rotated("silo1", SigningKey.generate().verification_key).revoked("server")
    rotated.write(tmp_path / "roster.csv")
    again = Roster.read(tmp_path / "roster.csv")
    assert again == rotated
    assert again.digest == rotated.digest != roster.digest
    assert [(entry.party, entry.number, entry.state) for entry in again.entries] == [
        ("server", 1, "revoked"),
        ("silo0", 1, "active"),
        ("silo1", 1, "revoked"),
        ("silo1", 2, "active"),
    ]
    lines = (tmp_path / "roster.csv").read_text().splitlines()
    assert all(entry.key.fingerprint in line for entry, line in zip(again.entries, lines[1:]))


def test_a_fingerprint_is_that_of_the_key_alone():
    key = SigningKey(bytes(range(32))).verification_key
    parts = key.fingerprint.split("-")
    assert [len(part) for part in parts] == [4] * 8
    assert "".join(parts) == sha256(key.raw).hexdigest()[:32]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "the first line must be"),
        ("party,key\n", "the first line must be"),
        (
            FIRST + "silo0,1,00,f,active\n",
            "line 2: an Ed25519 key has 32 bytes",
        ),
        (FIRST + "silo0,1,zz,f,active\n", "line 2"),
        (FIRST + "silo0,1,{a},{f},lost\n", "line 2"),
        (
            FIRST + "silo0,1,{a},{g},active\n",
            "line 2: the key's fingerprint is",
        ),
        (FIRST + "silo0,x,{a},{f},active\n", "line 2"),
        (FIRST + "silo0,1,{a},{f}\n", "line 2"),
        (FIRST + "silo0,2,{a},{f},active\n", "not numbered"),
        (
            FIRST + "silo0,1,{a},{f},active\nsilo0,2,{b},{g},active\n",
            "two keys",
        ),
        (
            FIRST + "silo0,1,{a},{f},active\nsilo1,1,{a},{f},active\n",
            "two lines",
        ),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(tmp_path, text, why):
    path = tmp_path / "roster.csv"
    one, two = (VerificationKey(bytes([byte]) * 32) for byte in (17, 34))
    path.write_text(
        text.format(a=one.raw.hex(), b=two.raw.hex(), f=one.fingerprint, g=two.fingerprint)
    )
    with pytest.raises(FedprivError, match=why):
        Roster.read(path)


def test_a_file_that_is_missing_or_no_text_is_refused(tmp_path):
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for name in ("missing", "binary"):
        with pytest.raises(FedprivError, match=name):
            Roster.read(tmp_path / name)


def test_a_revoked_or_rotated_key_signs_nothing_any_more():
    identities = new_identities(NAMES)
    old = identities["silo0"]
    statement = ("message", 1)
    new_key = SigningKey.generate()
    for roster in (
        old.roster.revoked("silo0"),
        old.roster.rotated("silo0", new_key.verification_key),
    ):
        with pytest.raises(FedprivError, match="silo0"):
            Identity("silo0", old.key, roster)
        reader = Identity("silo1", identities["silo1"].key, roster).signer(b"s", b"1")
        signature = old.signer(b"s", b"1").sign(statement)
        assert not reader.verifies("silo0", signature, statement)
    rotated = old.roster.rotated("silo0", new_key.verification_key)
    reader = Identity("silo1", identities["silo1"].key, rotated).signer(b"s", b"1")
    signature = Identity("silo0", new_key, rotated).signer(b"s", b"1").sign(statement)
    assert reader.verifies("silo0", signature, statement)


def test_a_signature_is_bound_to_settings_session_and_roster():
    one, two = (new_identities(NAMES) for _ in range(2))
    statement = ("message", 1)
    signature = one["silo0"].signer(b"settings", b"session").sign(statement)
    reads = one["silo1"].signer
    assert reads(b"settings", b"session").verifies("silo0", signature, statement)
    for settings, session in ((b"others", b"session"), (b"settings", b"later"), (b"", b"")):
        assert not reads(settings, session).verifies("silo0", signature, statement)
    assert not reads(b"settings", b"session").verifies("silo1", signature, statement)
    stranger = two["silo1"].signer(b"settings", b"session")
    assert not stranger.verifies("silo0", signature, statement)
    # A key with a number more is in another roster, though the key of silo0 is the same.
    longer = one["silo0"].roster.rotated("server", SigningKey.generate().verification_key)
    other = Identity("silo1", one["silo1"].key, longer).signer(b"settings", b"session")
    assert not other.verifies("silo0", signature, statement)


def test_a_later_process_of_a_run_revokes_the_keys_before():
    first = new_identities(NAMES)["server"]
    later = new_identities(NAMES, first.roster)["server"]
    assert [(e.number, e.state) for e in later.roster.entries if e.party == "server"] == [
        (1, "revoked"),
        (2, "active"),
    ]
    with pytest.raises(FedprivError):
        Identity("server", first.key, later.roster)
