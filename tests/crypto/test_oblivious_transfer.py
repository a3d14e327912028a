import secrets

import pytest
from gmpy2 import is_prime, jacobi
from scipy.stats import kstest

from fedpriv.crypto.oblivious_transfer import GENERATOR, Receiver, Sender, order, prime
from fedpriv.crypto.sealing import TAG_BYTES, SealBrokenError
from fedpriv.crypto.uniform_integers import from_bytes, to_bytes

SESSION = b"silo0 in round 1"


def transfer(messages, choices):
    sender = Sender(SESSION)
    receiver = Receiver(SESSION, sender.element, choices)
    return sender, receiver, sender.seal(receiver.requests, messages)


def test_the_group_is_the_one_of_rfc_3526():
    p = prime()
    assert p.bit_length() == 3072
    assert is_prime(p)
    assert is_prime(order())
    assert p % 2**64 == 2**64 - 1
    assert (
        p >> (3072 - 128) == 0xFFFFFFFFFFFFFFFFC90FDAA22168C234
    )  # all ones, then the digits of pi
    assert pow(GENERATOR, order(), p) == 1


def test_the_receiver_gets_what_it_chose_and_can_open_nothing_else():
    messages = [[secrets.token_bytes(40) for _ in range(3)] for _ in range(6)]
    choices = [0, 1, 2, 2, 1, 0]
    _, receiver, sealed = transfer(messages, choices)
    assert receiver.unseal(sealed, 40) == [row[c] for row, c in zip(messages, choices)]
    for shift in (1, 2):
        for k, choice in enumerate(choices):
            receiver.choices = [*choices[:k], (choice + shift) % 3, *choices[k + 1 :]]
            with pytest.raises(SealBrokenError):
                receiver.unseal(sealed, 40)


def test_the_sender_sees_uniform_elements_of_the_group_whatever_is_chosen():
    p = prime()
    for choice in (0, 7):
        sender = Sender(SESSION)
        receiver = Receiver(SESSION, sender.element, [choice] * 50)
        elements = from_bytes(receiver.requests, p, 50)
        assert all(jacobi(element, p) == 1 for element in elements)
        assert len(set(elements)) == 50
        assert kstest([element / p for element in elements], "uniform").pvalue > 1e-6


def test_a_transfer_of_another_session_opens_nothing():
    messages, sender = [[b"a" * 8, b"b" * 8]], Sender(SESSION)
    for session in (b"silo1 in round 1", b"silo0 in round 2", b""):
        receiver = Receiver(session, sender.element, [0])
        with pytest.raises(SealBrokenError):
            receiver.unseal(sender.seal(receiver.requests, messages), 8)


def test_altered_and_foreign_messages_are_refused():
    _, receiver, sealed = transfer([[b"a" * 8, b"b" * 8]], [1])
    with pytest.raises(SealBrokenError):
        receiver.unseal([sealed[0][:-1] + bytes([sealed[0][-1] ^ 1])], 8)
    assert len(sealed[0]) == 2 * (8 + TAG_BYTES)
    no_square = next(k for k in range(2, 100) if jacobi(k, prime()) != 1)
    for bad in (0, no_square):
        with pytest.raises(ValueError, match="group"):
            Receiver(SESSION, to_bytes([bad], prime()), [0])
        with pytest.raises(ValueError, match="group"):
            Sender(SESSION).seal(to_bytes([bad], prime()), [[b"a"]])
        with pytest.raises(ValueError, match="group"):  # one among good ones
            Sender(SESSION).seal(to_bytes([4, bad, 9], prime()), [[b"a"]] * 3)
    with pytest.raises(ValueError, match="bytes for"):
        Sender(SESSION).seal(b"", [[b"a"]])
