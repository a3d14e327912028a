"""Exceptions of parties in other processes."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from fedpriv.errors import FedprivError
from fedpriv.parties.messages import register


@register
@dataclass(frozen=True)
class PartyFailure:
    """An exception as text.

    ancestry: names of its class and of the class's bases, nearest first.
    text: its message.
    trace: its traceback.
    """

    ancestry: tuple[str, ...]
    text: str
    trace: str


def failure_of(error: Exception) -> PartyFailure:
    """The exception that is being handled, as text."""
    ancestry = tuple(_title(cls) for cls in type(error).__mro__)
    return PartyFailure(ancestry, _printable(str(error)), _printable(traceback.format_exc()))


def raise_failure(party: str, failure: PartyFailure) -> NoReturn:
    """Raise a party's exception here, with the party's traceback as a note.

    Its class is the exception's own or nearest FedprivError that this process knows; otherwise
    RuntimeError, with the party's name in the text.
    """
    known = {_title(cls): cls for cls in _family(FedprivError)}
    cls = next((known[title] for title in failure.ancestry if title in known), None)
    if cls is None:
        error: Exception = RuntimeError(f"{party}: {failure.ancestry[0]}: {failure.text}")
    else:
        error = cls.__new__(cls, failure.text)  # __init__ may need other arguments
    error.add_note(failure.trace)
    raise error


def _family(cls: type[FedprivError]) -> Iterator[type[FedprivError]]:
    yield cls
    for child in cls.__subclasses__():
        yield from _family(child)


def _title(cls: type) -> str:
    return (
        cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
    )


def _printable(text: str) -> str:
    return text.encode(errors="replace").decode()
