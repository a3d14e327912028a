"""Messages between parties of one process: sealed, and signed once somebody reads the signature."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest

from fedpriv.crypto.signatures import Ed25519Signer, SigningKey
from fedpriv.crypto.x25519 import PrivateKey, PublicKey
from fedpriv.engines.base import Network
from fedpriv.engines.inprocess import InProcess
from fedpriv.errors import ConfigError, MisfitError
from fedpriv.parties.messages import decode, digest_of, encode
from fedpriv.parties.one_process import MOST_SIGNATURES, OneProcess, one_process, sharing
from fedpriv.parties.party import Participant, PartySpec
from fedpriv.parties.post import Expected, Message, Post, Sizes
from fedpriv.parties.schema import Array
from fedpriv.parties.signer import CHECKSUM
from fedpriv.parties.traffic import Letter, Traffic
from fedpriv.testing.faults import Faulty, alter, forge, swap

SESSION = b"s" * 16
NUMBERS = Expected("numbers", Array(np.float64, (3,), finite=True), ("ann", "bob"))
KEYS = {name: SigningKey.generate() for name in ("ann", "bob", "server", "eve")}


def registry(context=b"run"):
    return {name: replace(key, context=context).verification_key for name, key in KEYS.items()}


def signer(name, context=b"run"):
    return Ed25519Signer(replace(KEYS[name], context=context), registry(context))


def gate(name="server", **where):
    about = {"session": SESSION, "serial": (2, 1), "signer": signer(name)} | where
    return Post(name, **about)


def sealed(sender="ann", receiver="server", numbers=(1.0, 2.0, 3.0), **where):
    return gate(sender, **where).signed("numbers", {receiver: np.array(numbers)})[receiver]


def is_signed(message):
    return "signature" in vars(message)


def test_outside_a_shared_process_every_message_is_signed_at_once():
    assert one_process() is None
    assert is_signed(sealed())
    with sharing(OneProcess(sealed=False)):
        assert is_signed(sealed())
    with sharing(None):
        assert is_signed(sealed())


def test_a_message_that_arrives_as_it_was_made_is_never_signed():
    with sharing(OneProcess()):
        message = sealed()
        server = gate()
        assert server.accept({"ann": message}, NUMBERS) == {"ann": message.content}
        assert server.told("ann") == digest_of(message.content)
    assert type(message) is Message
    assert not is_signed(message)


def test_whoever_reads_the_signature_gets_the_one_that_the_sender_would_have_made():
    with sharing(OneProcess()):
        message = sealed()
        size = Sizes().of(message)
        assert not is_signed(message)
        assert size == len(encode(message))
    at_once = sealed()
    assert message.signature == at_once.signature
    assert encode(message) == encode(at_once)
    arrived = decode(encode(message))
    assert list(gate().accept({"ann": arrived}, NUMBERS)) == ["ann"]
    assert repr(message).startswith("Message(session=")


CHANGES = {
    "content": lambda message: replace(message, content=np.array([1.0, 2.0, 4.0])),
    "an equal copy of the content, under a wrong signature": lambda message: replace(
        message, content=message.content.copy(), signature=bytes(64)
    ),
    "signature": lambda message: replace(message, signature=bytes(64)),
    "a signature written over it": lambda message: (
        object.__setattr__(message, "signature", bytes(64)) or message
    ),
    "content written over it": lambda message: (
        object.__setattr__(message, "content", np.array([1.0, 2.0, 4.0])) or message
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_message_is_verified_and_refused(change):
    with sharing(OneProcess()):
        changed = CHANGES[change](sealed())
        with pytest.raises(MisfitError, match=r"^a message of ann is refused: the signature is no"):
            gate().accept({"ann": changed}, NUMBERS)


def test_a_sealed_message_counts_for_its_sender_and_receiver_alone():
    with sharing(OneProcess()):
        for message, sender in (
            (sealed("bob"), "ann"),  # bob's message as ann's
            (sealed(receiver="bob"), "ann"),  # redirected
            (sealed("ann", signer=signer("eve")), "ann"),  # under a key that is not ann's
            (sealed("ann", signer=signer("ann", b"other settings")), "ann"),
            (sealed("ann", signer=CHECKSUM), "ann"),
        ):
            with pytest.raises(MisfitError, match=r"^a message of ann is refused: the signature"):
                gate().accept({sender: message}, NUMBERS)
        for stray in (sealed(session=b"t" * 16), sealed(serial=(1, 1)), sealed(serial=(2, 0))):
            server = gate()
            assert server.accept({"ann": stray}, NUMBERS) == {}
            assert server.strays == {"ann": 1}


def test_a_stamp_written_over_a_sealed_message_is_refused():
    with sharing(OneProcess()):
        message = sealed(serial=(1, 1))
        object.__setattr__(message, "round", 2)
        with pytest.raises(MisfitError, match="the signature is not its own"):
            gate().accept({"ann": message}, NUMBERS)


def test_copies_and_pickles_are_signed_or_verified():
    with sharing(OneProcess()):
        message = sealed()
        again = pickle.loads(pickle.dumps(encode(message)))
        assert is_signed(decode(again))
        deep = copy.deepcopy(decode(again))
        assert list(gate().accept({"ann": deep}, NUMBERS)) == ["ann"]


def test_the_schema_of_a_sealed_message_is_checked():
    with sharing(OneProcess()):
        with pytest.raises(MisfitError, match=r"ann is refused: a number that is not finite"):
            gate().accept({"ann": sealed(numbers=(1.0, np.nan, 3.0))}, NUMBERS)
        content = np.ones(3)
        letters = gate("ann").signed("numbers", dict.fromkeys(("server", "bob"), content))
        narrow = replace(NUMBERS, schema=Array(np.float64, (3,), high=0.5))
        gate("bob").accept({"ann": letters["bob"]}, NUMBERS)
        with pytest.raises(MisfitError, match=r"outside None to 0\.5"):
            gate().accept({"ann": letters["server"]}, narrow)


def test_one_content_for_many_receivers_is_signed_for_each():
    content = np.ones(3)
    with sharing(OneProcess()):
        letters = gate("ann").signed("numbers", dict.fromkeys(("server", "bob"), content))
        assert letters["server"].signature != letters["bob"].signature
    expected = gate("ann").signed("numbers", dict.fromkeys(("server", "bob"), content))
    assert {name: own.signature for name, own in letters.items()} == {
        name: own.signature for name, own in expected.items()
    }
    assert all(np.array_equal(own.content, content) for own in letters.values())


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


def test_a_pair_of_one_process_computes_its_secret_once(monkeypatch):
    exchanged = []

    class Counting:
        def __init__(self, key):
            self.key = key

        def exchange(self, peer):
            exchanged.append(peer)
            return self.key.exchange(peer)

    def seeds():
        ann, bob = PrivateKey.generate(), PrivateKey.generate()
        publics = ann.public, bob.public
        for private in (ann, bob):
            vars(private)["_key"] = Counting(private._key)
        return [
            own.derive_shared_seed(peer, purpose)
            for own, peer in ((ann, publics[1]), (bob, publics[0]))
            for purpose in (b"mask", b"seal")
        ]

    mask, seal, mask_of_bob, seal_of_bob = seeds()
    assert (mask, seal) == (mask_of_bob, seal_of_bob)
    assert mask != seal
    assert len(exchanged) == 2  # each of them once, whatever the purpose
    exchanged.clear()
    with sharing(OneProcess()):
        mask, seal, mask_of_bob, seal_of_bob = seeds()
        assert (mask, seal) == (mask_of_bob, seal_of_bob)
        assert len(exchanged) == 1
        seeds()
        assert len(exchanged) == 2  # other keys, another secret
    with sharing(OneProcess()), pytest.raises(ValueError, match="shared key"):
        PrivateKey.generate().derive_shared_seed(PublicKey(bytes(32)), b"mask")


def test_secrets_of_one_exchange_are_gone_in_the_next():
    with InProcess().open({"ann": Seen("ann", [])}, {}) as session:
        session.shared.exchanged[frozenset((b"one", b"other"))] = b"secret"
        with session.exchanging(Network()):
            assert not session.shared.exchanged


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


def test_messages_are_sealed_only_where_the_network_hands_over_what_was_sent():
    assert learned(InProcess()) == ([2.0] * 3, [False, False])
    assert learned(InProcess(signatures="checked")) == ([2.0] * 3, [True, True])
    assert learned(Faulty(InProcess(), ())) == ([2.0] * 3, [True, True])
    assert Network().faithful
    assert not Looking().faithful


@pytest.mark.parametrize("signatures", ["shared", "checked"])
@pytest.mark.parametrize(
    "fault",
    [
        alter(lambda message: replace(message, content=np.zeros(3)), sender="bob"),
        forge(lambda content: np.zeros(3), sender="bob"),
        swap("ann", "bob"),
    ],
)
def test_faults_are_found_however_signatures_are_treated(fault, signatures):
    with pytest.raises(MisfitError, match=r"^a message of (ann|bob) is refused: the signature"):
        learned(Faulty(InProcess(signatures=signatures), (fault,)))


def test_traffic_is_the_same():
    counted = []
    for signatures in ("shared", "checked"):
        traffic = Traffic()
        learned(InProcess(signatures=signatures), traffic)
        counted.append(traffic.rows(1, "update"))
    assert counted[0] == counted[1]
    assert counted[0][0]["bytes"] == len(encode(sealed("ann", numbers=(1.0, 1.0, 1.0))))


@pytest.mark.parametrize("shared", [True, False])
def test_sizes_of_messages_that_follow_each_other(shared):
    content = np.ones(3)
    with sharing(OneProcess() if shared else None):
        many = gate("ann").signed("numbers", dict.fromkeys(("server", "bob"), content))
        other = gate("ann", serial=(300, 1)).signed("numbers", {"server": content})
        more = gate("bob").signed("numbers", {"server": np.ones(4)})
        short = replace(many["bob"], signature=b"")
        array = replace(many["bob"], session=np.zeros(16, np.uint8))
        messages = [many["bob"], many["server"], *other.values(), *more.values()]
        messages += [many["bob"], short, array, array, b"no message", many["bob"]]
        sizes = Sizes()
        assert [sizes.of(each) for each in messages] == [len(encode(each)) for each in messages]


def test_a_kept_letter_can_be_encoded():
    traffic = Traffic(keep=True)
    learned(InProcess(), traffic)
    for letter in traffic.transcript:
        assert isinstance(letter, Letter)
        read = decode(encode(letter.message))
        assert list(gate().accept({letter.sender: read}, NUMBERS)) == [letter.sender]


def test_another_word_is_refused():
    with pytest.raises(ConfigError, match=r"engine.signatures=no: .*shared or checked"):
        InProcess(signatures="no")
