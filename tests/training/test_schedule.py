"""Which users share a block and which records a batch step takes."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpriv.data.silo import SiloData
from fedpriv.training.schedule import Limits, batches, cut
from fedpriv.util.streams import Streams

STREAMS = Streams(0)
counts_lists = st.lists(st.integers(1, 300), min_size=1, max_size=60).map(
    lambda c: np.sort(c)[::-1]
)


def cost(counts, size, limits, blocks):
    """Steps and padded rows, counted step by step."""
    total = 0.0
    for start, stop in blocks:
        block = counts[start:stop]
        for offset in range(0, block[0], size):
            total += limits.step_cost + (block > offset).sum() * min(size, block[0] - offset)
    return total


@settings(deadline=None)
@given(counts_lists, st.integers(1, 70), st.floats(0, 1000), st.integers(1, 10**5))
def test_blocks_cover_the_users_within_the_budget(counts, size, step_cost, budget):
    limits = Limits(step_cost, user_bytes=100, row_bytes=10, budget=budget)
    blocks = cut(counts, size, limits)
    assert [i for start, stop in blocks for i in range(start, stop)] == list(range(len(counts)))
    for start, stop in blocks:
        width = min(size, int(counts[start]))
        assert stop - start == 1 or (stop - start) * (100 + 10 * width) <= budget


@settings(deadline=None)
@given(counts_lists, st.integers(1, 70), st.floats(0, 1000))
def test_blocks_are_no_worse_than_all_together_or_one_by_one(counts, size, step_cost):
    limits = Limits(step_cost, user_bytes=1, row_bytes=0, budget=10**9)
    best = cost(counts, size, limits, cut(counts, size, limits))
    together = cost(counts, size, limits, [(0, len(counts))])
    alone = cost(counts, size, limits, [(i, i + 1) for i in range(len(counts))])
    assert best <= min(together, alone) + 1e-6


@settings(deadline=None)
@given(counts_lists, st.integers(1, 70), st.integers(1, 3))
def test_an_epoch_takes_every_record_once(counts, size, epochs):
    starts = np.concatenate([[0], np.cumsum(counts)])
    n = int(starts[-1])
    data = SiloData(torch.arange(n), torch.arange(n) * 2, np.arange(len(counts)), starts)
    keys = STREAMS.unit_keys("batches", 0, "", np.arange(len(counts)))
    taken = np.zeros((epochs, n))
    steps, longest = -(-int(counts[0]) // size), 0
    for i, step in enumerate(batches(data, np.arange(len(counts)), size, epochs=epochs, keys=keys)):
        batch = step.batch
        assert (step.epoch, step.place) == divmod(i, steps)
        real = batch.weight > 0
        users = torch.from_numpy(np.searchsorted(starts, batch.x.numpy(), side="right") - 1)
        assert bool(
            (users == torch.arange(len(batch.x))[:, None]).all()
        )  # padding is the user's own, too
        assert torch.equal(batch.y, batch.x * 2)
        torch.testing.assert_close(batch.weight.sum(1), torch.ones(len(batch.x)))
        assert bool((batch.weight * real.sum(1, keepdim=True) - real.float()).abs().max() < 1e-6)
        np.add.at(taken[i // steps], batch.x[real].numpy(), 1)
        longest = max(longest, batch.weight.shape[1])
    assert (taken == 1).all()
    assert longest == min(size, counts[0])


def test_orders_differ_between_epochs_and_single_batches_are_reused():
    data = SiloData(torch.arange(30), torch.arange(30), np.arange(2), np.array([0, 20, 30]))
    keys = STREAMS.unit_keys("batches", 0, "", data.users)
    steps = [step.batch for step in batches(data, np.array([0, 1]), 10, epochs=2, keys=keys)]
    assert not torch.equal(steps[0].x[0], steps[2].x[0])
    assert torch.equal(
        steps[0].x[1], torch.arange(20, 30)
    )  # one batch: the order does not matter, and is kept
    once = [step.batch for step in batches(data, np.array([0, 1]), 20, epochs=3, keys=None)]
    assert len(once) == 3
    assert once[0] is once[2]


@pytest.mark.parametrize("size", [1, 7, 64])
def test_blocks_of_equal_users_are_equal(size):
    limits = Limits(step_cost=50.0, user_bytes=1000, row_bytes=10, budget=20_000)
    sizes = [stop - start for start, stop in cut(np.full(100, 64), size, limits)]
    assert max(sizes) - min(sizes) <= 1
