import os
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.crypto.paillier.parallel import even_ranges, map_in_processes
from fedpriv.errors import AggregationAbortedError


@given(st.integers(0, 200), st.integers(1, 30))
def test_ranges_are_even_and_cover_everything_once(count, parts):
    ranges = even_ranges(count, parts)
    assert [k for part in ranges for k in part] == list(range(count))
    lengths = {len(part) for part in ranges}
    assert max(lengths) - min(lengths) <= 1
    assert len(ranges) == max(1, min(parts, count))


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_results_come_in_the_order_of_the_parts(workers):
    assert map_in_processes(partial(pow, 3), list(range(7)), workers) == [3**k for k in range(7)]


def test_several_parts_leave_this_process_and_a_single_one_does_not():
    assert os.getpid() not in map_in_processes(_process, [0, 1], 2)
    assert map_in_processes(_process, [0], 2) == map_in_processes(_process, [0], 1) == [os.getpid()]


def _process(part):
    return os.getpid()


def test_a_process_that_dies_is_told():
    """Rather than a list with fewer results, or none."""
    with pytest.raises(AggregationAbortedError, match="has died"):
        map_in_processes(os._exit, [1, 1], 2)
