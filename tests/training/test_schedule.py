"""Which users share a stack and which records a batch step takes."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpriv.data.silo import SiloData
from fedpriv.training.schedule import (
    STACK,
    Limits,
    batches,
    equal_batches,
    last_rows,
    padded,
)
from fedpriv.util.streams import Streams

STREAMS = Streams(0)
counts_lists = st.lists(st.integers(1, 300), min_size=1, max_size=60).map(
    lambda c: np.sort(c)[::-1]
)


def stacks(counts, size, pad, users=4):
    return equal_batches(np.asarray(counts), size, pad, lambda rows: users)


@settings(deadline=None)
@given(counts_lists, st.integers(1, 70), st.booleans())
def test_stacks_cover_the_users_and_hold_equal_batches(counts, size, pad):
    found = stacks(counts, size, pad)
    assert [i for start, stop in found for i in range(start, stop)] == list(range(len(counts)))
    for start, stop in found:
        own = counts[start:stop]
        last = last_rows(own, size)
        assert stop - start <= 4
        assert len(set(-(-own // size))) == 1
        assert len(set(padded(last) if pad else last)) == 1


@settings(deadline=None)
@given(st.integers(1, 10**6))
def test_padding_adds_at_most_a_fifth(rows):
    [found] = padded(np.array([rows]))
    assert rows <= found <= rows * 1.25
    assert padded(np.array([found])) == found


def test_the_number_of_users_of_a_stack_depends_on_their_own_rows():
    limits = Limits(user_bytes=100, row_bytes=10, budget=STACK * 500)
    assert [limits.stack(rows) for rows in (1, 40, 41)] == [STACK, STACK, 1]


@settings(deadline=None)
@given(counts_lists, st.integers(1, 70), st.integers(1, 3), st.booleans())
def test_an_epoch_takes_every_record_once(counts, size, epochs, pad):
    starts = np.concatenate([[0], np.cumsum(counts)])
    n = int(starts[-1])
    data = SiloData(torch.arange(n), torch.arange(n) * 2, np.arange(len(counts)), starts)
    keys = STREAMS.unit_keys("batches", 0, "", np.arange(len(counts)))
    taken = np.zeros((epochs, n))
    for start, stop in stacks(counts, size, pad):
        own = np.arange(start, stop)
        steps = -(-int(counts[start]) // size)
        made = batches(data, own, size, epochs=epochs, keys=keys[own], pad=pad)
        for i, step in enumerate(made):
            batch = step.batch
            assert (step.epoch, step.place) == divmod(i, steps)
            real = batch.weight > 0
            users = torch.from_numpy(np.searchsorted(starts, batch.x.numpy(), side="right") - 1)
            assert bool((users == torch.from_numpy(own)[:, None]).all())  # padding is its own, too
            assert torch.equal(batch.y, batch.x * 2)
            torch.testing.assert_close(batch.weight.sum(1), torch.ones(len(batch.x)))
            error = batch.weight * real.sum(1, keepdim=True) - real.float()
            assert bool(error.abs().max() < 1e-6)
            np.add.at(taken[i // steps], batch.x[real].numpy(), 1)
    assert (taken == 1).all()


def test_orders_differ_between_epochs_and_single_batches_are_reused():
    data = SiloData(torch.arange(40), torch.arange(40), np.arange(2), np.array([0, 20, 40]))
    keys = STREAMS.unit_keys("batches", 0, "", data.users)
    steps = [step.batch for step in batches(data, np.array([0, 1]), 10, epochs=2, keys=keys)]
    assert not torch.equal(steps[0].x[0], steps[2].x[0])
    once = [step.batch for step in batches(data, np.array([0, 1]), 20, epochs=3, keys=None)]
    assert len(once) == 3
    assert once[0] is once[2]
    assert torch.equal(once[0].x[1], torch.arange(20, 40))  # the order does not matter, and is kept
