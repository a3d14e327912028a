"""Private keys in files, and `fedpriv keys`."""

import os
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from command import refusal, run, success

from fedpriv.crypto import keys_command
from fedpriv.crypto.key_files import KeyFiles, key_path, read_key, read_roster, write_key
from fedpriv.crypto.roster import Roster, RosterEntry
from fedpriv.crypto.signatures import FIELD, LOW_ORDER, SigningKey, VerificationKey
from fedpriv.errors import FedprivError

NEW = ("keys", "new", "server", "silo0", "silo1", "--keys", "k", "--roster", "r.csv")


def test_a_key_comes_back_and_only_its_owner_can_read_it(tmp_path):
    key = SigningKey.generate()
    before = os.umask(0)
    try:
        write_key(tmp_path / "new" / "silo0.key", key)
    finally:
        os.umask(before)
    path = key_path(tmp_path / "new", "silo0")
    assert read_key(path) == key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    for mode in (0o640, 0o604, 0o620):
        path.chmod(mode)
        with pytest.raises(FedprivError, match=f"others can read it .mode {mode:04o}"):
            read_key(path)


@pytest.mark.parametrize("content", [b"", b"zz" * 32, b"00" * 31, b"\xff" * 64, b"0" * 2000])
def test_what_is_no_key_is_refused_and_not_shown(content, tmp_path):
    path = tmp_path / "silo0.key"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(FedprivError, match=r"silo0\.key: not a private key") as refused:
        read_key(path)
    assert len(str(refused.value)) < len(str(path)) + 60


def test_pipes_and_missing_files_do_not_block(tmp_path):
    os.mkfifo(tmp_path / "silo0.key", 0o600)
    os.mkfifo(tmp_path / "roster.csv")
    with pytest.raises(FedprivError, match="not a private key"):
        read_key(tmp_path / "silo0.key")
    with pytest.raises(FedprivError, match="not a regular file"):
        read_roster(tmp_path / "roster.csv")
    for read in (read_key, read_roster):
        with pytest.raises(FedprivError, match="No such file"):
            read(tmp_path / "missing")


@pytest.mark.parametrize("name", ["", "../silo0", "a/b", ".hidden", "a b", "x" * 65])
def test_a_name_is_no_path(name, tmp_path):
    with pytest.raises(FedprivError, match="a party's name"):
        key_path(tmp_path, name)


def test_a_key_under_which_anybody_signs_is_refused(tmp_path):
    """OpenSSL accepts such keys: a signature without a private key is valid under them."""
    point = (1).to_bytes(32, "little")
    forged = point + bytes(32)
    assert VerificationKey(point).verifies(forged, b"any statement")
    a, d = -1, -121665 * pow(121666, -1, FIELD)
    order_eight = {y for y in LOW_ORDER if (d * pow(y, 4, FIELD) + 2 * y * y + a) % FIELD == 0}
    assert order_eight | {0, 1, FIELD - 1} == LOW_ORDER
    for y in [*LOW_ORDER, FIELD, FIELD + 1]:
        for sign in (0, 2**255):
            raw = (y + sign).to_bytes(32, "little")
            with pytest.raises(FedprivError, match="roster: the key of silo0 has a low order"):
                Roster((RosterEntry("silo0", 1, VerificationKey(raw)),))
    Roster((RosterEntry("silo0", 1, SigningKey.generate().verification_key),))


def test_the_command_makes_shows_rotates_and_revokes(tmp_path):
    done = success(*NEW, cwd=tmp_path)
    roster = Roster.read(tmp_path / "r.csv")
    assert set(roster.keys) == {"server", "silo0", "silo1"}
    files = KeyFiles("silo0", str(tmp_path / "k"), str(tmp_path / "r.csv"))
    first = files.identity().key
    assert first.verification_key.fingerprint in done.stdout
    assert first.raw.hex() not in done.stdout

    success("keys", "rotate", "silo0", "--keys", "k", "--roster", "r.csv", cwd=tmp_path)
    second = files.identity().key
    assert second != first
    assert sorted(path.name for path in (tmp_path / "k").iterdir()) == [
        "server.key",
        "silo0.key",
        "silo1.key",
    ]
    assert run("keys", "revoke", "silo1", "--roster", "r.csv", cwd=tmp_path).returncode == 0
    shown = run("keys", "show", "--roster", "r.csv", cwd=tmp_path).stdout
    states = [line.split()[:4] for line in shown.splitlines()[1:]]
    assert states == [
        ["server", "1", "active", Roster.read(tmp_path / "r.csv").key("server").fingerprint],
        ["silo0", "1", "revoked", first.verification_key.fingerprint],
        ["silo0", "2", "active", second.verification_key.fingerprint],
        ["silo1", "1", "revoked", roster.key("silo1").fingerprint],
    ]
    with pytest.raises(FedprivError, match="silo1 has no key that is not revoked"):
        KeyFiles("silo1", str(tmp_path / "k"), str(tmp_path / "r.csv")).identity()


def test_a_silo_makes_its_key_at_home(tmp_path):
    """Only the public key travels to who keeps the roster."""
    home, office = tmp_path / "home", tmp_path / "office"
    home.mkdir()
    office.mkdir()
    made = run("keys", "new", "silo0", "--keys", "k", cwd=home).stdout.split()[-1]
    assert run("keys", "add", "silo0", made, "--roster", "r.csv", cwd=office).returncode == 0
    roster = str(office / "r.csv")
    identity = KeyFiles("silo0", str(home / "k"), roster).identity()
    assert identity.key.verification_key.raw.hex() == made


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (NEW, "exists; to replace it: fedpriv keys rotate server --keys k --roster r.csv"),
        (
            ("keys", "new", "silo0", "--keys", "other", "--roster", "r.csv"),
            "first revoke it: fedpriv keys revoke silo0 --roster r.csv",
        ),
        (("keys", "new", "a", "a", "--keys", "other"), "a: is named twice"),
        (("keys", "new", "../a", "--keys", "other"), "a party's name"),
        (("keys", "add", "silo9", "00", "--roster", "r.csv"), "64 hexadecimal digits"),
        (("keys", "add", "silo9", "01" + "00" * 31, "--roster", "r.csv"), "low order"),
        (("keys", "revoke", "silo9", "--roster", "r.csv"), "silo9 has no key"),
        (("keys", "rotate", "silo9", "--keys", "k", "--roster", "r.csv"), "silo9.key: No such"),
        (("keys", "show", "--roster", "missing.csv"), "missing.csv: No such file"),
    ],
)
def test_what_cannot_be_done_changes_nothing(words, why, tmp_path):
    assert run(*NEW, cwd=tmp_path).returncode == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert why in refusal(*words, cwd=tmp_path)
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert after == before


def test_a_rotation_that_was_cut_off_is_ended_by_the_next(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    keys_command.main(["new", "silo0", "--keys", "k", "--roster", "r.csv"])
    rotate = ["rotate", "silo0", "--keys", "k", "--roster", "r.csv"]

    def cut_off(path, target):
        raise KeyboardInterrupt

    with monkeypatch.context() as cut:
        cut.setattr(Path, "replace", cut_off)
        with pytest.raises(KeyboardInterrupt):
            keys_command.main(rotate)
    files = KeyFiles("silo0", "k", "r.csv")
    with pytest.raises(FedprivError, match="cut off: fedpriv keys rotate ends it"):
        files.identity()
    keys_command.main(rotate)
    assert [entry.number for entry in files.identity().roster.entries] == [1, 2]
    assert [path.name for path in Path("k").iterdir()] == ["silo0.key"]


def test_a_roster_names_nobody_by_signs_that_a_terminal_obeys(tmp_path):
    file = tmp_path / "roster.csv"
    Roster.of({"silo0": SigningKey.generate()}).write(file)
    file.write_text(file.read_text().replace("silo0", "silo0\x1b[2K"))
    with pytest.raises(FedprivError, match="line 2: a line without a printable party"):
        Roster.read(file)


def test_changes_at_the_same_time_are_all_kept(tmp_path, monkeypatch):
    """A second `fedpriv keys` waits until the first has written."""
    monkeypatch.chdir(tmp_path)
    read = keys_command.read_roster

    def slowly(file):
        roster = read(file)
        time.sleep(0.05)
        return roster

    monkeypatch.setattr(keys_command, "read_roster", slowly)
    names = [f"silo{number}" for number in range(6)]

    def add(name):
        key = SigningKey.generate().verification_key.raw.hex()
        keys_command.main(["add", name, key, "--roster", "r.csv"])

    keys_command.main(["new", "server", "--keys", "k", "--roster", "r.csv"])
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(add, names))
    assert {entry.party for entry in read(tmp_path / "r.csv").entries} == {"server", *names}


def test_one_of_two_who_make_the_same_key_is_refused(tmp_path, monkeypatch, capsys):
    """Without a roster too: else the public key that one of them prints has no private key."""
    monkeypatch.chdir(tmp_path)
    write = keys_command.write_key

    def slowly(path, key):
        time.sleep(0.05)
        write(path, key)

    monkeypatch.setattr(keys_command, "write_key", slowly)

    def make(_):
        try:
            keys_command.main(["new", "silo0", "--keys", "k"])
        except FedprivError as error:
            return str(error)
        return None

    with ThreadPoolExecutor(4) as pool:
        said = list(pool.map(make, range(4)))
    assert said.count(None) == 1
    assert all("exists" in line for line in said if line)
    made = read_key(Path("k/silo0.key")).verification_key
    assert made.raw.hex() in capsys.readouterr().out


def test_a_roster_in_no_folder_is_refused(tmp_path):
    done = run("keys", "new", "a", "--keys", "k", "--roster", "no/r.csv", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, "fedpriv: no/r.csv: no such folder\n")
    assert not (tmp_path / "k").exists()
