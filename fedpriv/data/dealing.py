"""Rules that assign records without owners and silos: to users first, then to silos, then to local
test splits.

These are the rules of Kato et al., Uldp-FL (PVLDB 2024), section 5.1, for creditcard and MNIST.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedpriv.data.split import share

LEAST_LABEL_SHARE = 0.8
"""A queue with less than this share of the records that a user needs is skipped if another queue
has enough."""


def zipf_law(n: int, alpha: float) -> np.ndarray:
    """Probabilities of ranks 1..n, proportional to rank^-alpha, (n,)."""
    weights: np.ndarray = np.arange(1, n + 1, dtype=np.float64) ** -alpha
    return np.asarray(weights / weights.sum())


def deal_equally(n: int, n_owners: int, rng: np.random.Generator) -> np.ndarray:
    """Owner of each of n items, (n,) int64. Every owner has n / n_owners items, rounded down or
    up."""
    return rng.permutation(rng.permutation(n_owners)[np.arange(n) % n_owners])


def limit_labels(
    user: np.ndarray, y: np.ndarray, n_users: int, *, k: int, rng: np.random.Generator
) -> np.ndarray:
    """New owners, (n,) int64, with at most k labels per user and, as far as labels allow, as many
    records per user as in `user`.

    Users choose in turn: k random labels among those with records left, and an equal share from the
    shuffled queue of each. A queue with less than 80% of a share is skipped if another label can
    serve the whole share. Records left at the end go to the first user who has their label, so that
    the bound holds for everybody; in the paper's script they stay with user 0. For the same reason,
    labels without a user go first once slots become scarce.
    """
    labels = np.unique(y)
    queues = [rng.permutation(np.flatnonzero(y == label)) for label in labels]
    owner = np.zeros(len(y), dtype=np.int64)
    has = np.zeros((n_users, len(labels)), dtype=bool)
    wanted = np.bincount(user, minlength=n_users)
    slots = np.minimum(wanted, k)
    later = slots.sum() - np.cumsum(slots)
    new = np.ones(len(labels), dtype=bool)  # labels without a user
    for u in np.flatnonzero(wanted):
        left = np.array([len(queue) > 0 for queue in queues])
        chosen = _draw_labels(left, new, k=int(slots[u]), later=int(later[u]), rng=rng)
        for i, label in enumerate(chosen):
            need = int(wanted[u] + len(chosen) - 1 - i) // len(chosen)
            if len(queues[label]) < LEAST_LABEL_SHARE * need and not new[label]:
                label = next(
                    (other for other, queue in enumerate(queues) if len(queue) >= need), label
                )
            owner[queues[label][:need]] = u
            queues[label] = queues[label][need:]
            has[u, label], new[label] = True, False
    for label, queue in enumerate(queues):
        if len(queue):
            takers = has[:, label] if has[:, label].any() else has.sum(axis=1) < k
            owner[queue] = takers.argmax()
            has[takers.argmax(), label] = True
    return owner


def _draw_labels(
    left: np.ndarray, new: np.ndarray, *, k: int, later: int, rng: np.random.Generator
) -> np.ndarray:
    """k random labels, or fewer if fewer are `left`. They include enough `new` labels that `later`
    choices can take the remaining new ones."""
    order = rng.permutation(np.flatnonzero(left))
    must = max(0, int(new.sum()) - later)
    forced = order[new[order]][:must]
    return np.concatenate([forced, order[~np.isin(order, forced)]])[:k]


def strided_silos(n: int, n_silos: int, rng: np.random.Generator) -> np.ndarray:
    """Silo of each of n records, (n,) int64: silo s holds positions s, s + n_silos, ... of a random
    permutation."""
    silo = np.empty(n, dtype=np.int64)
    silo[rng.permutation(n)] = np.arange(n) % n_silos
    return silo


def zipf_silos(
    user: np.ndarray, n_users: int, n_silos: int, *, alpha: float, rng: np.random.Generator
) -> np.ndarray:
    """Silo of each record, (n,) int64. Each user ranks the silos at random, and each record draws a
    rank by Zipf's law."""
    ranking = rng.permuted(np.tile(np.arange(n_silos), (n_users, 1)), axis=1)
    return np.asarray(
        ranking[user, rng.choice(n_silos, size=len(user), p=zipf_law(n_silos, alpha))]
    )


def dirichlet_silos(
    y: np.ndarray, n_silos: int, alpha: float, *, rng: np.random.Generator
) -> np.ndarray:
    """Silo of each record, (n,) int64. For every label, the symmetric Dirichlet(alpha) gives the
    silos' shares of its records."""
    silo = np.empty(len(y), dtype=np.int64)
    for label in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == label))
        shares = rng.dirichlet(np.full(n_silos, alpha))
        ends = np.rint(len(rows) * np.cumsum(shares)[:-1])
        silo[rows] = np.searchsorted(ends, np.arange(len(rows)), side="right")
    return silo


def hold_out(
    silo: np.ndarray,
    coins: np.ndarray,
    *,
    test: float,
    above: int,
    sizes: np.ndarray | None = None,
) -> np.ndarray:
    """Which records train, (n,) bool: a silo with more than `above` records holds out a share
    `test` of them on average.

    coins: (n,) from 0 to below 1, each record's own. A record is held out if its coin is below
        `test`, whatever other records there are, so that one absent moves no other.
    sizes: number of records of each silo, which is public; None: as counted here.
    """
    sizes = np.bincount(silo) if sizes is None else sizes
    return np.asarray((sizes[silo] <= above) | (coins >= test))


def hold_out_of_each(
    user: np.ndarray, test: float, rng_of: Callable[[int], np.random.Generator]
) -> np.ndarray:
    """Which records train, (n,) bool. Each user holds out a share `test`, rounded up, but at least
    one record trains.

    rng_of: generator of a user, so that a user's split does not depend on other users.
    """
    trains = np.ones(len(user), dtype=bool)
    counts = np.bincount(user)
    for u, rows in enumerate(np.split(np.argsort(user, kind="stable"), np.cumsum(counts)[:-1])):
        held = min(share(len(rows), test), len(rows) - 1)
        if held > 0:
            trains[rng_of(u).permutation(rows)[:held]] = False
    return trains
