"""Changes of messages that need no knowledge of a protocol, for `faults.alter`.

Bytes that no longer decode to a message arrive as bytes, which no honest party sends.

>>> import random
>>> retype(random.Random(0))("seven")
b'seven'
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from fedpriv.parties.messages import MessageError, decode, encode
from fedpriv.parties.post import Stamped

Change = Callable[[Any], Any]
TRIED_BITS = 512
"""Bits that `same_type` tries."""


def flip_bit(rng: random.Random) -> Change:
    """Flip one bit of the encoding."""

    def change(message: Any) -> Any:
        data = encode(message)
        return _flipped(data, rng.randrange(8 * len(data)))

    return change


def same_type(rng: random.Random) -> Change:
    """Flip one bit so that the message keeps its type and no decoder can detect the change.

    Some messages, such as an empty list, have no such bit among `TRIED_BITS`. Any bit is then
    flipped.
    """

    def change(message: Any) -> Any:
        data = encode(message)
        bits = range(8 * len(data))
        changed = (_flipped(data, bit) for bit in rng.sample(bits, min(TRIED_BITS, len(bits))))
        return next((one for one in changed if type(one) is type(message)), flip_bit(rng)(message))

    return change


def _flipped(data: bytes, bit: int) -> Any:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return _read(bytes(changed))


def truncate(rng: random.Random) -> Change:
    """Cut the encoding short."""

    def change(message: Any) -> Any:
        data = encode(message)
        return _read(data[: rng.randrange(len(data))])

    return change


def retype(rng: random.Random) -> Change:
    """Give one part of a stamped message's content another type, with the same value if
    possible."""

    def change(message: Any) -> Any:
        if type(message) is Stamped:
            return replace(message, content=change(message.content))
        if type(message) in (list, tuple) and message and rng.random() < 0.7:
            chosen = rng.randrange(len(message))
            parts = [change(part) if at == chosen else part for at, part in enumerate(message)]
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
