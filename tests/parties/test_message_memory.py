"""What reading a message may take: never more than `GROWTH` times its bytes and `ALLOWANCE`,
whatever it holds."""

import gc
import random
import struct
import tracemalloc

import numpy as np
import pytest
from honest_messages import contents, frames

from fedpriv.parties import messages
from fedpriv.parties.messages import (
    ALLOWANCE,
    GROWTH,
    VALUES,
    MessageError,
    decode,
    encode,
)

MARGIN = 2**14
"""Bytes of the test's own, and of an exception with its traceback."""


def count(number):
    return struct.pack("<I", number)


BOMBS = {
    "nothing": b"N",
    "empty arrays": b"a\x0b\x01" + count(0),
    "scalars": b"g\x01\x00\x01",
    "short numbers": encode(1000),
    "short texts": encode("é"),
    "empty lists": b"l" + count(0),
    "empty dictionaries": b"d" + count(0),
}


@pytest.fixture(scope="module", autouse=True)
def _little_to_collect():
    """What other tests have left does not count, and takes `peak_of` no time."""
    gc.collect()
    gc.freeze()


def peak_of(data):
    """Bytes that reading takes, and the message, or None if it is refused."""
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        try:
            message = decode(data)
        except MessageError:
            message = None
        return tracemalloc.get_traced_memory()[1] - before, message
    finally:
        tracemalloc.stop()


def bound(data, allowance=ALLOWANCE):
    return GROWTH * len(data) + allowance + MARGIN


@pytest.mark.parametrize("wrapped", ["l", "t"])
@pytest.mark.parametrize("bomb", BOMBS)
def test_bombs_are_refused_before_they_go_off(bomb, wrapped, monkeypatch):
    monkeypatch.setattr(messages, "VALUES", 2**8)
    data = wrapped.encode() + count(10**4) + BOMBS[bomb] * 10**4
    peak, message = peak_of(data)
    assert message is None
    assert peak <= bound(data, ALLOWANCE * 2**8 // VALUES)


@pytest.mark.parametrize(
    "message",
    [
        dict.fromkeys(range(43691)),
        [float(number) for number in range(10**4)],
        "a" * 10**5 + "\U0001f600",
        "\U0001f600" + "a" * 10**5,
        "é" * 10**5,
        1,
        1 << 8 * 10**5,
        np.zeros(10**5),
    ],
    ids=["keys", "floats", "wide at the end", "wide", "two bytes each", "small", "large", "array"],
)
def test_what_is_read_stays_within_the_bound(message):
    data = encode(message)
    peak, read = peak_of(data)
    same = encode(read) == data
    assert same
    assert peak <= bound(data)


@pytest.fixture(scope="module")
def large():
    return frames(10_000, 300_000)


@pytest.mark.parametrize("kind", contents(2, 2))
def test_what_ten_thousand_honest_silos_say_is_read(kind, large):
    data = large[kind]
    peak, message = peak_of(data)
    assert message is not None
    assert peak <= bound(data)
    assert encode(message) == data


def mutated(rng, pool):
    """A frame with flipped bits, an end too early, a part of another frame, or another length
    somewhere."""
    data = bytearray(rng.choice(pool))
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data)) if rng.random() < 0.5 else rng.randrange(min(len(data), 80))
        change = rng.randrange(5)
        if change == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif change == 1:
            del data[max(at, 1) :]
        elif change == 2:
            other = rng.choice(pool)
            start = rng.randrange(len(other))
            data[at : at + rng.randrange(200)] = other[start : start + rng.randrange(1, 400)]
        elif change == 3:
            data[at : at + 4] = count(
                rng.choice([0, 1, 2, 255, len(data), 2**16, 2**24, 2**30, 2**32 - 1])
            )
        else:
            data[at : at + 1] = rng.choice([b"l", b"t", b"d", b"a", b"N", b"o", b"s", b"i", b"g"])
    return bytes(data)


def fuzz(times, seed, *, silos, size, measured):
    """How many mutated frames were still messages. measured: every how many-th one's memory is
    traced."""
    rng, pool = random.Random(seed), [*frames(silos, size).values()]
    read = 0
    for turn in range(times):
        data = mutated(rng, pool)
        if turn % measured:
            try:
                message = decode(data)
            except MessageError:
                continue
        else:
            peak, message = peak_of(data)
            assert peak <= bound(data)
        if message is not None:
            read += 1
            assert encode(message) == data
    return read


def test_mutated_frames_are_messages_or_one_error():
    assert fuzz(250, 1, silos=12, size=50, measured=12) > 9


@pytest.mark.slow
def test_a_hundred_thousand_mutated_frames_are_messages_or_one_error():
    assert fuzz(80_000, 2, silos=12, size=50, measured=4) > 1000
    assert fuzz(20_000, 3, silos=400, size=8000, measured=4) > 100
