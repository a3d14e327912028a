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

from fedpriv.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

    from fedpriv.data.table.read import Cells

REFUSE, MERGE, KEEP = SIMILAR = ("refuse", "merge", "keep")
"""What happens to names that may mean the same."""

PLACEHOLDERS = frozenset(
    [
        "unknown",
        "unk",
        "anonymous",
        "anonym",
        "anon",
        "missing",
        "none",
        "null",
        "nan",
        "na",
        "n/a",
        "n.a.",
        "nil",
        "tbd",
        "xxx",
        "x",
        "-",
        "--",
        "?",
        "unbekannt",
        "inconnu",
        "desconocido",
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
    merged: pairs of spellings that were taken as one name.
    similar: pairs of spellings that may mean the same and were kept apart.
    """

    code: np.ndarray
    names: tuple[str, ...]
    merged: tuple[tuple[str, str], ...] = ()
    similar: tuple[tuple[str, str], ...] = ()


def same_form(text: str) -> str:
    """The form in which spellings of one name are equal: letters without their case, no spaces, no
    zeros before a number, no decimals of zeros ("01", "1.0", " 1" are "1"; "P 07" is "p7")."""
    plain = "".join(unicodedata.normalize("NFKC", text).casefold().split())
    plain = "".join(sign for sign in plain if unicodedata.category(sign) != "Cf")
    if re.fullmatch(r"[+-]?\d+(\.\d+)?e[+-]?\d{1,2}", plain):  # as spreadsheets write long numbers
        plain = f"{float(plain):.0f}"
    plain = re.sub(r"^(\+?)(\d+)\.0*$", r"\2", plain)
    return re.sub(r"0+(?=\d)", "", plain) if plain.isdigit() else _short_numbers(plain)


def _short_numbers(text: str) -> str:
    """A text whose numbers have lost the zeros before them."""
    return re.sub(r"(?<![\d.])0+(?=\d)", "", text)


def loose_form(text: str) -> str:
    """As `same_form`, without punctuation: "P-07" is "P7"."""
    return re.sub(r"[-_./\\,:;#()\[\]']", "", same_form(text))


def names_of(cells: Cells, column: str, rule: str) -> Names:
    """The names in a column of texts. Raises DataError for names that may mean the same under the
    rule "refuse", and for texts that stand for nobody in particular."""
    series: pd.Series = cells.frame[column]
    code = np.asarray(series.cat.codes, dtype=np.int64)
    used = np.zeros(len(series.cat.categories) + 1, dtype=bool)
    used[code] = True
    texts = [str(text) for text in series.cat.categories]
    _refuse_placeholders(cells, column, texts, code)
    if rule != KEEP:
        _refuse_rounded(cells, column, texts, code)
    first: dict[str, str] = {}
    pairs = []
    for text in (text for text, there in zip(texts, used) if there):
        other = first.setdefault(same_form(text), text)
        if other != text:
            pairs.append((other, text))
    if pairs and rule == REFUSE:
        one, other = pairs[0]
        more = f" ({len(pairs)} such pairs)" if len(pairs) > 1 else ""
        raise cells.error(
            column,
            code == texts.index(other),
            f"it may be the same as {one!r}{more}: clean the column, or set data.similar_ids to "
            "merge (they are one) or keep (they are not)",
        )
    if rule == MERGE:
        texts = [first.get(same_form(text), text) for text in texts]
    names = sorted({text for text, there in zip(texts, used) if there})
    place = {text: number for number, text in enumerate(names)}
    new = np.array([*(place.get(text, -1) for text in texts), -1])
    merged = tuple(pairs) if rule == MERGE else ()
    return Names(new[code], tuple(names), merged, () if merged else tuple(pairs))


def _refuse_rounded(cells: Cells, column: str, texts: list[str], code: np.ndarray) -> None:
    """Refuse long numbers that a spreadsheet or a float has rounded: two persons may have become
    one name."""
    rounded = [place for place, text in enumerate(texts) if ROUNDED.fullmatch(text)]
    wrong = np.isin(code, rounded)
    if wrong.any():
        raise cells.error(
            column,
            wrong,
            "a number that a spreadsheet or a float has rounded, so that two persons may have one "
            "name: export it as text, or set data.similar_ids=keep",
        )


def _refuse_placeholders(cells: Cells, column: str, texts: list[str], code: np.ndarray) -> None:
    for number, text in enumerate(texts):
        wrong = code == number if text.casefold() in PLACEHOLDERS else None
        if wrong is not None and wrong.any():
            raise cells.error(
                column,
                wrong,
                "it names nobody in particular; add it to data.missing_marks, and choose "
                "data.incomplete",
            )


def punctuation_pairs(names: tuple[str, ...]) -> list[tuple[str, str]]:
    """Pairs of names that differ in punctuation only."""
    first: dict[str, str] = {}
    pairs = []
    for text in names:
        other = first.setdefault(loose_form(text), text)
        if other != text:
            pairs.append((other, text))
    return pairs


def require_known(cells: Cells, column: str, found: Names, known: tuple[str, ...]) -> np.ndarray:
    """Number among `known` of each row's name, (n,) int64, -1 where it is missing. Raises DataError
    for a name that is not known."""
    place = {name: number for number, name in enumerate(known)}
    new = np.array([*(place.get(name, -2) for name in found.names), -1])
    number = np.asarray(new[found.code], dtype=np.int64)
    if (number == -2).any():
        shown = ", ".join(known[:5]) + (" ..." if len(known) > 5 else "")
        raise cells.error(column, number == -2, f"not in the public list: {shown}")
    return number


def refuse_missing(cells: Cells, column: str, missing: np.ndarray) -> DataError:
    """The error for rows without a label, a user or a silo."""
    return cells.error(
        column, missing, "a missing value; data.incomplete=drop leaves such rows out"
    )
