"""Every check of the protocol: one message is wrong, and the round ends without a sum."""

import os

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from secure_sums import PHASES, changed, dropping, names, noting, parties, ready, run

from fedpriv.aggregation import secagg_messages
from fedpriv.aggregation.base import SERVER, AggregationAborted
from fedpriv.aggregation.field_shares import PRIME, Reconstruction
from fedpriv.aggregation.masks import digest, new_key
from fedpriv.aggregation.secagg import SecAgg
from fedpriv.aggregation.secagg_messages import NONCE, keys_statement, seal, seed_commitment, sign, unseal

AGGREGATION = SecAgg(threshold=3, cohort=3)
VECTORS = np.ones((5, 4))


@pytest.fixture
def memory():
    return ready(AGGREGATION, 5)


def refused(cast, match):
    with pytest.raises(AggregationAborted, match=match):
        run(cast)


def server_says(memory, step, change, round=1):
    """A round in which `change` edits the contents, by receiver, of the server's step-th message."""

    def edit(sent):
        return {name: (phase, change(name, content)) for name, (phase, content) in sent.items()}

    cast = parties(AGGREGATION, memory, VECTORS, round)
    cast[SERVER] = changed(cast[SERVER], step, edit)
    return cast


def silo_says(memory, name, step, change, aggregation=AGGREGATION, round=1):
    def edit(sent):
        phase, content = sent[SERVER]
        return {SERVER: (phase, change(content))}

    cast = parties(aggregation, memory, VECTORS, round)
    cast[name] = changed(cast[name], step, edit)
    return cast


def round_seen(memory, round):
    """What silo1 and the server sent in an undisturbed round."""
    silo, server = [], []
    cast = parties(AGGREGATION, memory, VECTORS, round)
    cast["silo1"], cast[SERVER] = noting(cast["silo1"], silo), noting(cast[SERVER], server)
    run(cast)
    return silo, server


@pytest.mark.parametrize("sends", range(5))
def test_too_few_in_a_phase(memory, sends):
    cast = parties(AGGREGATION, memory, VECTORS)
    for name in ("silo0", "silo2", "silo4"):
        cast[name] = dropping(cast[name], sends)
    refused(cast, f"{PHASES[sends]}: 2 of at least 3 silos; no message from silo0")


def test_everybody_gone(memory):
    cast = parties(AGGREGATION, memory, VECTORS)
    refused({name: dropping(party, 1) if name != SERVER else party for name, party in cast.items()}, "ShareKeys: 0")


@pytest.mark.parametrize("position", [0, 1])
def test_a_key_twice(memory, position):
    def copy(content):
        keys = [*content[:2]]
        keys[position] = keys[1 - position]
        return (*keys, sign(memory["silo4"]["signing_key"], keys_statement(1, "silo4", *keys)))

    refused(silo_says(memory, "silo4", 0, copy), "ShareKeys: .*two keys are the same")


def test_an_unsigned_key(memory):
    def swap(_, roster):
        return roster | {"silo3": (roster["silo3"][0], new_key()[1], roster["silo3"][2])}

    refused(server_says(memory, 1, swap), "ShareKeys: silo0 refuses: silo3 has not signed its keys")


def test_keys_signed_by_somebody_else(memory):
    def forge(content):
        return (*content[:2], sign(memory["silo1"]["signing_key"], keys_statement(1, "silo4", *content[:2])))

    refused(silo_says(memory, "silo4", 0, forge), "silo4 has not signed its keys")


def test_a_silo_that_nobody_knows(memory):
    def invite(_, roster):
        keys = new_key()[1], new_key()[1]
        stranger = (*keys, sign(memory["silo1"]["signing_key"], keys_statement(1, "silo9", *keys)))
        return {name: advert for name, advert in roster.items() if name != "silo4"} | {"silo9": stranger}

    refused(server_says(memory, 1, invite), "silo9 has not signed its keys")


def test_own_keys_replaced_by_those_of_an_earlier_round(memory):
    _, (_, first, *_) = round_seen(memory, 1)
    old = first["silo0"][1]["silo0"]
    refused(server_says(memory, 1, lambda _, roster: roster | {"silo0": old}, 2), "own keys are missing or changed")


def test_keys_replayed_from_an_earlier_round(memory):
    (advert, *_), _ = round_seen(memory, 1)
    old = advert[SERVER][1]
    refused(server_says(memory, 1, lambda _, roster: roster | {"silo1": old}, 2), "silo1 has not signed its keys")


def test_shares_replayed_from_an_earlier_round(memory):
    (_, sealed, *_), _ = round_seen(memory, 1)
    _, old = sealed[SERVER][1]

    def replay(name, letters):
        return letters | {"silo1": old[name]} if name != "silo1" else letters

    refused(server_says(memory, 2, replay, 2), "Unmasking: .*shares from silo1 are not for it")


def test_a_signature_of_an_earlier_round(memory):
    old = round_seen(memory, 1)[0][3][SERVER][1]
    refused(server_says(memory, 4, lambda _, s: s | {"silo1": old}, 2), "Unmasking: .*silo1 signed another set")


def test_too_few_candidates(memory):
    def cut(_, roster):
        return {name: roster[name] for name in ("silo0", "silo1")}

    refused(server_says(memory, 1, cut), "ShareKeys: silo0 refuses: 2 candidates")


def test_shares_of_too_few(memory):
    refused(server_says(memory, 2, lambda name, letters: dict([*letters.items()][:1])), "shares of 2 silos")


def test_shares_from_outside_the_candidates(memory):
    refused(server_says(memory, 2, lambda name, letters: letters | {"silo9": b""}), "from outside the candidates")


def test_shares_for_some_candidates_only(memory):
    cut = silo_says(memory, "silo2", 1, lambda said: (said[0], dict([*said[1].items()][:2])))
    refused(cut, "for some candidates only")


def test_ciphertexts_given_to_the_wrong_sender(memory):
    def swap(name, letters):
        return letters | {"silo3": letters["silo4"], "silo4": letters["silo3"]} if name == "silo0" else letters

    refused(server_says(memory, 2, swap), "Unmasking: silo0 refuses: the shares from silo3 are not for it")


def test_a_ciphertext_with_swapped_names_inside(memory, monkeypatch):
    def seal_swapped(private, public, session, sender, receiver, shares):
        key = secagg_messages._channel(private, public, session, sender, receiver)
        return AESGCM(key).encrypt(NONCE, digest(receiver, sender) + shares, None)

    monkeypatch.setattr("fedpriv.aggregation.secagg_silo.seal", seal_swapped)
    refused(parties(AGGREGATION, memory, VECTORS), r"Unmasking: .* are not for it")
    (a, A), (b, B) = new_key(), new_key()
    with pytest.raises(ValueError, match="names others"):
        unseal(b, A, b"s", "silo0", "silo1", seal_swapped(a, B, b"s", "silo0", "silo1", b"shares"))
    assert unseal(b, A, b"s", "silo0", "silo1", seal(a, B, b"s", "silo0", "silo1", b"shares")) == b"shares"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda chosen: chosen[:2], "a set of 2 silos instead of 3"),
        (lambda chosen: [*chosen, chosen[0]], "a set of 3 silos instead of 3"),
        (lambda chosen: names(4), "a set of 4 silos instead of 3"),
        (lambda chosen: [*chosen[:2], "silo9"], "silos that have not shared"),
    ],
)
def test_a_wrong_set(memory, change, why):
    refused(server_says(memory, 3, lambda _, sets: (sets[0], change(sets[1]))), f"ConsistencyCheck: .*{why}")


def test_a_set_with_a_silo_that_shared_no_secrets(memory):
    cast = server_says(memory, 3, lambda _, sets: ([*sets[0], "silo4"], ["silo0", "silo1", "silo4"]))
    cast["silo4"] = dropping(cast["silo4"], 1)
    refused(cast, "ConsistencyCheck: silo0 refuses: the set holds silos that have not shared")


def test_two_sets_cannot_both_be_unmasked(memory):
    def two(name, sets):
        return sets[0], ["silo0", "silo1", "silo2"] if name == "silo0" else ["silo1", "silo2", "silo3"]

    refused(server_says(memory, 3, two), "Unmasking: silo0 refuses: silo1 signed another set")


def test_too_few_signatures_passed_on(memory):
    refused(server_says(memory, 4, lambda _, signatures: dict([*signatures.items()][:2])), "2 signatures")


def test_a_signature_of_a_silo_that_has_not_delivered(memory):
    def add(_, signatures):
        return signatures | {"silo4": bytes(64)}

    cast = server_says(memory, 4, add)
    cast["silo4"] = dropping(cast["silo4"], 2)
    refused(cast, "signatures of silos that have not delivered")


def test_a_forged_signature(memory):
    refused(silo_says(memory, "silo2", 3, lambda _: bytes(64)), "silo2 signed another set")


def test_vectors_of_different_lengths(memory):
    cast = parties(SecAgg(threshold=3), memory, [[1.0, 2.0]] * 4 + [[1.0]])
    refused(cast, "Unmasking: vectors of different lengths")


def test_a_wrong_share_of_a_mask_key(memory):
    def change(revealed):
        return revealed | {"silo4": revealed["silo4"] ^ np.uint32(1)}

    cast = silo_says(memory, "silo0", 4, change)
    cast["silo4"] = dropping(cast["silo4"], 2)
    refused(cast, "Unmasking: the shares do not (give silo4's mask key|come from one secret)")


def test_a_wrong_share_of_an_own_mask(memory):
    # Shifted by what makes the secret larger by one, so that nothing but the commitment tells.
    weight = int(Reconstruction.at([1, 2, 3]).weights[0])

    def change(revealed):
        shifted = revealed["silo1"].copy()
        shifted[0] = (int(shifted[0]) + pow(weight, -1, PRIME)) % PRIME
        return revealed | {"silo1": shifted}

    cast = silo_says(memory, "silo0", 4, change, SecAgg(threshold=3))
    refused(cast, "Unmasking: the shares do not give silo1's own mask")


def test_shares_of_another_seed_than_the_one_committed_to(memory):
    cast = silo_says(memory, "silo2", 1, lambda said: (digest("another seed"), said[1]), SecAgg(threshold=3))
    refused(cast, "Unmasking: the shares do not give silo2's own mask")


def test_a_commitment_of_another_silo_or_an_earlier_round(memory):
    first, _ = round_seen(memory, 1)
    (old, _) = first[1][SERVER][1]
    replayed = silo_says(memory, "silo1", 1, lambda said: (old, said[1]), SecAgg(threshold=3), 2)
    refused(replayed, "the shares do not give silo1's own mask")
    seed = os.urandom(32)
    stated = [(b"one", "silo1", seed), (b"two", "silo1", seed), (b"one", "silo2", seed), (b"one", "silo1", bytes(32))]
    assert len({seed_commitment(*statement) for statement in stated}) == 4


def test_a_missing_share(memory):
    refused(silo_says(memory, "silo0", 4, lambda _: {}), "Unmasking: shares are missing")
