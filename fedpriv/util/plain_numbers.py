"""Numbers as people write them: Python alone also reads 1_0 as 10, and digits of other scripts."""

from __future__ import annotations

from typing import Any


def plain(text: str) -> str:
    """The text of a number. Raises ValueError for a spelling that only Python knows.

    >>> plain("1e3"), plain("-2")
    ('1e3', '-2')
    """
    if not text.isascii() or "_" in text:
        raise ValueError(f"{text!r:.60} is no number")
    return text


def plain_number(value: Any) -> float:
    """A number, or the one that a text writes. Raises as float does for anything else, and
    ValueError for a spelling that only Python knows."""
    return float(plain(value) if isinstance(value, str) else value)
