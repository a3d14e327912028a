"""Numbers modulo n in private weighting: the silos' blinds and cancelling masks."""

from __future__ import annotations

import math
from collections.abc import Mapping

from fedpriv.crypto.digest import digest
from fedpriv.crypto.uniform_integers import integers_below, shared_bytes, shared_integers


def blind(n: int, seed: bytes, user: int) -> int:
    """r_u: uniform among 1..n-1 without a divisor in common with n."""
    read = shared_bytes(seed, digest("private weighting blind", n, user))
    while math.gcd(r := integers_below(n, 1, read)[0], n) != 1:
        pass
    return r


def cancelling_masks(
    *, n: int, count: int, name: str, seeds: Mapping[str, bytes], purpose: bytes
) -> list[int]:
    """Masks of silo `name` for `count` numbers modulo n. They are uniform for a party that lacks
    one of its pairs' seeds, and zero in the sum over all silos.

    seeds: by peer.
    purpose: must never mask two different lists.
    """
    sums = [0] * count
    for peer, seed in seeds.items():
        masks = shared_integers(n, count, seed=seed, purpose=purpose)
        sums = [s + m if peer > name else s - m for s, m in zip(sums, masks)]
    return sums
