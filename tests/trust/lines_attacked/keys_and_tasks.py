"""Lines of the first page: keys and rosters, tasks, journals, frames."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedpriv.crypto.roster import Roster, new_identities
from fedpriv.crypto.signatures import SigningKey, VerificationKey
from fedpriv.engines.descriptions import describe, restore
from fedpriv.errors import AggregationAbortedError, FedprivError, RefusedError
from fedpriv.parties.messages import MessageError, decode, encode
from fedpriv.rounds.tasks import QueryTask, SetUpTask
from fedpriv.runtime import prepare
from fedpriv.runtime.silo_journal import SiloJournal
from fedpriv.testing import experiment
from lines_attacked.rows import CHANCE, attack, refused


@attack(
    "README",
    "network, server: replay a message of other settings or sessions",
    "one bit of the settings' digest, the session or the statement flipped",
)
def bound_signatures():
    one = new_identities(["silo0", "server"])["silo0"]
    for _ in range(400):
        parts = [bytearray(CHANCE.randbytes(32)), bytearray(CHANCE.randbytes(16))]
        said = ("text", CHANCE.randrange(2**60))
        signature = one.signer(*map(bytes, parts)).sign(said)
        at = CHANCE.randrange(3)
        if at == 2:
            said = ("text", said[1] ^ 1)
        else:
            parts[at][CHANCE.randrange(len(parts[at]))] ^= 1 << CHANCE.randrange(8)
        assert not one.signer(*map(bytes, parts)).verifies("silo0", signature, said)
    return "400 of 400 refused"


@attack(
    "README",
    "owner of a key: rotate or revoke it",
    "sign with the key before the last two rotations; rotate back to it",
)
def old_keys():
    for _ in range(50):
        made = new_identities(["silo0", "silo1"])
        roster = made["silo0"].roster
        for _ in range(2):
            roster = roster.rotated("silo0", SigningKey.generate().verification_key)
        reader = replace(made["silo1"], roster=roster)
        stale = made["silo0"].signer(b"x", b"y").sign(("a",))
        assert not reader.signer(b"x", b"y").verifies("silo0", stale, ("a",))
        again = made["silo0"].key.verification_key
        assert refused(
            lambda again=again, roster=roster: roster.rotated("silo0", again), FedprivError
        )
    return "50 of 50 refused"


@attack(
    "README",
    "owner of a key: rotate or revoke it",
    "a roster file with a revoked line deleted, two active keys, a fingerprint of another",
)
def forged_rosters():
    found = 0
    for _ in range(60):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "roster.csv"
            made = new_identities(["silo0", "silo1", "server"])["silo0"].roster
            made.rotated("silo1", SigningKey.generate().verification_key).write(path)
            lines = path.read_text().splitlines()
            kind = CHANCE.randrange(3)
            if kind == 0:
                lines = [line for line in lines if "revoked" not in line]
            elif kind == 1:
                lines = [line.replace("revoked", "active") for line in lines]
            else:
                cells = [line.split(",") for line in lines]
                cells[1][3], cells[2][3] = cells[2][3], cells[1][3]
                lines = [",".join(line) for line in cells]
            path.write_text("\n".join(lines) + "\n")
            found += refused(lambda path=path: Roster.read(path), FedprivError)
    assert found == 60, found
    return "60 of 60 refused in one line"


@attack(
    "README",
    "network: change a message and make its checksum anew",
    "a key of small order in the roster, under which anybody can sign",
)
def small_order():
    raws = [bytes(32), (1).to_bytes(32, "little"), (2**255 - 20).to_bytes(32, "little")]
    raws += [bytes([raw[0], *raw[1:31], raw[31] | 128]) for raw in raws]
    assert all(VerificationKey(raw).low_order for raw in raws)
    roster = new_identities(["silo0", "server"])["silo0"].roster
    named = [
        refused(
            lambda raw=raw: roster.rotated("silo0", VerificationKey(raw)), ValueError, FedprivError
        )
        for raw in raws
    ]
    assert all(named), named
    return f"{len(raws)} of {len(raws)} refused"


@attack(
    "README",
    "server, coordinator: ask a silo for another sum, round or noise",
    "300 tasks with drawn fields",
)
def odd_tasks():
    values = [
        0,
        0,
        0,
        0,
        1,
        1,
        1,
        2,
        3,
        -1,
        2**70,
        True,
        None,
        1.0,
        "1",
        b"1",
        (1,),
        [0],
        float("nan"),
    ]
    with prepare(experiment("algo=uldp_avg", "rounds=3")) as prepared:
        silo = prepared.session.participants["silo0"]
        answered = 0
        for _ in range(300):
            task = QueryTask(*CHANCE.choices(values, k=3))
            try:
                next(silo.take_part(task))
                answered += 1
                fair = type(task.round) is type(task.place) is type(task.repeats) is int
                assert fair
                assert 1 <= task.round <= 3
                assert task.place == 0
                assert task.repeats >= 0
            except (RefusedError, AggregationAbortedError):
                pass
    return f"{answered} answered, all of them queries of the run; the others refused"


@attack(
    "README",
    "server, coordinator: ask for the same query again",
    "the same round with repeats 0 to 5, after another set-up or not",
)
def same_query():
    for words in (
        ("aggregation=plain",),
        ("aggregation=masked",),
        ("aggregation=secagg",),
        ("aggregation=secagg_exact_noise",),
    ):
        with prepare(experiment("rounds=3", "algo=uldp_avg", *words)) as prepared:
            for number in (2, 3):
                assert prepared.run_round(prepared.queries(number), prepared.state).aborted is None
            for repeats in range(6):
                prepared.standing.ready = CHANCE.random() < 0.5
                again = [replace(query, repeats=repeats) for query in prepared.queries(2)]
                result = prepared.run_round(again, prepared.state)
                assert result.aborted is not None, (words, repeats)
    return "24 of 24 refused"


@attack(
    "README",
    "the same, over restarts with a journal",
    "restart with a journal and no budget; ask for an answered query with system randomness",
)
def journal_without_budget():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "silo0.txt"
        first = SiloJournal("silo0", path)
        first.begin((1, 0))
        again = SiloJournal("silo0", path)
        again.begin((1, 0))
        assert again.answered[1, 0] == 2
    return (
        "**answered again**, and counted: without a budget nothing refuses. The line asks for a "
        "budget"
    )


@attack("README", "the same, over restarts with a journal", "cut the journal off at every byte")
def cut_journals():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "silo0.txt"
        journal = SiloJournal("silo0", path)
        for number in range(1, 6):
            journal.begin((number, 0))
        whole = path.read_bytes()
        for size in range(len(whole) + 1):
            path.write_bytes(whole[:size])
            try:
                found = SiloJournal("silo0", path)
            except RefusedError:
                continue
            assert len(found.answered) == whole[:size].count(b"\n")
    return (
        f"{len(whole) + 1} lengths: whole lines count, a cut one never began. Who deletes lines "
        "makes a silo forget: the journal is as safe as its disk"
    )


@attack(
    "README",
    "server, coordinator: ask for set-ups without end",
    "sessions that are older, equal, of other types and lengths",
)
def sessions():
    with prepare(experiment("algo=uldp_avg")) as prepared:
        now = prepared.standing.session_name
        older = (int.from_bytes(now, "big") - 1).to_bytes(16, "big")
        tried = [
            now,
            older,
            now[:8] + bytes(8),
            now + b"\0",
            now[:-1],
            bytearray(now),
            now.hex(),
            5,
            None,
            [now],
        ]
        silo = prepared.session.participants["silo0"]
        for session in tried:
            task = SetUpTask(session, prepared.silos)
            assert refused(lambda task=task: next(silo.take_part(task)), RefusedError), session
    return f"{len(tried)} of {len(tried)} refused"


@attack(
    "README",
    "coordinator: send a description or a task that runs code",
    "2,000 descriptions with one drawn change in their text",
)
def changed_descriptions():
    from scripted_parties import Role

    text, arrays = describe(Role((1, "a", b"b", {"c": (2.5, None)})), "silo0")
    read = 0
    for _ in range(2000):
        at = CHANCE.randrange(len(text))
        other = text[:at] + CHANCE.choice('{}[]":,0aos.') + text[at + CHANCE.randrange(2) :]
        try:
            restore((other, arrays))
            read += 1
        except ValueError:
            pass
    return f"{read} were descriptions still, of plain values; the others one kind of error"


@attack(
    "README",
    "any party: send bytes that would fill the memory",
    "20,000 frames of drawn letters and lengths",
)
def frames():
    read = 0
    for _ in range(20_000):
        frame = bytearray(encode({"a": [1, (2.5, "b")], "c": np.arange(3)}))
        for _ in range(CHANCE.randint(1, 6)):
            frame[CHANCE.randrange(len(frame))] = CHANCE.choice(b"NTFisbtldago\xff\0\x7f")
        try:
            decode(bytes(frame))
            read += 1
        except MessageError:
            pass
    return f"{read} were messages, the others one kind of error"
