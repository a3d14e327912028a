"""Uniform integers of any size: from a source of random bytes, and from seeds that several silos share.

A seed has 256 bits. Each purpose has a key stream of its own (HKDF-SHA256, AES-256 in counter mode), and integers are
drawn from it by rejection, so every one is equally likely.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from cryptography.exceptions import InvalidTag

from fedpriv.aggregation.base import AggregationAborted
from fedpriv.aggregation.masks import digest, key_stream


def integers_below(bound: int, count: int, read: Callable[[int], bytes]) -> list[int]:
    """`count` independent integers, uniform on 0..bound-1. read: makes so many random bytes."""
    bits = (bound - 1).bit_length()
    size = -(-bits // 8)
    drawn: list[int] = []
    while len(drawn) < count:
        number = int.from_bytes(read(size), "little") >> (8 * size - bits)
        if number < bound:
            drawn.append(number)
    return drawn


def shared_integers(bound: int, count: int, seed: bytes, purpose: bytes) -> list[int]:
    """The same `count` integers below `bound` for everybody who has the seed, and unknown to all others."""
    return integers_below(bound, count, _reader(seed, purpose))


def blind(n: int, seed: bytes, user: int) -> int:
    """r_u: uniform among 1..n-1 without a divisor in common with n."""
    read = _reader(seed, digest("private weighting blind", n, user))
    while math.gcd(r := integers_below(n, 1, read)[0], n) != 1:
        pass
    return r


def cancelling_masks(n: int, count: int, name: str, seeds: dict[str, bytes], purpose: bytes) -> list[int]:
    """What silo `name` adds, modulo n, to `count` numbers: uniform for who lacks one of its pairs' seeds, and zero in
    the sum over all silos. seeds: by peer. The same purpose must never mask two different lists."""
    sums = [0] * count
    for peer, seed in seeds.items():
        masks = shared_integers(n, count, seed, purpose)
        sums = [s + m if peer > name else s - m for s, m in zip(sums, masks)]
    return sums


def to_bytes(numbers: Iterable[int], bound: int) -> bytes:
    """Numbers below `bound` side by side, equally long, least significant byte first."""
    return b"".join(number.to_bytes(width(bound), "little") for number in numbers)


def from_bytes(raw: bytes, bound: int, count: int) -> list[int]:
    """The `count` numbers in `raw`. Raises ValueError for a wrong length and for a number that is not below `bound`."""
    size = width(bound)
    if len(raw) != count * size:
        raise ValueError(f"{len(raw)} bytes for {count} numbers of {size}")
    numbers = [int.from_bytes(raw[k : k + size], "little") for k in range(0, len(raw), size)]
    if any(number >= bound for number in numbers):
        raise ValueError("a number out of range")
    return numbers


@contextmanager
def reading(sender: str) -> Iterator[None]:
    """Turn what is wrong with a message, its length, a number in it or its seal, into the exchange's end."""
    try:
        yield
    except (ValueError, InvalidTag) as error:
        raise AggregationAborted(f"a message of {sender} is unreadable: {error or type(error).__name__}") from error


def width(bound: int) -> int:
    """Bytes of a number below `bound` in a message."""
    return -(-bound.bit_length() // 8)


def _reader(seed: bytes, purpose: bytes) -> Callable[[int], bytes]:
    stream = key_stream(seed, purpose)
    return lambda size: stream.update(bytes(size))
