"""Frames that no coordinator and no site sends: each is refused in one line and counted, and the
site takes part afterwards."""

import random
import threading
from contextlib import suppress

import pytest

from fedpriv.cli import main
from fedpriv.engines.party_host import aborting, read_reply
from fedpriv.parties.messages import decode, encode
from fedpriv.rounds.query import QueryTask, SetUpTask, next_session
from fedpriv.runtime.silo_journal import SiloJournal
from sites.study import SILOS, Federation, free_port

pytest.importorskip("grpc")
VERBS = ("open", "begin", "wake", "checkpoint")
BLOCK = 50
"""Frames after which the site is asked for a round again."""
ROUNDS = 5_000


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A study, and the frames of its first two rounds with the replies."""
    tmp_path = tmp_path_factory.mktemp("study")
    here = Federation(
        tmp_path, ("aggregation=secagg", f"rounds={ROUNDS}"), port=free_port(), budget=1e9
    )
    ended, frames = threading.Event(), []
    hosts = [here.host(name) for name in SILOS]

    def listening(host):
        def answer(frame):
            frames.append((frame, host.answer(frame)))
            return frames[-1][1]

        return answer

    threads = [
        threading.Thread(target=here.dial, args=(name, listening(host), ended))
        for name, host in zip(SILOS, hosts)
    ]
    for thread in threads:
        thread.start()
    main([*here.words, "rounds=2", f"hydra.run.dir={tmp_path}/run"])
    ended.set()
    for thread in threads:
        thread.join()
    for host in hosts:
        host.close()
    return here, frames


def mutated(rng, frame, others):
    """A frame with a few bits, bytes or pieces that are others', or of another frame."""
    changed = bytearray(frame)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        at, size = rng.randrange(len(changed) + 1), rng.randint(1, 16)
        what = rng.choice(["bit", "byte", "less", "more", "piece"])
        if what == "less":
            del changed[at : at + size]
        elif what == "more":
            changed[at:at] = rng.randbytes(size)
        elif what == "piece":
            start = rng.randrange(len(other := rng.choice(others)))
            changed[at : at + size] = other[start : start + size]
        elif at < len(changed):
            changed[at] = rng.randrange(256) if what == "byte" else changed[at] ^ 1 << size % 8
    return bytes(changed)


def asked_for(host, opened, number):
    """The names of the replies of a site that is opened, enrolled and asked for a round."""
    host.answer(opened)
    session = next_session(host.participant.journal.session)
    tasks = (SetUpTask(session, host.spec.settings.silos, round=number), QueryTask(number, 0))
    for task in tasks:
        host.answer(b"begin " + encode(task))
        reply = host.answer(b"wake ")
    return read_reply("wake", reply, 4)[0]


def check_site(recorded, count):
    here, frames = recorded
    host, rng = here.host("east"), random.Random(56)
    sent = [frame for frame, _ in frames]
    opened = next(frame for frame in sent if frame.startswith(b"open "))
    refused = 0
    for number in range(count):
        if number % BLOCK == 0:
            assert asked_for(host, opened, 3 + number // BLOCK) == "sent"
        frame = mutated(rng, rng.choice(sent), sent)
        verb = frame.partition(b" ")[0].decode(errors="replace")
        name, said = read_reply(verb if verb in VERBS else "open", host.answer(frame), 4)
        if name == "raised":
            refused += 1
            abort = aborting("silo0", said)
            assert abort is not None, (frame, said)
            assert "\n" not in str(abort)
    assert 0.9 * count < refused == host.refused
    assert asked_for(host, opened, ROUNDS) == "sent"
    charged = host.participant.journal.spent.total()
    host.close()
    seen = SiloJournal.seen("silo0", here.site("east").journal)
    assert seen.spent.total() == charged >= 3 + count // BLOCK
    again = here.host("east")
    again.answer(opened)
    assert again.participant.journal.spent.total() == charged
    again.close()


def check_coordinator(recorded, count):
    """Its reader of replies: nothing but a reply of the right form, or one exception."""
    rng, read = random.Random(56), 0
    frames = [(sent.partition(b" ")[0].decode(), reply) for sent, reply in recorded[1]]
    replies = [reply for _, reply in frames]
    for _ in range(count):
        verb, reply = rng.choice(frames)
        with suppress(ValueError):
            name, content = read_reply(verb, mutated(rng, reply, replies), 4)
            read += 1
            assert name in ("done", "returned", "raised", "sent")
            assert name != "sent" or len(content) <= 4
    assert read < count / 2


@pytest.mark.parametrize(
    ("requests", "replies"),
    [(1_000, 5_000), pytest.param(100_000, 100_000, marks=pytest.mark.slow)],
)
def test_mutated_frames_are_refused_and_counted(recorded, requests, replies):
    check_site(recorded, requests)
    check_coordinator(recorded, replies)


def test_frames_of_an_earlier_day_are_refused(recorded):
    """All that a site was ever sent, once more and in order: in its next life, and in one after
    later rounds. Whatever the clocks say, a session that it knows is not a new one."""
    here, frames = recorded
    host = here.host("east")
    sent = [frame for frame, _ in frames if not frame.startswith(b"open ")]
    opened = next(frame for frame, _ in frames if frame.startswith(b"open "))
    for later in (3, 700):
        host.answer(opened)
        before = host.participant.journal.spent.total()
        for frame in sent:
            kind, said = decode(host.answer(frame))
            assert kind in ("done", "raised") or said is None
        assert host.participant.journal.spent.total() == before
        assert asked_for(host, opened, later) == "sent"
    host.close()
