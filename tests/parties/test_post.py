"""The gate of messages: what it lets through, what it leaves aside and what ends the exchange."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from parties_of_generators import Protocols, overheard, run
from queries import query_for

from fedpriv.aggregation.masked import Masked
from fedpriv.aggregation.plain import Plain
from fedpriv.aggregation.secagg.aggregation import SecAgg
from fedpriv.crypto.signatures import Ed25519Signer, SigningKey
from fedpriv.engines.inprocess import InProcess
from fedpriv.errors import AggregationAbortedError, MisfitError
from fedpriv.parties.messages import DTYPES, MessageError, decode, digest_of, encode
from fedpriv.parties.post import Expected, Message, Post, at_fault, blaming, claims, contents
from fedpriv.parties.schema import Raw
from fedpriv.parties.signer import CHECKSUM
from fedpriv.parties.traffic import Traffic
from fedpriv.rounds.contributors import RecordWeighting
from fedpriv.rounds.local_job import LocalJob
from fedpriv.rounds.query import SUMMED, Broadcast
from fedpriv.runtime.helper import SumMembership
from fedpriv.testing.faults import Faulty, delay, duplicate

HERE, ELSEWHERE = b"h" * 16, b"e" * 16
WORD = Expected("word", Raw(2), ("a", "b"))
KEYS = {name: SigningKey.generate() for name in ("a", "b", "server")}
REGISTRY = {name: key.verification_key for name, key in KEYS.items()}


def post(name="server", session=HERE, serial=(3, 1), signed=False):
    return Post(name, session, serial, Ed25519Signer(KEYS[name], REGISTRY) if signed else CHECKSUM)


def letter(content=b"ok", sender="a", receiver="server", phase="word", **where):
    return next(post(sender, **where).send(phase, {receiver: content}))[receiver]


def test_contents_arrive_as_they_were_sent():
    for signed in (False, True):
        mail = {
            sender: letter(sender=sender, content=sender.encode() * 2, signed=signed)
            for sender in "ab"
        }
        mail = {sender: decode(encode(message)) for sender, message in mail.items()}
        assert post(signed=signed).accept(mail, WORD) == {"a": b"aa", "b": b"bb"}
        assert contents(mail) == {"a": b"aa", "b": b"bb"}


@pytest.mark.parametrize("kind", [AggregationAbortedError, MisfitError])
def test_what_ends_an_exchange_while_a_party_computes_has_its_name(kind):
    with pytest.raises(kind, match=r"^silo1: too few$") as raised, at_fault("silo1"):
        raise kind("too few")
    assert type(raised.value) is kind


STRAYS = {
    "another session": letter(session=ELSEWHERE),
    "another round": letter(serial=(2, 1)),
    "a later round": letter(serial=(4, 1)),
    "another query of the round": letter(serial=(3, 0)),
    "the set-up": letter(serial=(0, 0)),
    "another phase": letter(phase="answer"),
    "a session of another type": replace(letter(), session=np.zeros(16, np.uint8)),
    "a round of another type": replace(letter(), round=np.array([3, 3])),
    "a round that equals it": replace(letter(), round=3.0),
    "a place that equals it": replace(letter(), place=True),
    "no phase": replace(letter(), phase=None),
}


@pytest.mark.parametrize("stray", STRAYS)
def test_strays_are_left_aside_and_counted(stray):
    gate = post()
    assert gate.accept({"a": STRAYS[stray], "b": letter(sender="b")}, WORD) == {"b": b"ok"}
    assert gate.strays == {"a": 1}
    assert gate.accept({"a": STRAYS[stray]}, WORD) == {}
    with pytest.raises(
        AggregationAbortedError,
        match=r"^no message from a \(2 of another session, round or phase\)$",
    ):
        gate.require_all("ab", {"b": b"ok"})


def test_who_is_not_asked_is_left_aside():
    gate = post()
    assert gate.accept({"c": letter(b"whatever")}, WORD) == {}
    assert gate.strays == {"c": 1}


def learned(party, mail):
    """What a party has learned that ends with this mail."""
    with pytest.raises(StopIteration) as ended:
        party.send(mail)
    return ended.value.value


def test_a_party_goes_on_waiting_past_strays_and_stops_when_nobody_answers():
    gate = post()
    exchange = gate.exchange("question", {"a": b"??"}, WORD)
    [asked] = next(exchange).values()
    assert replace(asked, signature=b"") == Message(HERE, 3, 1, "question", b"??", b"")
    assert exchange.send({"a": letter(serial=(2, 1))}) == {}
    strays = {"a": letter(phase="answer"), "b": letter(sender="b", session=ELSEWHERE)}
    assert exchange.send(strays) == {}
    assert learned(exchange, {"b": letter(sender="b")}) == {"b": b"ok"}
    assert gate.strays == {"a": 2, "b": 1}
    silence = gate.receive(WORD)
    assert next(silence) == {}
    assert silence.send({"a": STRAYS["another round"]}) == {}
    assert learned(silence, {}) == {}


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"ok", "bytes without a stamp"),
        (None, "NoneType without a stamp"),
        ((HERE, 3, 1, "word", b"ok", None), "tuple without a stamp"),
        (Broadcast({}), "Broadcast without a stamp"),
    ],
)
def test_what_has_no_stamp_ends_the_exchange(message, why, signed):
    with pytest.raises(AggregationAbortedError, match=f"^a message of a is refused: {why}$"):
        post(signed=signed).accept({"a": message, "b": letter(sender="b", signed=signed)}, WORD)


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize(
    "content", [b"o", b"too long", "ok", None, [b"ok"], np.zeros(2), {"a": b"ok"}]
)
def test_what_is_of_another_kind_ends_the_exchange(content, signed):
    with pytest.raises(
        AggregationAbortedError, match=r"^a message of a is refused: .* instead of "
    ):
        post(signed=signed).accept({"a": letter(content, signed=signed)}, WORD)


def refused_signature(message, sender="a", receiver="server", hear=WORD, signed=True):
    with pytest.raises(
        MisfitError, match=f"^a message of {sender} is refused: the signature is not its own"
    ):
        post(receiver, signed=signed).accept({sender: message}, hear)


@pytest.mark.parametrize("signed", [False, True])
def test_a_signature_holds_for_one_message(signed):
    """Neither its content, nor who it is from or for, nor where it belongs can be changed under the
    signature, or under the checksum that stands in its place."""
    good = letter(signed=signed)
    assert post(signed=signed).accept({"a": good}, WORD) == {"a": b"ok"}
    refused_signature(replace(good, content=b"no"), signed=signed)
    refused_signature(good, sender="b", signed=signed)
    refused_signature(good, receiver="b", signed=signed)
    for where in (
        {"session": ELSEWHERE},
        {"serial": (2, 1)},
        {"serial": (3, 0)},
        {"phase": "answer"},
    ):
        other = letter(signed=signed, **where)
        assert post(signed=signed).accept({"a": other}, WORD) == {}
        refused_signature(
            replace(other, session=HERE, round=3, place=1, phase="word"), signed=signed
        )


def test_without_signatures_whoever_changes_a_message_makes_a_new_checksum():
    """So the way must be one on which nobody can change it; and nothing proves who it is from."""
    assert post().accept({"a": letter(b"no")}, WORD) == {"a": b"no"}
    refused_signature(letter(b"no"))


@given(st.integers(0, 511))
def test_a_signature_with_any_bit_turned_is_found(bit):
    good = letter(signed=True)
    turned = bytearray(good.signature)
    turned[bit // 8] ^= 1 << bit % 8
    refused_signature(replace(good, signature=bytes(turned)))


NO_SIGNATURES = [None, b"", *map(bytes, (32, 64, 65)), "text", 0, *np.zeros((1, 64), np.uint8)]


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("signature", [*NO_SIGNATURES, np.zeros(32, np.uint8)], ids=repr)
def test_what_is_no_signature_or_checksum_is_found(signature, signed):
    refused_signature(replace(letter(signed=signed), signature=signature), signed=signed)


def test_a_party_that_nobody_has_a_key_of_is_refused():
    stranger = Post("c", HERE, (3, 1), Ed25519Signer(SigningKey.generate(), REGISTRY))
    message = next(stranger.send("word", {"server": b"ok"}))["server"]
    refused_signature(message, sender="c", hear=replace(WORD, senders=("c",)))


def test_what_cannot_be_sent_cannot_be_signed():
    with pytest.raises(MessageError, match="cannot hold"):
        next(post("a", signed=True).send("word", {"server": object()}))
    refused = replace(letter(signed=True), content=object())
    with pytest.raises(AggregationAbortedError, match=r"^a message of a is refused: .*cannot hold"):
        post(signed=True).accept({"a": refused}, WORD)


def test_what_is_found_later_is_blamed_on_the_sender_too():
    with (
        pytest.raises(AggregationAbortedError, match=r"^a message of a is refused: ValueError$"),
        blaming("a"),
    ):
        raise ValueError
    with pytest.raises(RuntimeError), blaming("a"):
        raise RuntimeError("a defect")


def test_what_a_message_claims_is_read_safely():
    assert claims(letter(), "word")
    assert not claims(letter(), "other")
    assert not claims(b"word", "word")
    assert not claims(replace(letter(), phase=np.array(["word", "word"]) == "word"), "word")


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**80), 2**80), st.floats(), st.text(), st.binary()
)
contents_of_any_kind = st.recursive(
    st.one_of(scalars, arrays(st.sampled_from(DTYPES), array_shapes(min_dims=0, min_side=0))),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.one_of(st.text(max_size=2), st.integers()), inner, max_size=3),
        st.builds(
            Message,
            st.binary(max_size=3),
            st.integers(),
            st.integers(),
            st.text(max_size=2),
            inner,
            st.binary(),
        ),
    ),
    max_leaves=5,
)


@given(contents_of_any_kind)
def test_the_digest_is_that_of_the_encoding(message):
    assert digest_of(message) == hashlib.sha256(encode(message)).digest()


def test_the_digest_is_that_of_the_encoding_for_arrays_of_any_layout():
    table = np.arange(12.0).reshape(3, 4)
    for array in (
        table.T,
        table[:, ::2],
        table[::-1],
        np.asfortranarray(table),
        table.astype(">f8"),
        table[:0],
    ):
        assert digest_of(array) == hashlib.sha256(encode(array)).digest()


@given(contents_of_any_kind)
def test_nothing_but_an_abort_comes_of_any_content(content):
    for signed in (False, True):
        gate, message = post(signed=signed), letter(content, signed=signed)
        if type(content) is bytes and len(content) == 2:
            assert gate.accept({"a": message}, WORD) == {"a": content}
        else:
            with pytest.raises(AggregationAbortedError, match=r"^a message of a is refused: "):
                gate.accept({"a": message}, WORD)


# -- late and repeated letters in whole exchanges --------------------------------------------------

SILOS, SIZE = 3, 4
AGGREGATIONS = [Plain(), Masked(), SecAgg()]
SET_UP_AND_QUERY = 8
"""More steps than the exchanges below have, set-up or query."""


def protocols_of(aggregation):
    return Protocols(aggregation, tuple(range(SILOS)), RecordWeighting())


def set_up(protocols):
    return protocols.setup(np.ones((SILOS, 2), dtype=np.int64))


def query_of(protocols):
    updates = {f"silo{s}": LocalJob(iter(()), np.full(SIZE, float(s))) for s in range(SILOS)}
    return protocols.query(query_for(protocols.aggregation, SILOS, size=SIZE), updates)


def total(aggregation, *faults):
    """The sum after a set-up and a query over a network with these faults."""
    protocols, engine = protocols_of(aggregation), Faulty(InProcess(), faults)
    run(set_up(protocols), engine=engine)
    return run(query_of(protocols), engine=engine)["server"].vector


@pytest.mark.parametrize("aggregation", AGGREGATIONS, ids=str)
@pytest.mark.parametrize("step", range(SET_UP_AND_QUERY))
def test_a_letter_that_comes_twice_is_harmless(aggregation, step):
    expected = np.full(SIZE, 3.0)
    np.testing.assert_array_equal(total(aggregation, duplicate(step=step)), expected)
    once = duplicate(step=step, sender="server", receiver="silo1")
    np.testing.assert_array_equal(total(aggregation, once), expected)


@pytest.mark.parametrize("aggregation", AGGREGATIONS, ids=str)
@pytest.mark.parametrize("step", range(SET_UP_AND_QUERY))
def test_a_step_that_comes_late_is_harmless(aggregation, step):
    np.testing.assert_array_equal(total(aggregation, delay(2, step=step)), np.full(SIZE, 3.0))


@pytest.mark.parametrize("aggregation", AGGREGATIONS, ids=str)
def test_letters_of_the_set_up_that_arrive_in_a_query_are_strays(aggregation):
    """Everything that anybody said at the set-up comes again, in every step of the query."""
    protocols, traffic = protocols_of(aggregation), Traffic(keep=True)
    run(set_up(protocols), traffic)
    said = {}
    for letter in traffic.transcript:
        said.setdefault(letter.receiver, {}).setdefault(letter.sender, letter.message)
    assert set(said) == {"server", "silo0", "silo1", "silo2"}

    def haunted(name, party):
        """Hears the old letters of those who say nothing new beside the new ones."""
        return overheard(party, hears=lambda mail: said[name] | mail if mail else mail)

    cast = query_of(protocols)
    totals = run({name: haunted(name, party) for name, party in cast.items()})
    np.testing.assert_array_equal(totals["server"].vector, np.full(SIZE, 3.0))


def test_a_late_word_about_an_earlier_sum_is_no_answer():
    """It neither ends the wait of a silo's protocol nor is taken for the word about this sum."""
    told = SumMembership(
        post("a"), Expected(SUMMED, query_for(Plain(), 2).summed_schema(("a", "b")), ("server",))
    )
    late, now = (
        letter(("b", "a"), "server", "a", SUMMED, serial=serial) for serial in ((2, 0), (3, 1))
    )
    gate = post("a")
    party = told.overhearing(gate.receive(replace(WORD, senders=("server",))))
    assert next(party) == {}
    assert party.send({"server": late}) == {}
    assert gate.strays == {"server": 1}
    assert told.silos is None
    assert learned(party, {"server": letter(b"ok", "server", "a")}) == {"server": b"ok"}
    waiting = told.summed()
    assert next(waiting) == {}
    assert waiting.send({"server": late}) == {}
    assert learned(waiting, {"server": now}) == ("b", "a")
    waiting = replace(told, silos=None).summed()
    assert next(waiting) == {}
    with pytest.raises(
        AggregationAbortedError, match="a message of server is refused: a name from outside"
    ):
        waiting.send({"server": letter(("c", "a"), "server", "a", SUMMED)})
