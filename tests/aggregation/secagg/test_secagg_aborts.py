"""Every check of the protocol: one message is wrong, and the round ends without a sum."""

import os
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from parties_of_generators import SESSION, noting, on_its_way, run
from queries import query_for
from secure_sums import PHASES, leaving, names, parties, ready

from fedpriv.aggregation.base import BROADCAST, SERVER
from fedpriv.aggregation.secagg import silo
from fedpriv.aggregation.secagg.aggregation import SecAgg
from fedpriv.aggregation.secagg.messages import SEALED, Envelope, keys_statement, seed_commitment
from fedpriv.crypto.digest import digest
from fedpriv.crypto.sealing import seal
from fedpriv.crypto.secret_sharing import PRIME, Reconstruction
from fedpriv.crypto.x25519 import PrivateKey
from fedpriv.errors import AggregationAbortedError
from fedpriv.parties.messages import digest_of
from fedpriv.rounds.query import Broadcast

VECTORS = np.ones((5, 4))
TOLD = digest_of(Broadcast({}))
FIRST, LATER = (1, 0), [(1, 1), (2, 0)]
"""Serials of queries: a first one, the next in the same round, and one of the next round."""


@pytest.fixture
def protocols():
    return ready(SecAgg(threshold=3, cohort=3), 5)


@pytest.fixture
def everybody():
    """Those whose sum covers every silo."""
    return ready(SecAgg(threshold=3), 5)


def new_key():
    return PrivateKey.generate().public.raw


def refused(cast, match):
    with pytest.raises(AggregationAbortedError, match=match):
        run(cast)


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


def test_everybody_gone(protocols):
    cast = parties(protocols, VECTORS)
    refused(
        {name: leaving(party, 1) if name != SERVER else party for name, party in cast.items()},
        "ShareKeys: 0",
    )


@pytest.mark.parametrize("position", [0, 1])
def test_a_key_twice(protocols, position):
    def copy(content):
        keys = [*content[:2]]
        keys[position] = keys[1 - position]
        return (
            *keys,
            protocols["silo4"].signer.key.sign(
                keys_statement((SESSION, *FIRST, TOLD), "silo4", tuple(keys))
            ),
        )

    refused(silo_says(protocols, "silo4", 0, copy), "ShareKeys: .*two keys are the same")


def test_an_unsigned_key(protocols):
    def swap(_, roster):
        return roster | {"silo3": (roster["silo3"][0], new_key(), roster["silo3"][2])}

    refused(
        server_says(protocols, 1, swap), "ShareKeys: silo0 refuses: silo3 has not signed its keys"
    )


def test_keys_signed_by_somebody_else(protocols):
    def forge(content):
        return (
            *content[:2],
            protocols["silo1"].signer.key.sign(
                keys_statement((SESSION, *FIRST, TOLD), "silo4", content[:2])
            ),
        )

    refused(silo_says(protocols, "silo4", 0, forge), "silo4 has not signed its keys")


def test_a_silo_that_nobody_knows(protocols):
    def invite(_, roster):
        keys = new_key(), new_key()
        stranger = (
            *keys,
            protocols["silo1"].signer.key.sign(
                keys_statement((SESSION, *FIRST, TOLD), "silo9", keys)
            ),
        )
        return {name: advert for name, advert in roster.items() if name != "silo4"} | {
            "silo9": stranger
        }

    refused(
        server_says(protocols, 1, invite),
        "a message of server is refused: an entry for an unknown name",
    )


@pytest.mark.parametrize("serial", LATER)
def test_own_keys_replaced_by_those_of_an_earlier_query(protocols, serial):
    _, (_, first, *_) = seen_in(protocols, FIRST)
    old = first["silo0"]["silo0"]
    replaced = server_says(protocols, 1, lambda _, roster: roster | {"silo0": old}, serial)
    refused(replaced, "own keys are missing or changed")


@pytest.mark.parametrize("serial", LATER)
def test_keys_replayed_from_an_earlier_query(protocols, serial):
    (advert, *_), _ = seen_in(protocols, FIRST)
    old = advert[SERVER]
    replayed = server_says(protocols, 1, lambda _, roster: roster | {"silo1": old}, serial)
    refused(replayed, "silo1 has not signed its keys")


@pytest.mark.parametrize("serial", LATER)
def test_shares_replayed_from_an_earlier_query(protocols, serial):
    (_, sealed, *_), _ = seen_in(protocols, FIRST)
    _, old = sealed[SERVER]

    def replay(name, said):
        return (said[0], said[1] | {"silo1": old[name]}) if name != "silo1" else said

    refused(
        server_says(protocols, 2, replay, serial), "Unmasking: .*shares from silo1 are not for it"
    )


@pytest.mark.parametrize("serial", LATER)
def test_a_signature_of_an_earlier_query(protocols, serial):
    old = seen_in(protocols, FIRST)[0][3][SERVER]
    replayed = server_says(protocols, 4, lambda _, signatures: signatures | {"silo1": old}, serial)
    refused(replayed, "Unmasking: .*silo1 signed another set")


def test_too_few_candidates(protocols):
    def cut(_, roster):
        return {name: roster[name] for name in ("silo0", "silo1")}

    refused(server_says(protocols, 1, cut), "ShareKeys: silo0 refuses: 2 candidates")


def test_shares_of_too_few(protocols):
    def cut(name, said):
        (peer, letter), *_ = said[1].items()
        return np.isin(names(5), [name, peer]), {peer: letter}

    refused(server_says(protocols, 2, cut), "shares of 2 silos")


def test_shares_that_do_not_fit_the_silos_that_have_shared(protocols):
    fewer = server_says(protocols, 2, lambda name, said: (said[0], dict([*said[1].items()][1:])))
    refused(
        fewer, "MaskedInputCollection: silo0 refuses: shares do not come from those who have shared"
    )
    others = server_says(
        protocols, 2, lambda name, said: (said[0] ^ (np.arange(5) == int(name[-1])), said[1])
    )
    refused(
        others,
        "MaskedInputCollection: silo0 refuses: shares do not come from those who have shared",
    )


def test_shares_from_outside_the_candidates(protocols):
    sealed = bytes(SEALED)
    outside = server_says(protocols, 2, lambda name, said: (said[0], said[1] | {"silo9": sealed}))
    refused(outside, "a message of server is refused: part 1: an entry for an unknown name")


def test_shares_for_some_candidates_only(protocols):
    cut = silo_says(protocols, "silo2", 1, lambda said: (said[0], dict([*said[1].items()][:2])))
    refused(cut, "a message of silo2 is refused: shares for some candidates only")


def test_ciphertexts_given_to_the_wrong_sender(protocols):
    def swap(name, said):
        shared, letters = said
        swapped = {"silo3": letters["silo4"], "silo4": letters["silo3"]} if name == "silo0" else {}
        return shared, letters | swapped

    refused(
        server_says(protocols, 2, swap),
        "Unmasking: silo0 refuses: the shares from silo3 are not for it",
    )


def test_a_ciphertext_with_swapped_names_inside(protocols, monkeypatch):
    def sealed_with_swapped_names(envelope, shares):
        return seal(envelope._key(), digest(envelope.receiver, envelope.sender) + shares)

    one, other = PrivateKey.generate(), PrivateKey.generate()
    way = {"session": b"s", "sender": "silo0", "receiver": "silo1"}
    there, here = (
        Envelope(own=one, peer=other.public, **way),
        Envelope(own=other, peer=one.public, **way),
    )
    assert here.unseal(there.seal(b"shares")) == b"shares"
    monkeypatch.setattr(Envelope, "seal", sealed_with_swapped_names)
    with pytest.raises(ValueError, match="names others"):
        here.unseal(there.seal(b"shares"))
    refused(parties(protocols, VECTORS), r"Unmasking: .* are not for it")


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


def test_a_set_with_a_silo_that_shared_no_secrets(protocols):
    cast = server_says(
        protocols, 3, lambda _, sets: ([*sets[0], "silo4"], ["silo0", "silo1", "silo4"], sets[2])
    )
    cast["silo4"] = leaving(cast["silo4"], 1)
    refused(cast, "a message of server is refused: part 0: a name from outside")


def test_a_set_with_a_silo_that_has_not_delivered(protocols):
    cast = server_says(
        protocols, 3, lambda _, sets: (sets[0], ["silo0", "silo1", "silo4"], sets[2])
    )
    cast["silo4"] = leaving(cast["silo4"], 2)
    refused(cast, "ConsistencyCheck: silo0 refuses: the set holds silos that have not delivered")


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


@pytest.mark.parametrize("serial", LATER)
def test_a_receipt_of_an_earlier_query(everybody, serial):
    _, old = seen_in(everybody, FIRST)[0][2][SERVER]
    cast = server_says(everybody, 3, lambda _, sets: (*sets[:2], sets[2] | {"silo1": old}), serial)
    refused(cast, "silo0 refuses: no receipt shows that silo1 has masked for the same silos")


def test_a_wrong_receipt_costs_its_silo_its_place_and_not_the_query(protocols):
    def forge(delivery):
        return delivery[0], bytes(64)

    cast = silo_says(protocols, "silo1", 2, forge)
    assert "silo1" not in run(cast)[SERVER].silos
    three = silo_says(protocols, "silo1", 2, forge)
    for name in ("silo2", "silo3"):
        protocols.says(three, name, PHASES[2], lambda sent: {SERVER: forge(sent[SERVER])})
    refused(three, "2 of at least 3 silos; no right receipt of silo1, silo2, silo3")


def test_too_few_signatures_passed_on(protocols):
    refused(
        server_says(protocols, 4, lambda _, signatures: dict([*signatures.items()][:2])),
        "2 signatures",
    )


def test_a_signature_of_a_silo_that_has_not_delivered(protocols):
    def add(_, signatures):
        return signatures | {"silo4": bytes(64)}

    cast = server_says(protocols, 4, add)
    cast["silo4"] = leaving(cast["silo4"], 2)
    refused(cast, "a message of server is refused: an entry for an unknown name")


def test_a_forged_signature(protocols):
    refused(silo_says(protocols, "silo2", 3, lambda _: bytes(64)), "silo2 signed another set")


def test_vectors_of_different_lengths(everybody):
    cast = parties(everybody, [[1.0, 2.0]] * 4 + [[1.0]])
    refused(
        cast, r"a message of silo4 is refused: part 0: an array of shape \(1,\) instead of \(2,\)"
    )


def test_a_wrong_share_of_a_mask_key(protocols):
    def change(revealed):
        return revealed | {"silo4": revealed["silo4"] ^ np.uint32(1)}

    cast = silo_says(protocols, "silo0", 4, change)
    cast["silo4"] = leaving(cast["silo4"], 2)
    refused(cast, "silo4's mask key: wrong is that of silo0, unless silo4 has dealt it so")


def test_a_wrong_share_of_an_own_mask(everybody):
    # Shifted by what makes the secret larger by one, so that nothing but the commitment tells.
    weight = int(Reconstruction.at([1, 2, 3]).weights[0])

    def change(revealed):
        shifted = revealed["silo1"].copy()
        shifted[0] = (int(shifted[0]) + pow(weight, -1, PRIME)) % PRIME
        return revealed | {"silo1": shifted}

    cast = silo_says(everybody, "silo0", 4, change)
    refused(cast, "silo1's own mask: wrong is that of silo0, unless silo1 has dealt it so")


def test_a_wrong_share_among_no_more_than_are_needed_accuses_nobody_alone(everybody):
    def change(revealed):
        return revealed | {"silo1": revealed["silo1"] ^ np.uint32(1)}

    cast = silo_says(everybody, "silo0", 4, change)
    cast |= {name: leaving(cast[name], 4) for name in ("silo3", "silo4")}
    refused(cast, "silo1's own mask: one of silo1, silo0, silo2 has lied")


def test_who_deals_wrong_shares_is_among_the_names(everybody):
    """silo2 deals silo0 a share that fits nothing, so that silo0 seems to lie."""
    real = silo.share

    def dealt(secret, least, number):
        found = real(secret, least, number)
        found[0] = found[0] ^ np.uint32(1)
        return found

    cast = parties(everybody, VECTORS)

    def cheating(party):
        mail = None
        while True:
            with patch.object(silo, "share", dealt):
                try:
                    sent = party.send(mail)
                except StopIteration as end:
                    return end.value
            mail = yield sent

    cast["silo2"] = cheating(cast["silo2"])
    refused(cast, "silo2's own mask: wrong is that of silo0, unless silo2 has dealt it so")


def test_shares_of_another_seed_than_the_one_committed_to(everybody):
    cast = silo_says(everybody, "silo2", 1, lambda said: (digest("another seed"), said[1]))
    refused(cast, "Unmasking: the shares do not give silo2's own mask")


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


def test_a_missing_share(protocols):
    refused(
        silo_says(protocols, "silo0", 4, lambda _: {}),
        "a message of silo0 is refused: no entry for silo0, silo1",
    )


@pytest.mark.parametrize("position", [0, 1])
@pytest.mark.parametrize("key", [bytes(31), bytes(32)], ids=["too short", "of low order"])
def test_a_key_that_is_none(protocols, position, key):
    def swap(content):
        keys = [*content[:2]]
        keys[position] = key
        return (
            *keys,
            protocols["silo4"].signer.key.sign(
                keys_statement((SESSION, *FIRST, TOLD), "silo4", tuple(keys))
            ),
        )

    refused(silo_says(protocols, "silo4", 0, swap), "a message of silo4 is refused: ")


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


def test_a_silo_refuses_what_has_no_stamp(protocols):
    silo, _ = at_its_first_answer(protocols)
    with pytest.raises(
        AggregationAbortedError, match="a message of server is refused: Broadcast without a stamp"
    ):
        silo.send({SERVER: Broadcast({})})


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


@pytest.mark.parametrize("phase", PHASES)
def test_a_silos_message_changed_on_its_way_is_found(protocols, phase):
    cast = parties(protocols, VECTORS)
    cast["silo1"] = on_its_way(cast["silo1"], phase, forged)
    refused(cast, "a message of silo1 is refused: the signature is not its own")


@pytest.mark.parametrize("phase", SAID_BY_SERVER)
def test_the_servers_message_changed_on_its_way_is_found(protocols, phase):
    cast = parties(protocols, VECTORS)
    cast[SERVER] = on_its_way(cast[SERVER], phase, forged)
    refused(cast, "a message of server is refused: the signature is not its own")


def test_a_masked_vector_moved_by_one_on_its_way_is_found(protocols):
    def move(sent):
        masked, receipt = sent[SERVER].content
        return {SERVER: replace(sent[SERVER], content=(masked + np.uint64(1), receipt))}

    cast = parties(protocols, VECTORS)
    cast["silo3"] = on_its_way(cast["silo3"], PHASES[2], move)
    refused(cast, "a message of silo3 is refused: the signature is not its own")


@pytest.mark.parametrize("signature", [None, b"", bytes(64), "text"], ids=repr)
def test_a_signature_that_is_none(protocols, signature):
    cast = parties(protocols, VECTORS)
    cast["silo2"] = on_its_way(
        cast["silo2"], PHASES[2], lambda sent: {SERVER: replace(sent[SERVER], signature=signature)}
    )
    refused(cast, "a message of silo2 is refused: the signature is not its own")


def test_a_message_for_another_silo_is_found(protocols):
    def swap(sent):
        return sent | {"silo0": sent["silo1"], "silo1": sent["silo0"]}

    cast = parties(protocols, VECTORS)
    cast[SERVER] = on_its_way(cast[SERVER], PHASES[1], swap)
    refused(cast, "a message of server is refused: the signature is not its own")


def test_one_silo_cannot_speak_in_the_name_of_another(protocols):
    """silo1, or whoever has its key, signs what arrives as silo2's."""

    def by_silo1(sent):
        return {
            SERVER: protocols.letter(
                query_for(protocols.aggregation, 5), PHASES[0], "silo1", SERVER, None
            )
        }

    cast = parties(protocols, VECTORS)
    cast["silo2"] = on_its_way(cast["silo2"], PHASES[0], by_silo1)
    refused(cast, "a message of silo2 is refused: the signature is not its own")


@pytest.mark.parametrize("serial", LATER)
def test_a_message_replayed_from_an_earlier_query_counts_as_not_sent(everybody, serial):
    cast, kept = parties(everybody, VECTORS), []
    cast["silo1"] = noting(cast["silo1"], kept, dict)
    run(cast)
    cast = parties(everybody, VECTORS, serial[0], place=serial[1])
    cast["silo1"] = on_its_way(cast["silo1"], PHASES[2], lambda _: kept[2])
    refused(cast, "MaskedInputCollection: 4 of at least 5 silos; no message from silo1")
    cast = parties(everybody, VECTORS, serial[0] + 1)
    old = kept[2][SERVER]
    relabelled = replace(old, round=serial[0] + 1, place=0)
    cast["silo1"] = on_its_way(cast["silo1"], PHASES[2], lambda _: {SERVER: relabelled})
    refused(cast, "a message of silo1 is refused: the signature is not its own")


def test_shares_of_no_secret(protocols):
    """All of one silo's, each still an element of the field."""

    def lie(revealed):
        return {
            owner: (share.astype(np.uint64) * 12345 % PRIME).astype(share.dtype)
            for owner, share in revealed.items()
        }

    refused(silo_says(protocols, "silo0", 4, lie), "Unmasking: .* wrong is that of silo0")
