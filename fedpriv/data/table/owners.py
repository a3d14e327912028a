"""The user and the silo of each row of a table.

A user is one text in one column. A person who is written in two ways would be two users, and an
epsilon of a user would protect half of that person. So texts that may mean the same person are
refused unless the settings say what they are.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fedpriv.data.table.read import Cells, places_of
from fedpriv.data.table.settings import DROP, KEEP, MERGE, REFUSE, SILO, TABLE
from fedpriv.errors import DataError
from fedpriv.util.pasted import pasted

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


AFTER_SILO = "\n"
"""Between the silo and the name of a user who is one in this silo alone; no name has it."""
ZEROS = re.compile(r"(?<![^\W_])(?<![.,])([^\W\d_]*)0+(?=\d+(?![^\W_]))")
"""Zeros before a number that stands alone or after letters only."""


def same_form(text: str) -> str:
    """The form in which spellings of one name are equal: letters without their case, no spaces but
    between two numbers, no zeros before a number, no decimals of zeros.

    >>> [same_form(text) for text in ("01", "1.0", " 1", "P 07", "100", "a 1 11", "0fc2")]
    ['1', '1', '1', 'p7', '100', 'a1 11', '0fc2']
    """
    plain = unicodedata.normalize("NFKC", text).casefold().strip()
    plain = "".join(sign for sign in plain if unicodedata.category(sign) != "Cf")
    plain = re.sub(r"(?<=\d)\s+(?=\d)", "\0", plain)
    plain = "".join(plain.split()).replace("\0", " ")
    plain = re.sub(r"^\+?(\d+)\.0*$", r"\1", plain)
    return ZEROS.sub(r"\1", plain)


def names_of(
    cells: Cells, column: str, rule: str, notes: list[str], marks: Sequence[str] = ()
) -> tuple[np.ndarray, tuple[str, ...]]:
    """The number (n,) of each row's name, -1 where it is missing, and the names by number,
    ascending. Raises DataError for names that may mean the same under the rule "refuse", and for
    texts that stand for nobody in particular.

    notes: gets a line on names that may mean the same; names are not in it, because notes go to a
        run's log.
    marks: the table's own texts for a missing value.
    """
    cells.require_printable(column)
    spelt = cells.texts(column)
    nobody = [*marks, *(text for text in spelt if text.casefold() in PLACEHOLDERS)]
    cells.refuse(
        column,
        lambda text: text.casefold() in PLACEHOLDERS,
        f"it names nobody in particular; {pasted('data.missing_marks', nobody)} "
        f"{pasted('data.incomplete', DROP)} leaves such rows out",
    )
    if rule != KEEP:
        cells.refuse(
            column,
            lambda text: ROUNDED.fullmatch(text) is not None,
            "a number that a spreadsheet or a float has rounded, so that two persons may have one "
            f"name: export it as text, or {pasted('data.similar_ids', KEEP)} takes it as it is",
        )
    first: dict[str, str] = {}
    alike = [(first.setdefault(same_form(text), text), text) for text in spelt]
    pairs = tuple((one, other) for one, other in alike if one != other)
    if pairs and rule == REFUSE:
        one, other = pairs[0]
        more = f" ({len(pairs)} such pairs)" if len(pairs) > 1 else ""
        cells.refuse(
            column,
            lambda text: text == other,
            f"it may be the same as {one!r}{more}: {pasted('data.similar_ids', MERGE)} makes them "
            f"one, {pasted('data.similar_ids', KEEP)} leaves two",
        )
    if pairs:
        what = "are taken as one" if rule == MERGE else "are kept apart"
        notes.append(f"column {column}: {len(pairs)} pairs that may be the same {what}")
    texts = [one for one, _ in alike] if rule == MERGE else spelt
    names = tuple(sorted(set(texts)))
    return places_of(texts, cells.frame[column].cat.codes, names), names


class OwnerRules(Protocol):
    """Which rows are one person's, and which are left out: keys of `TableSettings`."""

    @property
    def similar_ids(self) -> str: ...

    @property
    def user_scope(self) -> str: ...

    @property
    def missing_marks(self) -> list[str]: ...

    @property
    def one_row_per_user(self) -> bool: ...

    @property
    def missing(self) -> str: ...

    @property
    def incomplete(self) -> str: ...


def in_one_silo(table: OwnerRules) -> bool:
    """Whether nobody has rows in two silos, because a user is a row or somebody in one silo."""
    return table.one_row_per_user or table.user_scope == SILO


def uncovered_persons(table: OwnerRules) -> tuple[str, ...]:
    """What an epsilon of a user of a table does not cover of a person, beside what `user_is` says,
    which stands in its certificate."""
    rules = (
        (
            table.similar_ids == MERGE,
            "data.similar_ids=merge: two persons whose names are alike count as one user, and an "
            "epsilon of a user does not cover each alone",
        ),
        (
            table.similar_ids == KEEP,
            "data.similar_ids=keep: a person whose name is written in two ways counts as two users",
        ),
        (
            DROP in (table.missing, table.incomplete),
            "rows with missing values are left out, and their number is not protected",
        ),
    )
    return tuple(text for holds, text in rules if holds)


@dataclass(frozen=True)
class Owners:
    """Users and silos of the n rows of a table.

    user: (n,) number of each row's user, -1 where no name is given.
    keys: a text for each user by number: the name, after that of the silo if it counts.
    silo: (n,) number of each row's silo, -1 where no name is given; None: there are no silos.
    silos: names of the silos by number.
    notes: what a reader should know of the names.
    """

    user: np.ndarray
    keys: tuple[str, ...]
    silo: np.ndarray | None
    silos: tuple[str, ...]
    notes: tuple[str, ...]


def owners_of(
    cells: Cells,
    table: OwnerRules,
    user: str | None,
    silo: str | None,
    silos: tuple[str, ...] = (),
) -> Owners:
    """Who owns and who holds each row.

    table: where a name means one person, and what happens to names that may mean the same.
    user: column of the users' names; None: every row is another user.
    silo: column of the silos' names; None: there are none.
    silos: the public list of silos; empty: those of the file.

    Raises DataError for names that may mean the same, for placeholders and for unknown silos.
    """
    notes: list[str] = []
    held = None
    if silo is not None:
        code, names = names_of(cells, silo, table.similar_ids, notes, table.missing_marks)
        silos = silos or names
        held = places_of(names, code, silos)
        if (held == -2).any():
            allowed = f"not in the public list: {', '.join(silos[:5])}, ..."
            raise cells.error(silo, held == -2, allowed)
    if user is None:
        keys = row_keys(cells)
        return Owners(np.arange(len(keys)), keys, held, silos, tuple(notes))
    number, keys = names_of(cells, user, table.similar_ids, notes, table.missing_marks)
    if len(keys) == len(cells.frame):
        notes.append(f"column {user}: every row has another value: is it the person, or the visit?")
    if held is not None:
        across = _in_several_silos(number, held, len(keys))
        if len(across):
            line = cells.frame.index[int((number == across[0]).argmax())]
            same = "one person; data.user_scope=silo if each silo numbers its own persons"
            other = "another person in each silo; data.user_scope=table if they are one"
            notes.append(
                f"{len(across)} values of column {user} are in several silos, such as that of line "
                f"{line}; each is taken as {same if table.user_scope == TABLE else other}"
            )
        if table.user_scope == SILO:
            number, keys = _by_silo(number, held, keys, silos)
    return Owners(number, keys, held, silos, tuple(notes))


def row_keys(cells: Cells) -> tuple[str, ...]:
    """A text for each row that depends on its cells only, so that no other row changes it."""
    import pandas as pd

    hashes = pd.util.hash_pandas_object(cells.frame, index=False).to_numpy()
    return tuple(f"row {number:016x}" for number in hashes)


def _in_several_silos(user: np.ndarray, silo: np.ndarray, n_users: int) -> np.ndarray:
    """Numbers of the users with rows in two silos or more."""
    known = (user >= 0) & (silo >= 0)
    pairs = np.unique(np.stack([user[known], silo[known]], axis=1), axis=0)
    return np.flatnonzero(np.bincount(pairs[:, 0], minlength=n_users) > 1)


def _by_silo(
    user: np.ndarray, silo: np.ndarray, keys: tuple[str, ...], silos: tuple[str, ...]
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Users as pairs of silo and name."""
    known = (user >= 0) & (silo >= 0)
    used, number = np.unique((silo * len(keys) + user)[known], return_inverse=True)
    numbers = np.full(len(user), -1)
    numbers[known] = number
    pairs = (divmod(pair, len(keys)) for pair in used.tolist())
    names = tuple(f"{silos[place]}{AFTER_SILO}{keys[name]}" for place, name in pairs)
    return numbers, names


def shared_keys(cells: Cells, one: Owners, other: Owners, similar: str) -> list[str]:
    """Names of users in both tables. Raises DataError for names in the two that may mean the same,
    under the rule "refuse"."""
    both = set(one.keys) & set(other.keys)
    if similar != KEEP:
        known = {same_form(key): key for key in one.keys}
        alike = {key: known.get(same_form(key), key) for key in other.keys}
        new = sorted(key for key, match in alike.items() if match != key)
        if new and similar == REFUSE:
            raise DataError(
                f"{cells.name}: {new[0]!r:.60} may be the same user as {alike[new[0]]!r:.60} of "
                "the training table: clean the columns, or set data.similar_ids"
            )
        both.update(new)
    return sorted(both)
