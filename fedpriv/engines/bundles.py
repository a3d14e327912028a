"""One party's mail of a step as bytes: messages side by side.

Each message is read by itself, under the limits of `parties.messages`. The number of messages is
bounded by the number of parties, so that a server may hear thousands of silos in one step.

Layout: `MARK`, and for every message twice 8 bytes of length and an encoding: of a name, and of the
message.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from fedpriv.parties.messages import MessageError, decode, encode
from fedpriv.parties.party import Mail

MARK = b"m"
"""No encoding of a message begins with it."""
LENGTH = 8
_NOTHING = object()


def bundled(mail: Mail) -> bytes:
    """Messages by receiver or sender. Raises MessageError when one has no encoding."""
    parts = [encode(part) for letter in mail.items() for part in letter]
    return MARK + b"".join(
        piece for part in parts for piece in (len(part).to_bytes(LENGTH, "little"), part)
    )


def unbundled(data: bytes, most: float = math.inf) -> Mail:
    """The messages of a bundle, by receiver or sender.

    most: how many there may be.

    Raises MessageError for bytes that are no bundle.
    """
    if data[: len(MARK)] != MARK:
        raise MessageError("no bundle of messages")
    mail: Mail = {}
    parts = _parts(memoryview(data)[len(MARK) :])
    for name in parts:
        if type(name) is not str or name in mail:
            raise MessageError("not a message for each of different names")
        mail[name] = next(parts, _NOTHING)
        if mail[name] is _NOTHING:
            raise MessageError("a name without a message")
        if len(mail) > most:
            raise MessageError(f"messages for more than {most} names")
    return mail


def _parts(data: memoryview) -> Iterator[Any]:
    at = 0
    while at < len(data):
        start = at + LENGTH
        at = start + int.from_bytes(data[at:start], "little")
        if at > len(data):
            raise MessageError("the bundle ends too early")
        yield decode(bytes(data[start:at]))
