"""The user and the silo of each row of a table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedpriv.data.table import people
from fedpriv.data.table.read import Cells
from fedpriv.errors import DataError

TABLE, SILO = SCOPES = ("table", "silo")
"""Where a user's name means one person: in the whole table, or in one silo."""


@dataclass(frozen=True)
class Owners:
    """Users and silos of the n rows of a table.

    user: (n,) number of each row's user, -1 where no name is given.
    keys: a text for each user by number; the user's coin of the split is drawn by it.
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
    user: str | None,
    silo: str | None,
    *,
    scope: str,
    similar: str,
    silos: tuple[str, ...] = (),
) -> Owners:
    """Who owns and who holds each row.

    user: column of the users' names; None: every row is another user.
    silo: column of the silos' names; None: there are none.
    scope: one of `SCOPES`.
    similar: one of `people.SIMILAR`.
    silos: the public list of silos; empty: those of the file.

    Raises DataError for names that may mean the same, for placeholders and for unknown silos.
    """
    notes: list[str] = []
    held = None
    if silo is not None:
        found = people.names_of(cells, silo, similar)
        notes += _spellings(cells, silo, found)
        silos = silos or found.names
        held = people.require_known(cells, silo, found, silos)
    if user is None:
        keys = row_keys(cells)
        return Owners(np.arange(len(keys)), keys, held, silos, tuple(notes))
    named = people.names_of(cells, user, similar)
    notes += _spellings(cells, user, named)
    number, keys = named.code, named.names
    if len(keys) == len(cells.frame):
        notes.append(f"column {user}: every row has another value: is it the person, or the visit?")
    if held is not None:
        across = _in_several_silos(number, held, len(keys))
        if len(across):
            one = (
                "each taken as one person"
                if scope == TABLE
                else "each taken as another person in every silo"
            )
            notes.append(
                f"{len(across)} values of column {user} are in several silos, {one} "
                f"(data.user_scope={scope}): see line {_line(cells, number == across[0])}"
            )
        if scope == SILO:
            number, keys = _by_silo(number, held, keys, silos)
    return Owners(number, keys, held, silos, tuple(notes))


def row_keys(cells: Cells) -> tuple[str, ...]:
    """A text for each row that depends on its cells only, so that no other row changes it."""
    import pandas as pd

    hashes = pd.util.hash_pandas_object(cells.frame, index=False).to_numpy()
    return tuple(f"row {number:016x}" for number in hashes)


def _spellings(cells: Cells, column: str, found: people.Names) -> list[str]:
    """Notes on similar names, which they do not repeat: notes go to a run's log."""
    notes = []
    for pairs, what in ((found.merged, "are taken as one"), (found.similar, "are kept apart")):
        if pairs:
            line = _line(cells, np.asarray(cells.frame[column] == pairs[0][1]))
            notes.append(
                f"column {column}: {len(pairs)} pairs of names that may be the same {what}: see "
                f"line {line}"
            )
    loose = people.punctuation_pairs(found.names)
    if loose and not found.similar:
        line = _line(cells, np.asarray(cells.frame[column] == loose[0][1]))
        notes.append(
            f"column {column}: {len(loose)} pairs of names differ in punctuation only, and are "
            f"taken as different: see line {line}"
        )
    return notes


def _line(cells: Cells, rows: np.ndarray) -> int:
    """The line of the first of these rows (n,) bool."""
    return int(cells.frame.index[int(rows.argmax())])


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
    pair = np.where(known, silo * len(keys) + user, -1)
    used, number = np.unique(pair, return_inverse=True)
    lacking = int(used[0] == -1)
    names = tuple(
        f"{silos[one // len(keys)]}\n{keys[one % len(keys)]}" for one in used[lacking:].tolist()
    )
    return number - lacking, names


def shared_keys(cells: Cells, one: Owners, other: Owners, similar: str) -> list[str]:
    """Names of users in both tables. Raises DataError for names in the two that may mean the same,
    under the rule "refuse"."""
    both = set(one.keys) & set(other.keys)
    if similar == people.KEEP:
        return sorted(both)
    known = {people.same_form(key): key for key in one.keys}
    for key in other.keys:
        match = known.get(people.same_form(key))
        if match is not None and match != key:
            if similar == people.REFUSE:
                raise DataError(
                    f"{cells.name}: {key!r:.60} may be the same user as {match!r:.60} of the "
                    "training table: clean the columns, or set data.similar_ids"
                )
            both.add(key)
    return sorted(both)
