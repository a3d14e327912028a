"""What parties of one process save: signatures of messages that nobody else reads, and what one of
them has computed already."""

from dataclasses import replace

import numpy as np
import pytest

from fedpriv.crypto.signatures import Ed25519Signer, SigningKey
from fedpriv.crypto.x25519 import PrivateKey, PublicKey
from fedpriv.engines.base import Network
from fedpriv.engines.inprocess import InProcess
from fedpriv.errors import MisfitError
from fedpriv.parties.messages import MessageError, decode, digest_of, encode
from fedpriv.parties.one_process import MOST_SIGNATURES, OneProcess, one_process, sharing
from fedpriv.parties.party import Participant, PartySpec
from fedpriv.parties.post import Expected, Post, encoded_size
from fedpriv.parties.schema import Array
from fedpriv.parties.signer import CHECKSUM
from fedpriv.parties.traffic import Traffic
from fedpriv.testing.faults import Faulty, alter, forge, swap

SESSION = b"s" * 16
NUMBERS = Expected("numbers", Array(np.float64, (3,), finite=True), ("ann", "bob"))
KEYS = {name: SigningKey.generate() for name in ("ann", "bob", "server", "eve")}


def signer(name, context=b"run"):
    bound = {each: replace(key, context=context) for each, key in KEYS.items()}
    return Ed25519Signer(bound[name], {each: key.verification_key for each, key in bound.items()})


def gate(name="server", **where):
    about = {"session": SESSION, "serial": (2, 1), "signer": signer(name)} | where
    return Post(name, **about)


def sent(sender="ann", receiver="server", numbers=(1.0, 2.0, 3.0), **where):
    return gate(sender, **where).signed("numbers", {receiver: np.array(numbers)})[receiver]


def is_signed(message):
    return type(message.signature) is bytes


def test_messages_are_unsigned_in_a_shared_process_alone():
    at_once = sent()
    with sharing(OneProcess(unsigned=False)):
        assert is_signed(at_once)
        assert is_signed(sent())
    with sharing(OneProcess()):
        message = sent()
        assert not is_signed(message)
        server = gate()
        assert server.accept({"ann": message}, NUMBERS) == {"ann": message.content}
        assert server.told("ann") == digest_of(message.content)
        assert list(gate().accept({"ann": at_once}, NUMBERS)) == ["ann"]
        narrow = replace(NUMBERS, schema=Array(np.float64, (3,), high=0.5))
        with pytest.raises(MisfitError, match="outside None to 0"):
            gate().accept({"ann": message}, narrow)
        with pytest.raises(MisfitError, match="ann is refused: a number that is not finite"):
            gate().accept({"ann": sent(numbers=(1.0, np.nan, 3.0))}, NUMBERS)
    with pytest.raises(MessageError, match="cannot hold"):
        encode(message)
    assert encoded_size(message) == len(encode(at_once))


def test_an_unsigned_message_counts_for_its_sender_and_its_content_alone():
    with sharing(OneProcess()):
        for message in (
            sent("bob"),
            sent("ann", signer=signer("eve")),
            sent("ann", signer=signer("ann", b"other settings")),
            sent("ann", signer=CHECKSUM),
            replace(sent(), content=np.array([1.0, 2.0, 4.0])),
            replace(sent(), signature=bytes(64)),
        ):
            with pytest.raises(MisfitError, match=r"^a message of ann is refused: the signature"):
                gate().accept({"ann": message}, NUMBERS)
        for stray in (sent(session=b"t" * 16), sent(serial=(1, 1)), sent(serial=(2, 0))):
            server = gate()
            assert server.accept({"ann": stray}, NUMBERS) == {}
            assert server.strays == {"ann": 1}


def test_known_signatures_are_bounded_and_shared_by_equal_bytes_only():
    shared = OneProcess()
    key = KEYS["ann"].verification_key
    signature = KEYS["ann"].sign(b"yes")
    with sharing(shared):
        assert key.verifies(signature, b"yes")
        assert len(shared.valid) == 1
        assert not key.verifies(signature, b"no")
        assert not key.verifies(signature[:-1] + bytes([signature[-1] ^ 1]), b"yes")
        assert not replace(key, context=b"run").verifies(signature, b"yes")
        assert not KEYS["bob"].verification_key.verifies(signature, b"yes")
        assert len(shared.valid) == 1  # only valid ones are remembered
        for number in range(MOST_SIGNATURES):
            shared.remember(b"key", b"", b"signature", number.to_bytes(4, "little"))
        assert len(shared.valid) <= MOST_SIGNATURES
    assert one_process() is None
    assert key.verifies(signature, b"yes")


def test_a_pair_of_one_process_computes_its_secret_once():
    shared = OneProcess()
    ann, bob = PrivateKey.generate(), PrivateKey.generate()
    alone = ann.derive_shared_seed(bob.public, b"mask")
    with sharing(shared):
        assert bob.derive_shared_seed(ann.public, b"mask") == alone
        [(pair, secret)] = shared.exchanged.items()
        assert PrivateKey(ann.raw).derive_shared_seed(bob.public, b"mask") == alone
        assert bob.derive_shared_seed(ann.public, b"seal") != alone
        assert shared.exchanged == {pair: secret}
        with pytest.raises(ValueError, match="shared key"):
            PrivateKey.generate().derive_shared_seed(PublicKey(bytes(32)), b"mask")
    with InProcess().open({"ann": Seen("ann", [])}, {}) as session:
        session.shared.exchanged[pair] = secret
        with session.exchanging(watched=False):
            assert not session.shared.exchanged  # each exchange has secrets of its own


class Seen(PartySpec, Participant):
    """Sends its numbers to the server, which notes how they arrived."""

    def __init__(self, name, seen):
        self.name, self.seen = name, seen

    def open(self, memory):
        return self

    def take_part(self, task):
        post = gate(self.name)
        if self.name != "server":
            yield post.signed("numbers", {"server": np.ones(3)})
            return None
        arrived = yield {}
        self.seen += [is_signed(message) for message in arrived.values()]
        return sum(post.accept(arrived, NUMBERS).values())


def learned(engine, traffic=None):
    seen = []
    parties = {name: Seen(name, seen) for name in ("ann", "bob", "server")}
    with engine.open(parties, {}) as session:
        total = session.run(dict.fromkeys(parties), traffic)["server"]
    return total.tolist(), seen


class Looking(Network):
    pass


def test_messages_are_unsigned_only_where_nobody_reads_or_changes_them():
    assert learned(InProcess()) == ([2.0] * 3, [False, False])
    assert learned(InProcess(), Traffic()) == ([2.0] * 3, [False, False])
    assert learned(InProcess(), Traffic(keep=True)) == ([2.0] * 3, [True, True])
    assert learned(Faulty(InProcess(), ())) == ([2.0] * 3, [True, True])
    assert Network().faithful
    assert not Looking().faithful


@pytest.mark.parametrize(
    "fault",
    [
        alter(lambda message: replace(message, content=np.zeros(3)), sender="bob"),
        forge(lambda content: np.zeros(3), sender="bob"),
        swap("ann", "bob"),
    ],
)
def test_faults_are_found(fault):
    with pytest.raises(MisfitError, match=r"^a message of (ann|bob) is refused: the signature"):
        learned(Faulty(InProcess(), (fault,)))


def test_traffic_is_the_same_and_a_kept_letter_can_be_encoded():
    counted = []
    for engine in (InProcess(), Faulty(InProcess(), ())):
        for keep in (False, True):
            traffic = Traffic(keep=keep)
            learned(engine, traffic)
            counted.append(traffic.rows(1, "update"))
    assert counted == [counted[0]] * 4
    assert counted[0][0]["bytes"] == len(encode(sent("ann", numbers=(1.0, 1.0, 1.0))))
    for letter in traffic.transcript:
        read = decode(encode(letter.message))
        assert list(gate().accept({letter.sender: read}, NUMBERS)) == [letter.sender]
