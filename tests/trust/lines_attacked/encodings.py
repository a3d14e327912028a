"""Lines of signatures, messages and names; of the modulus, missing noise and the shuffler."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedpriv.crypto.roster import Roster, new_identities
from fedpriv.crypto.signatures import SigningKey
from fedpriv.errors import AggregationAbortedError, FedprivError
from fedpriv.parties.messages import MessageError, decode, encode
from lines_attacked.rows import CHANCE, attack, refused


@attack(
    "README",
    "network: change a message and make its checksum anew",
    "signatures with S + L in place of S, cut, padded, of another type",
)
def malleable():
    order = 2**252 + 27742317777372353535851937790883648493
    one = new_identities(["silo0", "server"])["silo0"].signer(b"a", b"b")
    for number in range(50):
        said = ("text", number)
        good = one.sign(said)
        other = good[:32] + (int.from_bytes(good[32:], "little") + order).to_bytes(32, "little")
        for wrong in (other, good[:-1], good + b"\0", good.hex(), None, bytes(64)):
            assert not one.verifies("silo0", wrong, said)
        assert one.verifies("silo0", good, said)
    return "300 of 300 refused"


@attack(
    "README",
    "any party: send what no honest party sends",
    "two encodings of one message: 20,000 changed frames that can be read",
)
def one_encoding():
    raw = encode({"a": [1, (2.5, "b", None)], "c": np.arange(3.0), 5: 2**70, "d": np.int8(3)})
    read = 0
    for _ in range(20_000):
        frame = bytearray(raw)
        frame[CHANCE.randrange(len(frame))] = CHANCE.randrange(256)
        try:
            found = decode(bytes(frame))
        except MessageError:
            continue
        read += 1
        assert encode(found) == bytes(frame)
    return f"{read} read, each the only encoding of its message"


@attack(
    "README",
    "owner of a key: a roster names every party",
    "names that look alike, with a blank, in capitals",
)
def alike():
    from fedpriv.crypto.roster import RosterEntry

    keys = [SigningKey.generate().verification_key for _ in range(2)]
    for name in ("s\u0456lo0", "silo0 ", "SILO0", "silo00", "silo\u06600"):
        roster = Roster((RosterEntry(name, 1, keys[0]), RosterEntry("server", 1, keys[1])))
        assert "silo0" not in roster.keys
        assert refused(lambda roster=roster: roster.key("silo0"), FedprivError, KeyError)
    return "5 of 5 are somebody else"


@attack(
    "private_weighting",
    "server, cheating: choose a modulus",
    "proofs of another context or key, with one bit changed, of nothing",
)
def moduli():
    from fedpriv.crypto.paillier.keys import generate_key
    from fedpriv.crypto.paillier.modulus_proof import check_modulus, prove_modulus

    one, other = generate_key(512), generate_key(512)
    proof = prove_modulus(one, b"here")
    check_modulus(one.public, proof, b"here", prime_to=1)
    bent = bytearray(proof)
    bent[CHANCE.randrange(len(bent))] ^= 1
    wrong = [
        (one, proof, b"there"),
        (other, proof, b"here"),
        (one, bytes(bent), b"here"),
        (one, bytes(len(proof)), b"here"),
        (one, b"", b"here"),
    ]
    for key, said, context in wrong:
        assert refused(
            lambda k=key, s=said, c=context: check_modulus(k.public, s, c, prime_to=1), Exception
        )
    return "5 of 5 refused"


@attack(
    "secagg_exact_noise",
    "silo, cheating: add no noise at all",
    "the page read against README, whose line on missing noise named no such silo",
)
def silent_silo():
    text = (Path(__file__).parents[3] / "docs/trust/README.md").read_text()
    assert "A silo that adds no noise to what it sends is not found" in text
    return "**fell** in README: its line covered missing messages alone. It says so now"


@attack(
    "shuffle",
    "silo, cheating: send counts beyond what its records and noise can give",
    "-2^63, the largest number, one count of many, other dtypes and shapes",
)
def counts():
    from aggregation.test_shuffle import MESSAGE as SAID
    from aggregation.test_shuffle import SHUFFLER, cheating

    def one(sent):
        wrong = sent.copy()
        wrong.flat[-1] = -1
        return wrong

    lies = [
        lambda sent: np.full_like(sent, -(2**63)),
        lambda sent: np.full_like(sent, 2**63 - 1),
        one,
        lambda sent: sent.astype(np.float64),
        lambda sent: sent[:-1],
    ]
    for lie in lies:
        change = lambda sent, lie=lie: {SHUFFLER: lie(sent[SHUFFLER])}  # noqa: E731
        assert refused(lambda c=change: cheating("silo2", SAID, c), AggregationAbortedError)
    return "5 of 5 end the query with the silo's name"


@attack("shuffle", "shuffler, cheating: pass on another sum", "a sum with one count changed by one")
def shuffled():
    from aggregation.test_shuffle import SHUFFLED, SHUFFLER, cheating

    def one_more(sent):
        wrong = sent["server"].copy()
        wrong.flat[0] += 1
        return {"server": wrong}

    honest = cheating(SHUFFLER, SHUFFLED, lambda sent: sent).vector
    moved = cheating(SHUFFLER, SHUFFLED, one_more).vector - honest
    assert np.count_nonzero(moved) == 1
    return "moves one coordinate, unseen, as the line says"
