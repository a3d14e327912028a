"""Every check of the protocol: one message is wrong, and the round ends without a sum."""

import os
from dataclasses import replace

import numpy as np
import pytest
from parties_of_generators import SESSION, noting, on_its_way, run
from queries import query_for
from secure_sums import PHASES, leaving, names, parties, ready, refused

from fedpriv.aggregation.base import BROADCAST, SERVER
from fedpriv.aggregation.secagg.aggregation import SecAgg
from fedpriv.aggregation.secagg.messages import SEALED, Envelope, keys_statement, seed_commitment
from fedpriv.crypto.digest import digest
from fedpriv.crypto.secret_sharing import PRIME, Reconstruction
from fedpriv.crypto.x25519 import PrivateKey
from fedpriv.errors import AggregationAbortedError
from fedpriv.parties.messages import digest_of
from fedpriv.rounds.query import Broadcast

VECTORS = np.ones((5, 4))
TOLD = digest_of(Broadcast({}))
FIRST, LATER = (1, 0), [(1, 1), (2, 0)]
"""Serials of queries: a first one, the next in the same round, and one of the next round."""


SOME, ALL = SecAgg(threshold=3, cohort=3), SecAgg(threshold=3)
"""Sums over three of the silos, and over every silo."""


@pytest.fixture
def protocols():
    return ready(SOME, 5)


@pytest.fixture
def everybody():
    return ready(ALL, 5)


def new_key():
    return PrivateKey.generate().public.raw


SAID_BY_SERVER = [BROADCAST, *PHASES[:4]]
"""Phases by what the server says: of each the answers to the one before."""


def server_says(protocols, step, change, serial=FIRST):
    """A query in which `change` edits the contents, by receiver, of the server's step-th message;
    the broadcast is its first (0)."""

    def edit(sent):
        return {name: change(name, content) for name, content in sent.items()}

    cast = parties(protocols, VECTORS, serial[0], place=serial[1])
    protocols.says(cast, SERVER, SAID_BY_SERVER[step], edit)
    return cast


def silo_says(protocols, name, phase, change, serial=FIRST):
    """A query in which `change` edits the content of what the silo says in a phase."""
    cast = parties(protocols, VECTORS, serial[0], place=serial[1])
    protocols.says(cast, name, PHASES[phase], lambda sent: {SERVER: change(sent[SERVER])})
    return cast


def seen_in(protocols, serial):
    """What silo1 and the server sent in an undisturbed query."""
    silo, server = [], []
    cast = parties(protocols, VECTORS, serial[0], place=serial[1])
    cast["silo1"], cast[SERVER] = noting(cast["silo1"], silo), noting(cast[SERVER], server)
    run(cast)
    return silo, server


@pytest.mark.parametrize("sends", range(5))
def test_too_few_in_a_phase(protocols, sends):
    cast = parties(protocols, VECTORS)
    for name in ("silo0", "silo2", "silo4"):
        cast[name] = leaving(cast[name], sends)
    refused(cast, f"{PHASES[sends]}: 2 of at least 3 silos; no message from silo0")


def signed_keys(protocols, keys, *, by="silo4", of="silo4"):
    statement = keys_statement((SESSION, *FIRST, TOLD), of, tuple(keys))
    return *keys, protocols[by].signer.key.sign(statement)


NONE_OF = {"too short": bytes(31), "of low order": bytes(32)}


@pytest.mark.parametrize("position", [0, 1])
@pytest.mark.parametrize("key", ["the other one", *NONE_OF])
def test_a_key_twice_or_one_that_is_none(protocols, position, key):
    def change(content):
        keys = [*content[:2]]
        keys[position] = NONE_OF.get(key, keys[1 - position])
        return signed_keys(protocols, keys)

    why = "a message of silo4 is refused: " if key in NONE_OF else "two keys are the same"
    refused(silo_says(protocols, "silo4", 0, change), why)


def test_keys_signed_by_somebody_else(protocols):
    cast = silo_says(
        protocols, "silo4", 0, lambda said: signed_keys(protocols, said[:2], by="silo1")
    )
    refused(cast, "silo4 has not signed its keys")


def test_a_silo_that_nobody_knows(protocols):
    stranger = signed_keys(protocols, (new_key(), new_key()), by="silo1", of="silo9")
    cast = server_says(protocols, 1, lambda _, roster: first_of(roster, 4) | {"silo9": stranger})
    refused(cast, "a message of server is refused: an entry for an unknown name")


def first_of(table, count):
    return dict([*table.items()][:count])


def shares_of_one(name, said):
    (peer, letter), *_ = said[1].items()
    return np.isin(names(5), [name, peer]), {peer: letter}


def swapped_letters(name, said):
    shared, letters = said
    swapped = {"silo3": letters["silo4"], "silo4": letters["silo3"]} if name == "silo0" else {}
    return shared, letters | swapped


FITS = "MaskedInputCollection: silo0 refuses: shares do not come from those who have shared"
SET = ["silo0", "silo1", "silo4"]
BY_SERVER = {
    "an unsigned key": (
        1,
        lambda _, roster: roster | {"silo3": (roster["silo3"][0], new_key(), roster["silo3"][2])},
        "ShareKeys: silo0 refuses: silo3 has not signed its keys",
    ),
    "too few candidates": (
        1,
        lambda _, roster: first_of(roster, 2),
        "ShareKeys: silo0 refuses: 2 candidates",
    ),
    "shares of too few": (2, shares_of_one, "shares of 2 silos"),
    "fewer shares than have shared": (
        2,
        lambda name, said: (said[0], dict([*said[1].items()][1:])),
        FITS,
    ),
    "shares of others than have shared": (
        2,
        lambda name, said: (said[0] ^ (np.arange(5) == int(name[-1])), said[1]),
        FITS,
    ),
    "shares from outside": (
        2,
        lambda name, said: (said[0], said[1] | {"silo9": bytes(SEALED)}),
        "a message of server is refused: part 1: an entry for an unknown name",
    ),
    "letters of the wrong sender": (
        2,
        swapped_letters,
        "Unmasking: silo0 refuses: the shares from silo3 are not for it",
    ),
    "too few signatures": (4, lambda _, signatures: first_of(signatures, 2), "2 signatures"),
}


@pytest.mark.parametrize("case", BY_SERVER)
def test_what_the_server_passes_on_is_checked(protocols, case):
    step, change, why = BY_SERVER[case]
    refused(server_says(protocols, step, change), why)


def flipped(share):
    return share ^ np.uint32(1)


def no_secret(revealed):
    """All of one silo's shares, each still an element of the field."""
    return {
        owner: (share.astype(np.uint64) * 12345 % PRIME).astype(share.dtype)
        for owner, share in revealed.items()
    }


BY_SILO = {
    "shares for some candidates only": (
        SOME,
        ("silo2", 1, lambda said: (said[0], first_of(said[1], 2))),
        {},
        "a message of silo2 is refused: shares for some candidates only",
    ),
    "a wrong share of a mask key": (
        SOME,
        ("silo0", 4, lambda revealed: revealed | {"silo4": flipped(revealed["silo4"])}),
        {"silo4": 2},
        "silo4's mask key: wrong is that of silo0, unless silo4 has dealt it so",
    ),
    "shares of no secret": (
        SOME,
        ("silo0", 4, no_secret),
        {},
        "Unmasking: .* wrong is that of silo0",
    ),
    "a missing share": (
        SOME,
        ("silo0", 4, lambda _: {}),
        {},
        "a message of silo0 is refused: no entry for silo0, silo1",
    ),
    "a forged signature": (
        SOME,
        ("silo2", 3, lambda _: bytes(64)),
        {},
        "silo2 signed another set",
    ),
    "a wrong share among no more than are needed, which accuses nobody alone": (
        ALL,
        ("silo0", 4, lambda revealed: revealed | {"silo1": flipped(revealed["silo1"])}),
        {"silo3": 4, "silo4": 4},
        "silo1's own mask: one of silo1, silo0, silo2 has lied",
    ),
    "shares of another seed than the one committed to": (
        ALL,
        ("silo2", 1, lambda said: (digest("another seed"), said[1])),
        {},
        "Unmasking: the shares do not give silo2's own mask",
    ),
}


@pytest.mark.parametrize("case", BY_SILO)
def test_what_a_silo_says_is_checked(case):
    aggregation, lie, gone, why = BY_SILO[case]
    cast = silo_says(ready(aggregation, 5), *lie)
    refused(cast | {name: leaving(cast[name], sends) for name, sends in gone.items()}, why)


@pytest.mark.parametrize(
    ("step", "change", "sends", "why"),
    [
        (
            3,
            lambda _, sets: ([*sets[0], "silo4"], SET, sets[2]),
            1,
            "a message of server is refused: part 0: a name from outside",
        ),
        (
            3,
            lambda _, sets: (sets[0], SET, sets[2]),
            2,
            "ConsistencyCheck: silo0 refuses: the set holds silos that have not delivered",
        ),
        (
            4,
            lambda _, signatures: signatures | {"silo4": bytes(64)},
            2,
            "a message of server is refused: an entry for an unknown name",
        ),
    ],
    ids=["shared no secrets", "not delivered", "signs without delivering"],
)
def test_a_silo_that_is_gone_is_in_no_set(protocols, step, change, sends, why):
    cast = server_says(protocols, step, change)
    refused(cast | {"silo4": leaving(cast["silo4"], sends)}, why)


def test_a_letter_with_other_names_inside_is_refused():
    one, other = PrivateKey.generate(), PrivateKey.generate()
    way = {"session": b"s", "sender": "silo0", "receiver": "silo1"}
    there = Envelope(own=one, peer=other.public, **way)
    here = Envelope(own=other, peer=one.public, **way)
    assert here.unseal(there.seal(b"shares")) == b"shares"
    for key, back in (("sender", "silo2"), ("receiver", "silo2"), ("session", b"t")):
        with pytest.raises(ValueError, match="seal is broken"):
            replace(here, **{key: back}).unseal(there.seal(b"shares"))


REPLAYS = {
    "own keys": (
        1,
        lambda _, roster, silo, server: roster | {"silo0": server[1]["silo0"]["silo0"]},
        "own keys are missing or changed",
    ),
    "keys": (
        1,
        lambda _, roster, silo, server: roster | {"silo1": silo[0]},
        "silo1 has not signed its keys",
    ),
    "shares": (
        2,
        lambda name, said, silo, server: (
            (said[0], said[1] | {"silo1": silo[1][1][name]}) if name != "silo1" else said
        ),
        "Unmasking: .*shares from silo1 are not for it",
    ),
    "a signature": (
        4,
        lambda _, signatures, silo, server: signatures | {"silo1": silo[3]},
        "Unmasking: .*silo1 signed another set",
    ),
    "a receipt": (
        3,
        lambda _, sets, silo, server: (*sets[:2], sets[2] | {"silo1": silo[2][1]}),
        "silo0 refuses: no receipt shows that silo1 has masked for the same silos",
    ),
}


@pytest.mark.parametrize("serial", LATER)
@pytest.mark.parametrize("case", REPLAYS)
def test_what_the_server_replays_from_an_earlier_query_is_refused(everybody, case, serial):
    step, change, why = REPLAYS[case]
    silo, server = seen_in(everybody, FIRST)
    said = [sent[SERVER] for sent in silo]
    cast = server_says(
        everybody, step, lambda name, content: change(name, content, said, server), serial
    )
    refused(cast, why)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda chosen: chosen[:2], "2 names instead of 3"),
        (lambda chosen: [*chosen, chosen[0]], "a name twice"),
        (lambda chosen: names(4), "4 names instead of 3"),
        (lambda chosen: [*chosen[:2], "silo9"], "a name from outside"),
    ],
)
def test_a_wrong_set(protocols, change, why):
    refused(
        server_says(protocols, 3, lambda _, sets: (sets[0], change(sets[1]), sets[2])),
        f"of server is refused: part 1: {why}",
    )


def test_two_sets_cannot_both_be_unmasked(protocols):
    seen = {name: [] for name in names(5)}

    def two(name, sets):
        chosen = names(3) if name == "silo0" else names(4)[1:]
        return sets[0], chosen, {peer: seen[peer][2][SERVER][1] for peer in chosen}

    cast = server_says(protocols, 3, two)
    refused(
        cast | {name: noting(cast[name], seen[name]) for name in seen},
        "Unmasking: silo0 refuses: silo1 signed another set",
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda receipts: dict([*receipts.items()][1:]),
        lambda receipts: receipts | {"silo1": bytes(64)},
        lambda receipts: receipts | {"silo1": receipts["silo2"]},
    ],
    ids=["missing", "forged", "of another silo"],
)
def test_a_witness_asks_for_every_receipt(everybody, change):
    cast = server_says(everybody, 3, lambda _, sets: (*sets[:2], change(sets[2])))
    refused(cast, "silo0 refuses: no receipt shows that silo[01] has masked for the same silos")


def test_a_wrong_receipt_costs_its_silo_its_place_and_not_the_query(protocols):
    def forge(delivery):
        return delivery[0], bytes(64)

    cast = silo_says(protocols, "silo1", 2, forge)
    assert "silo1" not in run(cast)[SERVER].silos
    three = silo_says(protocols, "silo1", 2, forge)
    for name in ("silo2", "silo3"):
        protocols.says(three, name, PHASES[2], lambda sent: {SERVER: forge(sent[SERVER])})
    refused(three, "2 of at least 3 silos; no right receipt of silo1, silo2, silo3")


def test_a_wrong_share_of_an_own_mask(everybody):
    # Shifted by what makes the secret larger by one, so that nothing but the commitment tells.
    weight = int(Reconstruction.at([1, 2, 3]).weights[0])

    def change(revealed):
        shifted = revealed["silo1"].copy()
        shifted[0] = (int(shifted[0]) + pow(weight, -1, PRIME)) % PRIME
        return revealed | {"silo1": shifted}

    cast = silo_says(everybody, "silo0", 4, change)
    refused(cast, "silo1's own mask: wrong is that of silo0, unless silo1 has dealt it so")


@pytest.mark.parametrize("serial", LATER)
def test_a_commitment_of_another_silo_or_an_earlier_query(everybody, serial):
    first, _ = seen_in(everybody, FIRST)
    (old, _) = first[1][SERVER]
    replayed = silo_says(everybody, "silo1", 1, lambda said: (old, said[1]), serial)
    refused(replayed, "the shares do not give silo1's own mask")
    seed = os.urandom(32)
    stated = [
        (b"one", "silo1", seed),
        (b"two", "silo1", seed),
        (b"one", "silo2", seed),
        (b"one", "silo1", bytes(32)),
    ]
    assert len({seed_commitment(*statement) for statement in stated}) == 4


def at_its_first_answer(protocols):
    """A silo that waits for the other candidates' keys."""
    silo, query = parties(protocols, VECTORS)["silo0"], query_for(protocols.aggregation, 5)
    assert next(silo) == {}
    sent = silo.send({SERVER: protocols.letter(query, BROADCAST, SERVER, "silo0", Broadcast({}))})
    assert sent[SERVER].phase == PHASES[0]
    return silo, query


def test_a_silo_leaves_when_nobody_answers(protocols):
    silo, _ = at_its_first_answer(protocols)
    with pytest.raises(StopIteration):
        silo.send({})


def test_a_silo_goes_on_waiting_when_it_hears_what_belongs_to_another_phase(protocols):
    silo, query = at_its_first_answer(protocols)
    assert silo.send({SERVER: protocols.letter(query, PHASES[3], SERVER, "silo0", {})}) == {}
    with pytest.raises(
        AggregationAbortedError, match="ShareKeys: silo0 refuses: own keys are missing"
    ):
        silo.send({SERVER: protocols.letter(query, PHASES[0], SERVER, "silo0", {})})


def forged(sent):
    """What somebody makes of messages who has no key: their signatures stay as they were."""
    return {receiver: replace(message, content=None) for receiver, message in sent.items()}


def found_on_its_way(protocols, name, phase, change, serial=FIRST):
    """Whether what somebody on the way makes of a message is found."""
    cast = parties(protocols, VECTORS, serial[0], place=serial[1])
    cast[name] = on_its_way(cast[name], phase, change)
    refused(cast, f"a message of {name} is refused: the signature is not its own")


@pytest.mark.parametrize("phase", PHASES)
def test_a_silos_message_changed_on_its_way_is_found(protocols, phase):
    found_on_its_way(protocols, "silo1", phase, forged)


@pytest.mark.parametrize("phase", SAID_BY_SERVER)
def test_the_servers_message_changed_on_its_way_is_found(protocols, phase):
    found_on_its_way(protocols, SERVER, phase, forged)


def test_a_message_for_another_silo_is_found(protocols):
    found_on_its_way(
        protocols,
        SERVER,
        PHASES[1],
        lambda sent: sent | {"silo0": sent["silo1"], "silo1": sent["silo0"]},
    )


def test_one_silo_cannot_speak_in_the_name_of_another(protocols):
    """silo1, or whoever has its key, signs what arrives as silo2's."""
    query = query_for(protocols.aggregation, 5)
    by_silo1 = protocols.letter(query, PHASES[0], "silo1", SERVER, None)
    found_on_its_way(protocols, "silo2", PHASES[0], lambda sent: {SERVER: by_silo1})


@pytest.mark.parametrize("serial", LATER)
def test_a_message_replayed_from_an_earlier_query_counts_as_not_sent(everybody, serial):
    cast, kept = parties(everybody, VECTORS), []
    cast["silo1"] = noting(cast["silo1"], kept, dict)
    run(cast)
    cast = parties(everybody, VECTORS, serial[0], place=serial[1])
    cast["silo1"] = on_its_way(cast["silo1"], PHASES[2], lambda _: kept[2])
    refused(cast, "MaskedInputCollection: 4 of at least 5 silos; no message from silo1")
    later = serial[0] + 1, 0
    relabelled = replace(kept[2][SERVER], round=later[0], place=later[1])
    found_on_its_way(everybody, "silo1", PHASES[2], lambda _: {SERVER: relabelled}, later)


@pytest.mark.parametrize("signature", [None, b"", bytes(64), "text"], ids=repr)
def test_a_signature_that_is_none(protocols, signature):
    found_on_its_way(
        protocols,
        "silo2",
        PHASES[2],
        lambda sent: {SERVER: replace(sent[SERVER], signature=signature)},
    )
