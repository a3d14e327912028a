"""One party's mail of a step as bytes: messages side by side.

Each message is read by itself, under the limits of `parties.messages`. The number of messages is
bounded by the number of parties, so that a server may hear thousands of silos in one step.

Layout: `MARK`, and for every message 8 bytes of length and the encoding of its name and content.
"""

from __future__ import annotations

import math

from fedpriv.parties.messages import MessageError, decode, encode
from fedpriv.parties.party import Mail

MARK = b"m"
"""No encoding of a message begins with it."""
LENGTH = 8


def bundled(mail: Mail) -> bytes:
    """Messages by receiver or sender. Raises MessageError when one has no encoding."""
    letters = map(encode, mail.items())
    return MARK + b"".join(len(each).to_bytes(LENGTH, "little") + each for each in letters)


def unbundled(data: bytes, most: float = math.inf) -> Mail:
    """The messages of a bundle, by receiver or sender.

    most: how many there may be.

    Raises MessageError for bytes that are no bundle.
    """
    if not data.startswith(MARK):
        raise MessageError("no bundle of messages")
    mail: Mail = {}
    at = len(MARK)
    while at < len(data):
        start = at + LENGTH
        at = start + int.from_bytes(data[at:start], "little")
        if at > len(data):
            raise MessageError("the bundle ends too early")
        letter = decode(data[start:at])
        if type(letter) is not tuple or len(letter) != 2:
            raise MessageError("not a name and a message")
        name, message = letter
        if type(name) is not str or name in mail:
            raise MessageError("not a message for each of different names")
        mail[name] = message
        if len(mail) > most:
            raise MessageError(f"messages for more than {most} names")
    return mail
