"""`fedpriv report --sign` and `--verify`: every alteration is found, and so is who signed."""

import json
import random
import shutil
from contextlib import nullcontext

import pytest
from command import refusal, run, success
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa

from fedpriv.reports.assessment.page import page
from fedpriv.reports.assessment.signing import (
    canonical,
    sign_page,
    sign_values,
    signing_key,
    verification_key,
)
from fedpriv.reports.assessment.verify import AlteredError, verify

PEM = serialization.Encoding.PEM
SECRET = serialization.PrivateFormat.PKCS8
PUBLIC = serialization.PublicFormat.SubjectPublicKeyInfo
ALTERATIONS = 60


def write_keys(folder, name):
    key = ed25519.Ed25519PrivateKey.generate()
    secret = key.private_bytes(PEM, SECRET, serialization.NoEncryption())
    (folder / f"{name}.pem").write_bytes(secret)
    (folder / f"{name}.pub").write_bytes(key.public_key().public_bytes(PEM, PUBLIC))


@pytest.fixture(scope="module")
def signed(tmp_path_factory):
    """A folder with a run, its signed report and the keys of two people."""
    root = tmp_path_factory.mktemp("signed")
    words = ["rounds=2", "preset.local_epochs=1", "quiet=true", "hydra.run.dir=run"]
    assert run(*words, cwd=root).returncode == 0
    for name in ("alice", "mallory"):
        write_keys(root, name)
    success("report", "run", "--sign", "alice.pem", "--out", "report.html", cwd=root)
    return root


def altered(content, rng):
    """One byte changed, added or taken away, or the end cut off."""
    place = rng.randrange(len(content))
    kind = rng.randrange(4)
    if kind == 0:
        other = (content[place] + rng.randrange(1, 256)) % 256
        return content[:place] + bytes([other]) + content[place + 1 :]
    if kind == 1:
        return content[:place] + bytes([rng.choice(b" \n<a0")]) + content[place:]
    return content[:place] + content[place + 1 :] if kind == 2 else content[:place]


@pytest.mark.parametrize("name", ["report.html", "report.json"])
def test_every_altered_byte_is_found(signed, tmp_path, name):
    content = (signed / name).read_bytes()
    assert verify(signed / name).values["folder"] == "run"
    rng = random.Random(name)
    file = tmp_path / name
    for _ in range(ALTERATIONS):
        changed = altered(content, rng)
        file.write_bytes(changed)
        # A byte that was inserted beside an equal one changes nothing.
        with nullcontext() if changed == content else pytest.raises(AlteredError):
            verify(file)


@pytest.mark.parametrize("name", ["report.html", "report.json"])
def test_a_key_with_which_anybody_can_sign_is_refused(signed, tmp_path, name):
    """The neutral element as a key, and as the signature's point: valid for every content."""
    key, signature = bytes([1]) + bytes(31), bytes([1]) + bytes(63)
    values = own_values(signed, "mallory")
    values["signer"]["key"] = key.hex()
    if name == "report.html":
        ending = f"key={key.hex()} signature={signature.hex()} -->\n"
        forged = page(values) + f"<!-- fedpriv-report-signature/1 {ending}".encode()
    else:
        forged = canonical(values | {"signature": signature.hex()})
    (tmp_path / name).write_bytes(forged)
    with pytest.raises(AlteredError, match="low order"):
        verify(tmp_path / name)


@pytest.mark.parametrize(
    "change", [bytes.upper, lambda written: b" ".join((written[:2], written[2:]))]
)
def test_a_signature_in_capitals_is_an_altered_file(signed, tmp_path, change):
    content = (signed / "report.json").read_bytes()
    written = json.loads(content)["signature"].encode()
    (tmp_path / "report.json").write_bytes(content.replace(written, change(written)))
    with pytest.raises(AlteredError):
        verify(tmp_path / "report.json")


@pytest.mark.parametrize("name", ["report.html", "report.json"])
@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize(
    "more", [b"\n", b" ", b"<style>.alarm{display:none}</style>", b"\xef\xbb\xbf"]
)
def test_nothing_stands_outside_the_signature(signed, tmp_path, name, place, more):
    content = (signed / name).read_bytes()
    file = tmp_path / name
    file.write_bytes(more + content if place == "before" else content + more)
    with pytest.raises(AlteredError):
        verify(file)


def test_whose_key_is_said_and_another_one_refused(signed):
    key = verification_key(signed / "alice.pub")
    for name in ("report.html", "report.json"):
        done = run("report", "--verify", name, "--key", "alice.pub", cwd=signed)
        assert (done.returncode, key.fingerprint in done.stdout) == (0, True)
        done = run("report", "--verify", name, "--key", "mallory.pub", cwd=signed)
        assert (done.returncode, done.stderr.count("\n")) == (1, 1)
        assert f"signed with another key: {key.fingerprint}" in done.stderr
        done = run("report", "--verify", name, cwd=signed)
        assert "Anybody can sign with a key of their own" in done.stdout


def test_a_signature_taken_off_and_put_on_by_another_is_refused(signed, tmp_path):
    """The page still names the first signer."""
    mallory = signing_key(signed / "mallory.pem")
    body = (signed / "report.html").read_bytes().rpartition(b"<!--")[0]
    (tmp_path / "report.html").write_bytes(sign_page(body, mallory))
    with pytest.raises(AlteredError, match="another key than the page names"):
        verify(tmp_path / "report.html")
    values = json.loads((signed / "report.json").read_bytes())
    del values["signature"]
    (tmp_path / "report.json").write_bytes(canonical(sign_values(values, mallory)))
    with pytest.raises(AlteredError):
        verify(tmp_path / "report.json")


def own_values(folder, name):
    key = signing_key(folder / f"{name}.pem").verification_key
    values = json.loads((folder / "report.json").read_bytes())
    del values["signature"]
    return values | {"signer": {"key": key.raw.hex(), "fingerprint": key.fingerprint}}


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body.replace(b'role="alert">SIMULATION', b'role="alert">CERTIFIED'),
        lambda body: body.replace(b"</style>", b".alarm { display: none; }</style>"),
        lambda body: body.replace(b"</body>", b"<p>Approved.</p></body>"),
        lambda body: body.replace(b"<body>", b"<body hidden>"),
    ],
)
def test_a_signer_cannot_show_something_else_than_the_contents(signed, tmp_path, change):
    """The page is made anew from the contents that it carries."""
    body = page(own_values(signed, "mallory"))
    assert change(body) != body
    file = tmp_path / "report.html"
    file.write_bytes(sign_page(change(body), signing_key(signed / "mallory.pem")))
    with pytest.raises(AlteredError, match="shows something else"):
        verify(file)
    file.write_bytes(sign_page(body, signing_key(signed / "mallory.pem")))
    assert verify(file).rendered


def test_a_signer_cannot_leave_the_warnings_out(signed, tmp_path):
    values = own_values(signed, "mallory")
    assert values["alarms"]
    quiet = sign_page(page(values | {"alarms": []}), signing_key(signed / "mallory.pem"))
    (tmp_path / "report.html").write_bytes(quiet)
    with pytest.raises(AlteredError, match="shows something else"):
        verify(tmp_path / "report.html")


@pytest.mark.parametrize(
    "change",
    [
        {"runs": []},
        {"runs": [3]},
        {"made": 7},
        {"runs": [{"folder": "x", "files": {"../x": ""}}]},
        {"runs": [{"folder": ["x"], "files": {}}]},
        {"audits": [{"folder": 3, "file": ""}]},
    ],
)
def test_contents_of_a_stranger_end_in_one_line(signed, tmp_path, change):
    key = signing_key(signed / "mallory.pem")
    values = own_values(signed, "mallory") | change
    (tmp_path / "report.json").write_bytes(canonical(sign_values(values, key)))
    done = run("report", "--verify", "report.json", str(signed), cwd=tmp_path)
    assert done.returncode in (1, 2)
    assert done.stderr.count("\n") == 1


def test_a_page_of_another_renderer_is_not_compared(signed, tmp_path):
    values = own_values(signed, "mallory") | {"renderer": "another"}
    made = sign_page(page(values), signing_key(signed / "mallory.pem"))
    (tmp_path / "report.html").write_bytes(made)
    assert verify(tmp_path / "report.html").rendered is False


def test_a_folder_that_has_changed_is_named(signed, tmp_path):
    """A copy of another name has not."""
    words = ["report", "--verify", str(signed / "report.html")]
    for name in ("run", "received"):
        shutil.copytree(signed / "run", tmp_path / name)
        assert run(*words, name, cwd=tmp_path).returncode == 0
    with open(tmp_path / "run" / "metrics.csv", "a") as file:
        file.write("3,0,1,1,0,,,,,\n")
    (tmp_path / "run" / "model.safetensors").unlink()
    done = run(*words, "run", cwd=tmp_path)
    assert done.returncode == 1
    assert "run/metrics.csv: changed; run/model.safetensors: missing" in done.stderr
    (tmp_path / "run").rename(tmp_path / "other")
    assert run(*words, "other", cwd=tmp_path).returncode == 1


def test_an_unsigned_report_does_not_verify(signed, tmp_path):
    assert run("report", str(signed / "run"), "--out", "plain.html", cwd=tmp_path).returncode == 0
    assert b"Not signed" in (tmp_path / "plain.html").read_bytes()
    for name in ("plain.html", "plain.json"):
        done = run("report", "--verify", name, cwd=tmp_path)
        assert done.returncode == 1
        assert "it was never signed, or the signature was cut off" in done.stderr


def test_keys_of_other_kinds_are_refused(signed, tmp_path):
    other = rsa.generate_private_key(65537, 2048)
    (tmp_path / "rsa").write_bytes(other.private_bytes(PEM, SECRET, serialization.NoEncryption()))
    own = ed25519.Ed25519PrivateKey.generate()
    locked = serialization.BestAvailableEncryption(b"secret")
    (tmp_path / "locked").write_bytes(own.private_bytes(PEM, SECRET, locked))
    (tmp_path / "text").write_text("-----BEGIN PRIVATE KEY-----")
    for name in ("rsa", "locked", "text", "nowhere", "."):
        for words in ([str(signed / "run"), "--sign"], ["--verify", "report.html", "--key"]):
            assert f"{words[-1]}={name}: an Ed25519 p" in refusal(
                "report", *words, name, cwd=tmp_path
            )


def test_openssh_keys_are_read_too(tmp_path):
    key = ed25519.Ed25519PrivateKey.generate()
    openssh = serialization.PrivateFormat.OpenSSH
    (tmp_path / "own").write_bytes(key.private_bytes(PEM, openssh, serialization.NoEncryption()))
    formats = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    (tmp_path / "own.pub").write_bytes(key.public_key().public_bytes(*formats))
    known = signing_key(tmp_path / "own").verification_key
    assert known.raw == verification_key(tmp_path / "own.pub").raw
