from dataclasses import replace

import numpy as np
import pytest

from fedpriv.data.allocate import Allocation
from fedpriv.data.base import Records
from fedpriv.data.silo import SiloData, split_by_silo


def example():
    """Six records of users 2, 0, 2, 1, 0, 2 in silos 0, 0, 0, 1, 1, 0, the last one held out."""
    records = Records(np.arange(6, dtype=np.float32)[:, None], np.arange(6))
    user, silo = np.array([2, 0, 2, 1, 0, 2]), np.array([0, 0, 0, 1, 1, 0])
    return records, Allocation(user, silo, np.array([True] * 5 + [False]), 3, 2)


def test_a_silos_records_are_sorted_by_user_and_keep_their_order():
    first, second = split_by_silo(*example(), "cpu")
    assert first.y.tolist() == [1, 0, 2]
    assert first.users.tolist() == [0, 2]
    assert first.starts.tolist() == [0, 1, 3]
    assert first.counts.tolist() == [1, 2]
    assert second.y.tolist() == [4, 3]


def test_a_silo_without_training_records_is_empty():
    records, allocation = example()
    empty = replace(allocation, trains=allocation.silo == 1)
    first, second = split_by_silo(records, empty, "cpu")
    assert (len(first.x), first.users.tolist(), first.starts.tolist()) == (0, [], [0])
    assert second.y.tolist() == [4, 3]
    assert empty.silo_sizes().tolist() == empty.counts().sum(axis=1).tolist() == [0, 2]


def test_records_keep_their_numbers_in_the_data_set():
    first, second = split_by_silo(*example(), "cpu")
    assert first.records.tolist() == [1, 0, 2]
    assert second.records.tolist() == [4, 3]
    assert first.pooled().to("cpu").records.tolist() == [1, 0, 2]
    fresh = SiloData(first.x, first.y, first.users, first.starts)
    assert fresh.records.tolist() == [0, 1, 2]


def test_pooled_records_belong_to_one_user():
    pooled = split_by_silo(*example(), "cpu")[0].pooled()
    assert pooled.users.tolist() == [0]
    assert pooled.counts.tolist() == [3]


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.int32, np.uint8])
def test_features_keep_their_type(dtype):
    records, allocation = example()
    tokens = Records(records.x.astype(dtype), records.y)
    for silo in split_by_silo(tokens, allocation, "cpu"):
        assert silo.x.numpy().dtype == dtype
        assert silo.pooled().x.numpy().dtype == dtype
        assert silo.x[:, 0].tolist() == silo.y.tolist()
