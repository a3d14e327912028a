"""Write docs/reference/claim_rules.md from `fedpriv.claims.rules` and `fedpriv.claims.view`.

Run `python -m scripts.claim_rules` after a change to a rule; until then a test fails.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from fedpriv.claims import rules, view
from fedpriv.claims.schema import RULES, WHO

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "claim_rules.md"
HEAD = """\
# The rules for claims

[`certify`](../certify.md) reads these tables alone: what fits no row has no certificate. `python -m
scripts.claim_rules` writes this page from `fedpriv/claims/rules.py` and `view.py`.

C is the bound of one contributor: clip x weight x sqrt(tensors), or x tensors for Laplace noise.
"""
CHANGES = """\
Neighbours differ in one unit. Its contributors are *removed* (add/remove), *zeroed* (zero-out),
*replaced*, or *resized*: replaced by several, perhaps of another number. A contributor that is
larger than the unit is always replaced. Every row that fits is a proof, and the smallest epsilon
counts. A number in the last column: for units of at most so many contributors.
"""
ATTACKED = """\
All other vectors are zero and the unit's lies on the bound: neighbours differ by exactly one
contribution, not larger than the unit, weighted by data, or missing with its noise or a count.
"""


def page() -> str:
    """The correct text of the page."""
    return "\n".join([HEAD, *_needs(), *_noise(), *_proofs(), *_attacks()]) + "\n"


def _needs() -> Iterator[str]:
    yield "## What every proof needs\n"
    rows = [(f"`{field}`", _plain(why)) for field, _, why in rules.NEEDS]
    yield from _table(("field", "no certificate if"), rows)


def _noise() -> Iterator[str]:
    yield "## The noise that hides a contribution\n"
    names = ("added by", "seen", "observer", "noise", "there without its client")
    rows = [
        (row.added_by, _any(row.seen, ()), _any(row.observers, WHO), row.told, _yes(row))
        for row in view.NOISE
    ]
    yield from _table(names, rows)
    yield "Messages of clients that another party noises, and a server's own noise, have no row.\n"


def _yes(row: view.Noise) -> str:
    return "yes" if row.stays else "no: no certificate for a removed client"


def _proofs() -> Iterator[str]:
    yield "## What is proved\n"
    yield CHANGES
    names = ("noise", "sampling", "drawn", "learned", "contributor", "moves", "charge", "proof")
    rows = [
        (*_where(row), "C" if row.bounds == 1 else "2 C", row.result, _limited(row))
        for row in rules.PROOFS
    ]
    yield from _table(names, rows)
    yield from _meanings("Charged", rules.CHARGES)
    yield from _meanings("What the observer learns of the sample", view.LEARNED)
    yield f"*{view.CAPPED}*: `participation` is less than `times`.\n"


def _limited(row: rules.Row) -> str:
    return row.source if row.most == float("inf") else f"{row.source} ({row.most:g})"


def _attacks() -> Iterator[str]:
    yield "## What an attack reaches\n"
    yield ATTACKED
    names = ("noise", "sampling", "drawn", "learned", "contributor", "attack", "proof")
    yield from _table(names, [(*_where(row), row.result, row.source) for row in rules.ATTACKS])
    yield "No noise at all is met, and epsilon is infinite, if the unit takes part more often than"
    yield "delta and\n"
    yield from (f"- {_plain(text)}" for _, text in rules.CANCELLED)


def _where(row: rules.Row) -> tuple[str, ...]:
    return (
        _any(row.mechanism, rules.BOTH),
        _any(row.sampling, RULES),
        _any(row.drawn, rules.ANY),
        _any(row.sample, tuple(view.LEARNED)),
        _any(row.change, view.CHANGES),
    )


def _any(values: Iterable[str], allowed: tuple[str, ...]) -> str:
    return "any" if set(values) == {*allowed} else ", ".join(values)


def _plain(text: str) -> str:
    """A message without its place holders."""
    text = text.removeprefix("{weights}: ").removeprefix("{denominator}: ")
    return re.sub(r"\{([\w.]+)\}", lambda name: f"*{name[1].rpartition('.')[2]}*", text)


def _meanings(title: str, texts: dict[str, str]) -> Iterator[str]:
    yield f"{title}:\n"
    yield from (f"- *{name}*: {text}." for name, text in texts.items())
    yield ""


def _table(names: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(names)} |"
    yield f"|{' --- |' * len(names)}"
    yield from (f"| {' | '.join(row)} |" for row in rows)
    yield ""


if __name__ == "__main__":
    PAGE.write_text(page())
