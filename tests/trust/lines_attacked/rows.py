"""The rows: the decorator `attack` adds one for each attack."""

from __future__ import annotations

import random
from dataclasses import dataclass

CHANCE = random.Random()
ATTACKS = []


@dataclass(frozen=True)
class Row:
    page: str
    line: str
    how: str
    work: object


def attack(page, line, how):
    """Decorator: the work returns what was seen, and raises AssertionError where the line fell."""

    def added(work):
        ATTACKS.append(Row(page, line, how, work))
        return work

    return added


def refused(work, *errors):
    """Whether the work ends with one of the errors, in one line."""
    try:
        work()
    except errors as error:
        return "\n" not in str(error)
    return False
