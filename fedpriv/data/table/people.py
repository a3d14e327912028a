"""Who counts as a user, and which silo is which.

A user is one text in one column. A person who is written in two ways would be two users, and an
epsilon of a user would protect half of that person. So texts that may mean the same person are
refused unless the settings say what they are.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.data.table.read import places_of
from fedpriv.data.table.settings import KEEP, MERGE, REFUSE

if TYPE_CHECKING:
    from fedpriv.data.table.read import Cells

PLACEHOLDERS = frozenset(
    [
        *("unknown", "unk", "anonymous", "anonym", "anon", "missing", "none", "null", "nan", "na"),
        *("n/a", "n.a.", "nil", "tbd", "xxx", "x", "-", "--", "?"),
        *("unbekannt", "inconnu", "desconocido"),
    ]
)
"""Texts, in small letters, that stand for nobody in particular."""

ROUNDED = re.compile(r"\d([.,]\d+)?[eE]\+\d+")
"""A number as spreadsheets and floats write it when it is long: 1.23457E+11."""


@dataclass(frozen=True)
class Names:
    """The names in a column.

    code: (n,) number of each row's name, -1 where it is missing.
    names: the names by number, ascending.
    pairs: pairs of spellings that may mean the same: taken as one, or kept apart.
    """

    code: np.ndarray
    names: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...] = ()


def same_form(text: str) -> str:
    """The form in which spellings of one name are equal: letters without their case, no spaces, no
    zeros before a number, no decimals of zeros.

    >>> same_form("01"), same_form("1.0"), same_form(" 1"), same_form("P 07"), same_form("100")
    ('1', '1', '1', 'p7', '100')
    """
    plain = "".join(unicodedata.normalize("NFKC", text).casefold().split())
    plain = "".join(sign for sign in plain if unicodedata.category(sign) != "Cf")
    if re.fullmatch(r"[+-]?\d+(\.\d+)?e[+-]?\d{1,2}", plain):  # as spreadsheets write long numbers
        plain = f"{float(plain):.0f}"
    plain = re.sub(r"^(\+?)(\d+)\.0*$", r"\2", plain)
    return re.sub(r"(?<![\d.])0+(?=\d)", "", plain)


def names_of(cells: Cells, column: str, rule: str) -> Names:
    """The names in a column of texts. Raises DataError for names that may mean the same under the
    rule "refuse", and for texts that stand for nobody in particular."""
    cells.refuse(
        column,
        lambda text: text.casefold() in PLACEHOLDERS,
        "it names nobody in particular; add it to data.missing_marks, and choose data.incomplete",
    )
    if rule != KEEP:
        cells.refuse(
            column,
            lambda text: ROUNDED.fullmatch(text) is not None,
            "a number that a spreadsheet or a float has rounded, so that two persons may have one "
            "name: export it as text, or set data.similar_ids=keep",
        )
    spelt = list(map(str, cells.frame[column].cat.categories))
    first: dict[str, str] = {}
    alike = [(first.setdefault(same_form(text), text), text) for text in spelt]
    pairs = tuple((one, other) for one, other in alike if one != other)
    if pairs and rule == REFUSE:
        one, other = pairs[0]
        more = f" ({len(pairs)} such pairs)" if len(pairs) > 1 else ""
        cells.refuse(
            column,
            lambda text: text == other,
            f"it may be the same as {one!r}{more}: clean the column, or set data.similar_ids to "
            "merge (they are one) or keep (they are not)",
        )
    texts = [one for one, _ in alike] if rule == MERGE else spelt
    names = tuple(sorted(set(texts)))
    return Names(places_of(texts, cells.frame[column].cat.codes, names), names, pairs)
