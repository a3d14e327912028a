"""Runs whose parties have keys of their own, in files."""

import pickle
from dataclasses import replace

import pytest
from runs import experiment

from fedpriv.aggregation.private_weighting import server
from fedpriv.aggregation.private_weighting.settings import CountsRefusedError
from fedpriv.crypto.key_files import KeyFiles, key_path, write_key
from fedpriv.crypto.roster import Roster
from fedpriv.crypto.signatures import SigningKey
from fedpriv.engines.inprocess import InProcess
from fedpriv.errors import ConfigError, FedprivError
from fedpriv.runs.folder import RunFolder
from fedpriv.runs.loop import train
from fedpriv.runtime import prepare
from fedpriv.testing.faults import Faulty, drop, forge

NAMES = ("server", "silo0", "silo1", "silo2")
WORDS = ("algo=uldp_avg", "preset.n_silos=3", "rounds=2", "aggregation=secagg")


@pytest.fixture
def files(tmp_path):
    """A folder with everybody's keys, and their roster; the words that use them."""
    keys = {name: SigningKey.generate() for name in NAMES}
    for name, key in keys.items():
        write_key(key_path(tmp_path / "keys", name), key)
    Roster.of(keys).write(tmp_path / "roster.csv")
    return tmp_path


def words_of(folder):
    return (f"engine.roster={folder / 'roster.csv'}", f"engine.keys={folder / 'keys'}")


def test_a_run_takes_its_keys_from_files_and_keeps_no_private_one(files, tmp_path):
    folder = tmp_path / "run"
    train(experiment(*WORDS, *words_of(files), "rounds=1"), "rounds: 1\n", folder, quiet=True)
    assert Roster.read(folder / "roster.csv") == Roster.read(files / "roster.csv")
    written = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    for name in NAMES:
        text = key_path(files / "keys", name).read_text().strip()
        assert text.encode() not in written
        assert bytes.fromhex(text) not in written
    assert RunFolder(folder).load_checkpoint() is not None


def test_a_description_holds_no_key(files):
    """The coordinator knows where a party looks for its key, and no key."""
    with prepare(experiment(*WORDS, *words_of(files))) as prepared:
        for name, spec in prepared.session.specs.items():
            assert spec.identity == KeyFiles(name, str(files / "keys"), str(files / "roster.csv"))
            secret = bytes.fromhex(key_path(files / "keys", name).read_text())
            assert secret not in pickle.dumps(spec)


def key_of_silo1(change):
    return lambda folder: change(key_path(folder / "keys", "silo1"))


def roster(change):
    return lambda folder: change(Roster.read(folder / "roster.csv")).write(folder / "roster.csv")


def without_silo1(known):
    return Roster(tuple(entry for entry in known.entries if entry.party != "silo1"))


def damaged(folder):
    path = folder / "roster.csv"
    path.write_text(path.read_text().replace("active", "alive", 1))


CHANGES = {
    "wrong": key_of_silo1(lambda path: write_key(path, SigningKey.generate())),
    "missing": key_of_silo1(lambda path: path.unlink()),
    "readable": key_of_silo1(lambda path: path.chmod(0o644)),
    "revoked": roster(lambda known: known.revoked("silo1")),
    "unknown": roster(without_silo1),
    "rotated": roster(lambda known: known.rotated("silo1", SigningKey.generate().verification_key)),
    "damaged": damaged,
}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            "wrong",
            "silo1.key does not fit .*roster.csv: roster: the key in use of silo1 is an",
        ),
        ("missing", "silo1.key: No such file"),
        ("readable", "silo1.key: others can read it"),
        ("revoked", "roster.csv: silo1 has no key that is not revoked"),
        ("unknown", "roster.csv: silo1 has no key that is not revoked"),
        ("rotated", "silo1.key does not fit"),
        ("damaged", "roster.csv, line 2"),
    ],
)
def test_a_wrong_key_is_one_line(change, why, files):
    CHANGES[change](files)
    with pytest.raises(FedprivError, match=why) as refused:
        prepare(experiment(*WORDS, *words_of(files)))
    assert "\n" not in str(refused.value)


def test_a_party_with_another_roster_understands_nobody(files, tmp_path):
    """It signs and verifies for its own roster: a coordinator cannot give it another one."""
    exp = experiment(*WORDS, *words_of(files))
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    keys = {name: SigningKey.generate() for name in NAMES}
    keys["silo2"] = SigningKey(bytes.fromhex(key_path(files / "keys", "silo2").read_text()))
    for name, key in keys.items():
        write_key(key_path(theirs / "keys", name), key)
    Roster.of(keys).write(theirs / "roster.csv")
    with prepare(exp) as prepared:
        spec = prepared.session.specs["silo2"]
        other = KeyFiles("silo2", str(theirs / "keys"), str(theirs / "roster.csv"))
        prepared.session.specs["silo2"] = replace(spec, identity=other)
        prepared.session.reopen({"silo2": {}})
        prepared.standing.ready = False
        result = prepared.run_round(prepared.queries(1), prepared.state)
        assert result.aborted is not None
        assert "silo2" in result.aborted or "server" in result.aborted


def test_roster_and_keys_come_together():
    for one in ({"roster": "r.csv"}, {"keys": "k"}):
        with pytest.raises(ConfigError, match="a path, with engine"):
            InProcess(**one)


def test_over_ray_a_pinned_key_needs_a_journal():
    """A silo that forgets its set-ups could be led into an old one, whose signatures are valid."""
    from fedpriv.engines.ray import RayEngine

    with pytest.raises(ConfigError, match=r"engine\.journals=null: a folder"):
        RayEngine(roster="r.csv", keys="k")
    assert RayEngine(roster="r.csv", keys="k", journals="j").journals == "j"


def test_a_resumed_run_keeps_pinned_keys_and_replaces_made_ones(files, tmp_path):
    pinned, made = tmp_path / "pinned", tmp_path / "made"
    for folder, words in ((pinned, words_of(files)), (made, ())):
        train(experiment(*WORDS, *words, "rounds=1"), "rounds: 1\n", folder, quiet=True)
        before = Roster.read(folder / "roster.csv")
        train(experiment(*WORDS, *words), "rounds: 1\n", folder, True, quiet=True)
        after = Roster.read(folder / "roster.csv")
        assert (before == after) == (folder == pinned)


# -- set-ups that are repeated: after an altered message, and not after mere silence ---------------


COUNTED = ("algo=uldp_avg", "algo.weighting=records")
PRIVATE = (
    *COUNTED,
    "aggregation=private_weighting",
    "aggregation.key_bits=256",
    "aggregation.precision=16",
    "aggregation.count_cap=4",
    "aggregation.n_max=12",
)


def faulty(words, *faults):
    return replace(experiment(*words), engine=Faulty(InProcess(), faults))


def set_ups(result):
    return sum(
        line["query"] == "setup" and line["step"] == 0 and line["party"] == "silo0"
        for line in result.traffic
    )


def rounds(prepared, numbers, state):
    return [prepared.run_round(prepared.queries(number), state) for number in numbers]


@pytest.mark.parametrize("words", [(*COUNTED, "aggregation=masked"), PRIVATE], ids=str)
def test_a_forged_key_is_found_before_anybody_uses_it(words):
    fault = forge(lambda said: said, exchange=0, phase="keys", receiver="silo1")
    refused = "repeating the set-up: a message of server is refused: the signature is not its own"
    with pytest.warns(RuntimeWarning, match=refused):
        prepared = prepare(faulty(words, fault))
    with prepared:
        results = rounds(prepared, (1, 2), prepared.state)
    assert [result.aborted for result in results] == [None, None]
    assert [set_ups(result) for result in results] == [0, 0]


def test_silence_is_no_reason_for_another_set_up():
    for fault, again in ((drop, 0), (lambda **where: forge(lambda _: b"", **where), 1)):
        where = {"exchange": 1, "phase": "message", "sender": "silo1"}
        with prepare(faulty((*COUNTED, "aggregation=masked"), fault(**where))) as prepared:
            results = rounds(prepared, (1, 2), prepared.state)
        assert "silo1" in results[0].aborted
        assert not results[1].aborted
        assert [set_ups(result) for result in results] == [0, again]


def test_counts_that_are_refused_in_a_later_set_up_end_a_round_and_not_the_run(monkeypatch):
    """Honest counts do not change, so that somebody lies."""
    with prepare(experiment(*PRIVATE)) as prepared:
        start = prepared.state
        with monkeypatch.context() as patched:
            patched.setattr(server, "from_bytes", lambda data, n, length: [0] * length)
            prepared.standing.ready = False
            [result] = rounds(prepared, (1,), start)
        assert result.aborted.startswith("no silo has a record of user 0, 1")
        [after] = rounds(prepared, (2,), start)
        assert not after.aborted


def test_counts_that_are_refused_at_the_start_end_the_run():
    with (
        pytest.warns(RuntimeWarning),
        pytest.raises(CountsRefusedError, match="more than 4 records"),
    ):
        prepare(experiment(*PRIVATE, "aggregation.count_cap=null"))
