"""What a party raises in another process, and how it comes out of this one."""

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

    ancestry: the names of its class and of that one's bases, nearest first.
    """

    ancestry: tuple[str, ...]
    text: str
    trace: str


def failure_of(error: Exception) -> PartyFailure:
    """The exception that is being handled."""
    ancestry = tuple(_title(cls) for cls in type(error).__mro__)
    return PartyFailure(ancestry, _printable(str(error)), _printable(traceback.format_exc()))


def raise_failure(party: str, failure: PartyFailure) -> NoReturn:
    """Raise it as its own class if that is a FedprivError which this process knows, else as the
    nearest base that is one, else as a RuntimeError that names the party; the party's traceback is
    a note."""
    known = {_title(cls): cls for cls in _family(FedprivError)}
    cls = next((known[title] for title in failure.ancestry if title in known), None)
    if cls is None:
        error: Exception = RuntimeError(f"{party}: {failure.ancestry[0]}: {failure.text}")
    else:
        error = cls.__new__(
            cls, failure.text
        )  # its __init__ may want other arguments than its text
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
