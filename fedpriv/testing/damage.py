"""Changes of messages that need no knowledge of a protocol.

`faults.alter(partial(flip_bit, rng))` applies one to chosen letters. Bytes that no longer decode to
a message arrive as bytes, which no honest party sends.

>>> retype(random.Random(0), "seven")
b'seven'
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from fedpriv.parties.messages import MessageError, decode, encode
from fedpriv.parties.post import Message

TRIED_BITS = 512
"""Bits that `same_type` tries."""


def flip_bit(rng: random.Random, message: Any) -> Any:
    """Flip one bit of the encoding."""
    data = encode(message)
    return _flipped(data, rng.randrange(8 * len(data)))


def same_type(rng: random.Random, message: Any) -> Any:
    """Flip one bit so that the message keeps its type and no decoder can detect the change.

    Some messages, such as an empty list, have no such bit among `TRIED_BITS`. Any bit is then
    flipped.
    """
    data = encode(message)
    bits = range(8 * len(data))
    changed = (_flipped(data, bit) for bit in rng.sample(bits, min(TRIED_BITS, len(bits))))
    return next((one for one in changed if type(one) is type(message)), flip_bit(rng, message))


def _flipped(data: bytes, bit: int) -> Any:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return _read(bytes(changed))


def truncate(rng: random.Random, message: Any) -> Any:
    """Cut the encoding short."""
    data = encode(message)
    return _read(data[: rng.randrange(len(data))])


def retype(rng: random.Random, message: Any) -> Any:
    """Give one part of a stamped message's content another type, with the same value if
    possible."""
    if type(message) is Message:
        return replace(message, content=retype(rng, message.content))
    if type(message) in (list, tuple) and message and rng.random() < 0.7:
        chosen = rng.randrange(len(message))
        parts = [retype(rng, part) if at == chosen else part for at, part in enumerate(message)]
        return type(message)(parts)
    if type(message) is dict and message and rng.random() < 0.7:
        chosen = rng.choice(list(message))
        return {key: retype(rng, part) if key == chosen else part for key, part in message.items()}
    convert = CONVERSIONS.get(type(message))
    return [message] if convert is None else convert(message)


CONVERSIONS: dict[type, Callable[[Any], Any]] = {
    list: tuple,
    tuple: list,
    dict: lambda value: list(value.values()),
    bytes: bytes.hex,
    str: str.encode,
    np.ndarray: lambda value: value.astype(np.int64 if value.dtype == np.float64 else np.float64),
}
"""By type: the value as another type. Any other value is put into a list."""


def _read(data: bytes) -> Any:
    try:
        return decode(data)
    except MessageError:
        return data
