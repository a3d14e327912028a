"""What reading a message may take: never more than `GROWTH` times its bytes and `ALLOWANCE`,
whatever it holds."""

import gc
import random
import struct
import tracemalloc
from dataclasses import dataclass

import numpy as np
import pytest
from honest_messages import contents, frames

from fedpriv.parties.messages import (
    ALLOWANCE,
    GROWTH,
    MessageError,
    _Reader,
    decode,
    encode,
    register,
)

MARGIN = 2**14
"""Bytes of the test's own, and of an exception with its traceback."""


def count(number):
    return struct.pack("<I", number)


BOMBS = {
    "empty arrays": (b"a\x0b\x01" + count(0), 3 * 10**4),
    "arrays of many dimensions": (b"a\x0b\x20" + count(0) * 32, 10**4),
    "scalars": (b"g\x01\x00\x01", 3 * 10**4),
    "nothing": (b"N", 10**6),
    "empty lists": (b"l" + count(0), 3 * 10**4),
    "empty tuples in tuples": (b"t" + count(1) + b"t" + count(0), 3 * 10**4),
    "empty dictionaries": (b"d" + count(0), 3 * 10**4),
    "dictionaries of one": (b"d" + count(1) + encode(1) + b"N", 3 * 10**4),
    "empty broadcasts": (
        b"o" + count(9) + b"Broadcast" + b"t" + count(2) + b"d" + count(0) + b"N",
        3 * 10**4,
    ),
    "short numbers": (encode(1000), 6 * 10**4),
    "short texts": (encode("é"), 6 * 10**4),
}


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


def bound(data):
    return GROWTH * len(data) + ALLOWANCE + MARGIN


@pytest.mark.parametrize("wrapped", ["l", "t"])
@pytest.mark.parametrize("bomb", BOMBS)
def test_bombs_are_refused_before_they_go_off(bomb, wrapped):
    part, times = BOMBS[bomb]
    data = wrapped.encode() + count(times) + part * times
    peak, message = peak_of(data)
    assert message is None
    assert peak <= bound(data)


def test_large_numbers_of_keys_are_no_bomb_but_their_table_counts():
    data = encode(dict.fromkeys(range(174763)))  # just beyond a power of two
    peak, message = peak_of(data)
    assert message is None
    assert peak <= bound(data)


@pytest.mark.parametrize(
    "text",
    ["a" * 10**6 + "\U0001f600", "\U0001f600" + "a" * 10**6, "é" * 10**6, "a" * 10**7],
    ids=["wide at the end", "wide at the start", "two bytes each", "plain"],
)
def test_texts_stay_within_the_bound(text):
    data = encode(text)
    peak, message = peak_of(data)
    assert message in (None, text)
    assert peak <= bound(data)


@pytest.mark.parametrize("bits", [1, 8 * 10**6])
def test_integers_stay_within_the_bound(bits):
    number = 1 << bits
    data = encode(number)
    peak, message = peak_of(data)
    assert message == number
    assert peak <= bound(data)


def least_room(data):
    """The least memory that must be left for a message to be read."""

    def suffices(room):
        reader = _Reader(data)
        reader.room = room
        try:
            reader.message(0)
        except MessageError:
            return False
        return True

    low, high = 0, bound(data)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high


@register
@dataclass(frozen=True)
class Cell:
    inner: object


FEW = 2**12
MEASURED = {
    "floats": ([float(number) for number in range(10**4)], 1.1),
    "bytes": (b"x" * 10**5, 1.1),
    "many bytes": ([bytes([number % 256]) * 100 for number in range(10**4)], 1.1),
    "an integer": (1 << 10**6, 1.6),
    "a text": ("a" * 10**5, 1.1),
    "a wide text": ("a" * 10**5 + "\U0001f600", 1.4),
    "many texts": ([f"{number:09}" for number in range(10**4)], 1.2),  # 3.12 has smaller ones
    "a list": ([None] * 10**4, 1.1),
    "a tuple": ((None,) * 10**4, 1.1),
    "lists": ([[] for _ in range(2000)], 1.5),
    "dictionaries": ([{1: None} for _ in range(2000)], 1.5),
    "an array": (np.zeros(10**4), 1.1),
    "arrays": ([np.zeros(100) for _ in range(10**4)], 1.1),
    "arrays of dimensions": ([np.zeros((1,) * 32) for _ in range(1000)], 2.5),
    "dataclasses": ([Cell(None) for _ in range(1000)], 2.7),
}


@pytest.mark.parametrize("kind", MEASURED)
def test_what_is_booked_is_what_is_taken(kind):
    """tracemalloc sees a few objects besides the message."""
    message, most = MEASURED[kind]
    data = encode(message)
    peak, _ = peak_of(data)
    assert peak - FEW <= least_room(data) <= most * peak + FEW


@pytest.mark.parametrize("kind", contents(2, 2))
def test_what_ten_thousand_honest_silos_say_is_read(kind):
    data = frames(10_000, 300_000)[kind]
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


def test_floats_need_no_more_than_they_should():
    data = encode([float(number) for number in range(10**5)])
    peak, message = peak_of(data)
    assert len(message) == 10**5
    assert peak <= GROWTH * len(data)
    array = encode(np.zeros(10**6))
    assert peak_of(array)[0] <= 1.1 * len(array)
