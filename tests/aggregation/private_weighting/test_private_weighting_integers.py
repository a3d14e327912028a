import math

import numpy as np
import pytest
from private_sums import small
from queries import query_for
from scipy.stats import chisquare

from fedpriv.aggregation.base import encoding_of
from fedpriv.aggregation.plain import Plain
from fedpriv.aggregation.private_weighting.silo import blind, cancelling_masks
from fedpriv.encoding.slots import SlotEncoding
from fedpriv.util.streams import SystemGenerator

SEED = bytes(range(32))


def test_blinds_are_units_of_their_own():
    n = 3 * 5 * 7 * 11
    blinds = [blind(n, SEED, user) for user in range(400)]
    assert all(math.gcd(b, n) == 1 and 0 < b < n for b in blinds)
    units = [r for r in range(n) if math.gcd(r, n) == 1]
    assert chisquare(np.histogram(blinds, bins=[*units[::48], n])[0]).pvalue > 1e-7
    assert blinds[3] == blind(n, SEED, 3)


def test_masks_cancel_over_all_silos_and_only_there():
    n, names = 2**127 - 1, ["silo0", "silo1", "silo10", "silo2"]
    pairs = {frozenset((i, j)): SystemGenerator().bytes(32) for i in names for j in names if i != j}

    def masks_of(name):
        seeds = {peer: pairs[frozenset((name, peer))] for peer in names if peer != name}
        return cancelling_masks(n=n, count=5, name=name, seeds=seeds, purpose=b"round")

    masks = [masks_of(name) for name in names]
    assert [sum(column) % n for column in zip(*masks)] == [0] * 5
    for left_out in range(4):
        assert all(sum(column) % n for column in zip(*(masks[:left_out] + masks[left_out + 1 :])))


def test_messages_of_another_kind_are_refused():
    assert encoding_of(query_for(small(), 3), SlotEncoding).layout.n_max == 20
    with pytest.raises(ValueError, match="need SlotEncoding"):
        encoding_of(query_for(Plain(), 3), SlotEncoding)
