"""Changes of messages that need no knowledge of a protocol, for `faults.alter`.

What no longer reads as a message arrives as the bytes that it has become, which no honest party
sends either.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from fedpriv.parties.messages import MessageError, decode, encode
from fedpriv.parties.post import Message

Change = Callable[[Any], Any]
TRIED = 512


def flip_bit(rng: random.Random) -> Change:
    """One bit of the encoding is another."""

    def change(message: Any) -> Any:
        data = encode(message)
        return _flipped(data, rng.randrange(8 * len(data)))

    return change


def another(rng: random.Random) -> Change:
    """One bit of the encoding is another, such that it is still a message of the same type, which
    no decoder can tell from any other; where `TRIED` bits have none, as those of an empty list, any
    bit."""

    def change(message: Any) -> Any:
        data = encode(message)
        bits = range(8 * len(data))
        changed = (_flipped(data, bit) for bit in rng.sample(bits, min(TRIED, len(bits))))
        return next((one for one in changed if type(one) is type(message)), flip_bit(rng)(message))

    return change


def _flipped(data: bytes, bit: int) -> Any:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return _read(bytes(changed))


def truncate(rng: random.Random) -> Change:
    """The encoding ends too early."""

    def change(message: Any) -> Any:
        data = encode(message)
        return _read(data[: rng.randrange(len(data))])

    return change


def retype(rng: random.Random) -> Change:
    """One part of what is inside the stamp has another type, and as far as that goes the same
    value."""

    def change(message: Any) -> Any:
        if type(message) is Message:
            return replace(message, content=change(message.content))
        if type(message) in (list, tuple) and message and rng.random() < 0.7:
            place = rng.randrange(len(message))
            parts = [change(part) if at == place else part for at, part in enumerate(message)]
            return type(message)(parts)
        if type(message) is dict and message and rng.random() < 0.7:
            chosen = rng.choice(list(message))
            return {key: change(part) if key == chosen else part for key, part in message.items()}
        return _other_type(message)

    return change


def _other_type(value: Any) -> Any:
    if type(value) is np.ndarray:
        return value.astype(np.int64 if value.dtype == np.float64 else np.float64)
    if type(value) in (list, tuple):
        return tuple(value) if type(value) is list else list(value)
    if type(value) is dict:
        return list(value.values())
    if type(value) is bytes:
        return value.hex()
    if type(value) is str:
        return value.encode()
    return [value]


def _read(data: bytes) -> Any:
    try:
        return decode(data)
    except MessageError:
        return data
