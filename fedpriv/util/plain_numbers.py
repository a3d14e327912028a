"""Numbers as people write them: Python alone also reads 1_0 as 10, and digits of other scripts."""

from __future__ import annotations


def plain(text: str) -> str:
    """The text of a number. Raises ValueError for a spelling that only Python knows.

    >>> plain("1e3"), plain("-2")
    ('1e3', '-2')
    """
    if not text.isascii() or "_" in text:
        raise ValueError(f"{text!r:.60} is no number")
    return text


def plain_number(text: str) -> float:
    """The number that a text writes. Raises ValueError for none."""
    return float(plain(text))
