"""Ranges of seeds on a command line: `seed=0..4` is `seed=0,1,2,3,4`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from fedpriv.errors import require

RANGE = re.compile(r"(\d+)\.\.(\d+)")
MOST = 10_000
"""A longer range is a mistake."""
ALLOWED = f"seeds such as 0,1,2 or 0..4 (first to last, at most {MOST:,})"


def with_listed_seeds(words: Iterable[str]) -> list[str]:
    """The words of a command line, with every range of `seed` as a list. Raises ConfigError for a
    range that is empty or too long."""
    return [_listed(word) for word in words]


def _listed(word: str) -> str:
    key, equals, value = word.partition("=")
    if key != "seed" or (".." not in value and not re.fullmatch(r"\d+-\d+", value)):
        return word
    return f"{key}{equals}{','.join(map(str, seeds('seed', value)))}"


def seeds(name: str, text: str) -> list[int]:
    """Seeds from text such as "0..4" or "0,2,5..7".

    name: of the setting, for errors.

    Raises ConfigError for other text, and for a seed that is named twice.
    """
    found: list[int] = []
    for part in text.split(","):
        bounds = RANGE.fullmatch(part.strip())
        number = part.strip()
        require(bounds is not None or number.isdecimal(), name, text, ALLOWED)
        first, last = map(int, bounds.groups() if bounds else (number, number))
        require(0 <= last - first < MOST, name, text, ALLOWED)
        found += range(first, last + 1)
    require(len(set(found)) == len(found), name, text, "each seed once")
    return found
