"""Lines of the first page: keys and rosters, signatures, tasks, journals, frames."""

import contextlib

import numpy as np
import pytest
from scripted_parties import Role

from fedpriv.accountants.charges import Charge
from fedpriv.crypto.roster import Roster, RosterEntry, new_identities
from fedpriv.crypto.signatures import SigningKey, VerificationKey
from fedpriv.engines.descriptions import describe, restore
from fedpriv.errors import AggregationAbortedError, FedprivError, RefusedError
from fedpriv.ledgers.counted_lines import CountedFile
from fedpriv.parties.messages import MessageError, decode, encode
from fedpriv.rounds.query import QueryTask
from fedpriv.runtime import prepare
from fedpriv.runtime.silo_journal import SiloJournal
from fedpriv.testing import experiment

pytestmark = pytest.mark.slow


def test_no_other_signature_of_a_message_is_valid():
    order = 2**252 + 27742317777372353535851937790883648493
    one = new_identities(["silo0", "server"])["silo0"].signer(b"a", b"b")
    for number in range(50):
        said = ("text", number)
        good = one.sign(said)
        other = good[:32] + (int.from_bytes(good[32:], "little") + order).to_bytes(32, "little")
        for wrong in (other, good[:-1], good + b"\0", good.hex(), None, bytes(64)):
            assert not one.verifies("silo0", wrong, said)
        assert one.verifies("silo0", good, said)


def without_revoked(lines):
    return [line for line in lines if "revoked" not in line]


def with_two_active(lines):
    return [line.replace("revoked", "active") for line in lines]


def with_a_fingerprint_of_another(lines):
    cells = [line.split(",") for line in lines]
    cells[1][3], cells[2][3] = cells[2][3], cells[1][3]
    return [",".join(line) for line in cells]


@pytest.mark.parametrize("forge", [without_revoked, with_two_active, with_a_fingerprint_of_another])
def test_forged_rosters_are_refused(forge, tmp_path, refused):
    path = tmp_path / "roster.csv"
    made = new_identities(["silo0", "silo1", "server"])["silo0"].roster
    made.rotated("silo1", SigningKey.generate().verification_key).write(path)
    path.write_text("\n".join(forge(path.read_text().splitlines())) + "\n")
    refused(lambda: Roster.read(path), FedprivError)


@pytest.mark.parametrize("name", ["s\u0456lo0", "silo0 ", "SILO0", "silo00", "silo\u06600"])
def test_names_that_look_alike_are_somebody_else(name, refused):
    keys = [SigningKey.generate().verification_key for _ in range(2)]
    roster = Roster((RosterEntry(name, 1, keys[0]), RosterEntry("server", 1, keys[1])))
    assert "silo0" not in roster.keys
    refused(lambda: roster.key("silo0"), FedprivError, KeyError)


ODD = [0, 0, 0, 0, 1, 1, 1, 2, 3, -1, 2**70, True, None, 1.0, "1", b"1", (1,), [0], float("nan")]


def test_tasks_of_drawn_fields_are_queries_of_the_run_or_refused(chance):
    with prepare(experiment("algo=uldp_avg", "rounds=3")) as prepared:
        silo = prepared.session.participants["silo0"]
        for _ in range(300):
            task = QueryTask(*chance.choices(ODD, k=3))
            try:
                next(silo.take_part(task))
            except (RefusedError, AggregationAbortedError):
                continue
            assert type(task.round) is type(task.place) is type(task.repeats) is int
            assert 1 <= task.round <= 3
            assert task.place == 0
            assert task.repeats >= 0


CHARGE = Charge("server", ())


def lives(tmp_path):
    """Opens lives of a silo's journal."""
    file = CountedFile(str(tmp_path / "silo0.txt"), str(tmp_path / "counters"))
    return lambda: contextlib.closing(SiloJournal("silo0", file))


def test_without_a_budget_a_restarted_silo_answers_again_and_counts_it(tmp_path):
    for count in (1, 2):
        with lives(tmp_path)() as journal:
            journal.begin((1, 0), CHARGE)
            assert journal.spent.total() == count


def test_a_journal_cut_at_any_byte_is_refused(tmp_path):
    path, life = tmp_path / "silo0.txt", lives(tmp_path)
    with life() as journal:
        for number in range(1, 6):
            journal.begin((number, 0), CHARGE)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(RefusedError, match="not as it was last used"):
            life()
    path.write_bytes(whole)
    with life() as journal:
        assert journal.spent.total() == 5


def test_descriptions_with_a_drawn_change_are_values_or_one_error(chance):
    text, arrays = describe(Role((1, "a", b"b", {"c": (2.5, None)})), "silo0")
    for _ in range(2000):
        at = chance.randrange(len(text))
        other = text[:at] + chance.choice('{}[]":,0aos.') + text[at + chance.randrange(2) :]
        with contextlib.suppress(ValueError):
            restore((other, arrays))


def test_a_frame_is_the_only_encoding_of_its_message(chance):
    whole = encode({"a": [1, (2.5, "b", None)], "c": np.arange(3.0), 5: 2**70, "d": np.int8(3)})
    for _ in range(20_000):
        frame = bytearray(whole)
        frame[chance.randrange(len(frame))] = chance.randrange(256)
        try:
            found = decode(bytes(frame))
        except MessageError:
            continue
        assert encode(found) == bytes(frame)


def test_keys_of_small_order_are_refused(refused):
    raws = [bytes(32), (1).to_bytes(32, "little"), (2**255 - 20).to_bytes(32, "little")]
    raws += [bytes([raw[0], *raw[1:31], raw[31] | 128]) for raw in raws]
    roster = new_identities(["silo0", "server"])["silo0"].roster
    for raw in raws:
        key = VerificationKey(raw)
        assert key.low_order
        refused(lambda key=key: roster.rotated("silo0", key), ValueError, FedprivError)
