"""Rules that assign users to records with silos (hospitals, regions).

These are the rules of Kato et al., Uldp-FL (PVLDB 2024), section 5.1, for HeartDisease and
TcgaBrca. `group` is the smallest number of records of a user in a silo: 1, or 2 for Cox losses,
which compare records. A silo must hold `group` records or more.
"""

from __future__ import annotations

import numpy as np

MAIN_SILO = 0.8
"""Probability that a record of a user belongs to the user's main silo."""


def uniform_owners(
    silo: np.ndarray, n_users: int, *, group: int, rng: np.random.Generator
) -> np.ndarray:
    """Owner of each record, (n,) int64. Each `group` of consecutive records in a silo draws one
    user uniformly; a smaller remainder belongs to the user of the silo's last group."""
    owner = np.empty(len(silo), dtype=np.int64)
    for s in np.unique(silo):
        rows = np.flatnonzero(silo == s)
        draws = rng.integers(n_users, size=max(1, len(rows) // group))
        owner[rows] = draws[np.minimum(np.arange(len(rows)) // group, len(draws) - 1)]
    return owner


def zipf_owners(
    silo: np.ndarray, n_silos: int, law: np.ndarray, *, group: int, rng: np.random.Generator
) -> np.ndarray:
    """Owner of each record, (n,) int64.

    law: (n_users,) probabilities of the users.

    Every user gets `group` records; the other records draw their user by `law`. Each user has a
    main silo, drawn uniformly. Each of the user's records belongs there with probability 0.8, else
    to another silo. Records beyond a silo's size move to the next silo. Within a silo, records get
    their users in random order.
    """
    sizes = np.bincount(silo, minlength=n_silos)
    totals = group + rng.multinomial(len(silo) - group * len(law), law)
    chance = np.full((n_silos, n_silos), (1 - MAIN_SILO) / max(n_silos - 1, 1))
    np.fill_diagonal(chance, MAIN_SILO if n_silos > 1 else 1.0)
    table = rng.multinomial(totals, chance[rng.integers(n_silos, size=len(law))])
    table = _overflowed(_merged(table, group, rng), sizes)
    if group > 1:
        table = _regrouped(table, group, rng)
    owner = np.empty(len(silo), dtype=np.int64)
    for s in range(n_silos):
        owner[silo == s] = rng.permutation(np.repeat(np.arange(len(law)), table[:, s]))
    return owner


def _merged(table: np.ndarray, group: int, rng: np.random.Generator) -> np.ndarray:
    """Records per user and silo (n_users, n_silos). Incomplete groups move to a silo where the user
    has a group."""
    table = table.copy()
    for u in np.flatnonzero(((table > 0) & (table < group)).any(axis=1)):
        row = table[u]
        whole = np.flatnonzero(row >= group)
        if not len(whole):
            whole = rng.choice(np.flatnonzero(row), size=1)
        for s in np.flatnonzero((row > 0) & (row < group)):
            if s not in whole:
                row[rng.choice(whole)] += row[s]
                row[s] = 0
    return table


def _overflowed(table: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The table with column sums `sizes`. In the order of users, records that a full silo cannot
    hold move to the next silo."""
    room = sizes.copy()
    placed = np.zeros_like(table)
    for u, s in np.argwhere(table):
        left = table[u, s]
        at = s
        while left:
            moved = min(left, room[at])
            placed[u, at] += moved
            room[at] -= moved
            left -= moved
            at = (at + 1) % len(sizes)
    return placed


def _regrouped(table: np.ndarray, group: int, rng: np.random.Generator) -> np.ndarray:
    """The table with every entry 0 or at least `group` and the same column sums.

    The overflow can split groups. Incomplete groups become free records of their silo. A user left
    without records gets a group in the silo with the most spare records: free records first, then
    records of the silo's largest owners. If no silo has enough, the user gets a whole entry of a
    user with several. The remaining free records go to owners in the same silo. This works if the
    silos have room for a group of every user.
    """
    table = table.copy()
    short = table < group
    free = np.where(short, table, 0).sum(axis=0)
    table[short] = 0
    for u in np.flatnonzero(table.sum(axis=1) == 0):
        spare = free + np.maximum(table - group, 0).sum(axis=0)
        s = spare.argmax()
        if spare[s] < group:
            giver = (table > 0).sum(axis=1).argmax()
            s = np.flatnonzero(table[giver])[0]
            table[u, s], table[giver, s] = table[giver, s], 0
            continue
        taken = min(free[s], group)
        free[s] -= taken
        for _ in range(group - taken):
            table[table[:, s].argmax(), s] -= 1
        table[u, s] = group
    for s in np.flatnonzero(free):
        owners = np.flatnonzero(table[:, s])
        # A silo with free records only gets one owner, so that no group is split again.
        takers = (
            rng.choice(owners, size=free[s])
            if len(owners)
            else np.full(free[s], rng.integers(len(table)))
        )
        np.add.at(table[:, s], takers, 1)
    return table
