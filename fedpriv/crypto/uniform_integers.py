"""Uniform integers of any size: from a source of random bytes, or from a seed that parties share.

A seed has 256 bits. Each purpose has its own key stream. Integers are drawn from it by rejection,
so each is equally likely.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fedpriv.crypto.prg import key_stream


def integers_below(bound: int, count: int, read: Callable[[int], bytes]) -> list[int]:
    """`count` independent integers, uniform on 0..bound-1.

    read: returns the given number of random bytes.
    """
    bits = (bound - 1).bit_length()
    size = -(-bits // 8)
    drawn: list[int] = []
    while len(drawn) < count:
        number = int.from_bytes(read(size), "little") >> (8 * size - bits)
        if number < bound:
            drawn.append(number)
    return drawn


def shared_integers(bound: int, count: int, *, seed: bytes, purpose: bytes) -> list[int]:
    """`count` integers below `bound`, equal for all parties with the seed and unknown to others."""
    return integers_below(bound, count, shared_bytes(seed, purpose))


def shared_bytes(seed: bytes, purpose: bytes) -> Callable[[int], bytes]:
    """A function that returns the next bytes of the key stream of seed and purpose."""
    stream = key_stream(seed, purpose)
    return lambda size: stream.update(bytes(size))


def to_bytes(numbers: Iterable[int], bound: int) -> bytes:
    """Numbers below `bound` side by side, `width(bound)` bytes each, least significant byte
    first.
    """
    return b"".join(number.to_bytes(width(bound), "little") for number in numbers)


def from_bytes(raw: bytes, bound: int, count: int) -> list[int]:
    """The `count` numbers in `raw`. Raises ValueError for a wrong length and for a number that is
    not below `bound`."""
    size = width(bound)
    if len(raw) != count * size:
        raise ValueError(f"{len(raw)} bytes for {count} numbers of {size}")
    numbers = [int.from_bytes(raw[k : k + size], "little") for k in range(0, len(raw), size)]
    if any(number >= bound for number in numbers):
        raise ValueError(f"a number of the message is not below {bound}")
    return numbers


def width(bound: int) -> int:
    """Bytes of a number below `bound` in a message."""
    return -(-bound.bit_length() // 8)
