"""Which users share a stack, when each has its turn, and which records a batch step takes."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpriv.data.silo import SiloData
from fedpriv.training.schedule import (
    ALONE_FROM,
    ROWS,
    STACK,
    Limits,
    StackedBatches,
    blocks_of,
    padded,
    shapes,
    turns,
)
from fedpriv.util.streams import Streams

STREAMS = Streams(0)
FEW = Limits(user_bytes=1, row_bytes=1, budget=2**25)
counts_lists = st.lists(st.integers(1, 300), min_size=1, max_size=60).map(
    lambda c: np.sort(c)[::-1].copy()
)


def blocks(counts, size, pad, cap, budget=2**40, limits=FEW):
    found = shapes(counts, size, limits, pad=pad, cap=cap)
    return found, blocks_of(found, np.ones(len(counts), np.int64), budget)


@settings(deadline=None)
@given(counts_lists, st.integers(1, 70), st.booleans(), st.integers(1, 100))
def test_blocks_cover_the_users_and_hold_those_who_can_share_a_stack(counts, size, pad, budget):
    found, each = blocks(counts, size, pad, size, budget)
    assert [i for start, stop in each for i in range(start, stop)] == list(range(len(counts)))
    for start, stop in each:
        [seats] = set(found.seats[start:stop])
        assert stop - start <= max(budget, seats)
        [_] = set(found.last[start:stop])
        if not pad:
            assert len(set(-(-counts[start:stop] // size))) == 1


@settings(deadline=None)
@given(counts_lists, st.integers(1, 70), st.booleans(), st.booleans(), st.sampled_from([0, 10**5]))
def test_a_users_stack_follows_from_its_own_records(counts, size, pad, capped, products):
    """Other users change neither its seats nor its rows, even where the largest of them decides the
    size of a full batch."""
    limits = Limits(user_bytes=1, row_bytes=1, budget=2**25, row_products=products)
    size = size if capped else int(counts.max())
    cap = size if capped else None
    whole = shapes(counts, size, limits, pad=pad, cap=cap)
    for i, own in enumerate(counts):
        alone = shapes(np.array([own]), size if capped else int(own), limits, pad=pad, cap=cap)
        assert (alone.seats[0], alone.last[0]) == (whole.seats[i], whole.last[i])


@settings(deadline=None)
@given(st.integers(1, 10**9))
def test_padding_leads_to_the_next_power_of_two(rows):
    [found] = padded(np.array([rows]))
    assert rows <= found < 2 * rows
    assert found & (found - 1) == 0


@pytest.mark.parametrize("rows", [1, 2, 3, 8, 40, 300])
def test_the_seats_of_a_stack_follow_from_rows_and_memory(rows):
    users = max(1, ROWS // (STACK * rows))
    for stacks in (0, 1, 2, 100):
        limits = Limits(user_bytes=100, row_bytes=10, budget=stacks * STACK * (100 + 10 * rows))
        assert limits.stack(rows) == (STACK * min(stacks, users) or 1)
    heavy = Limits(user_bytes=1, row_bytes=1, budget=2**30, row_products=ALONE_FROM // rows + 1)
    assert heavy.stack(rows) == 1


@settings(deadline=None)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=40), st.integers(1, 9))
def test_every_user_has_one_turn_and_no_seat_is_ever_empty(steps, seats):
    found = turns(steps, seats)
    assert sorted(turn.user for turn in found if turn.read) == list(range(len(steps)))
    end = max(turn.begin + steps[turn.user] for turn in found if turn.read)
    for seat in range(seats):
        own = sorted((t.begin, t.begin + steps[t.user], t.read) for t in found if t.seat == seat)
        assert own[0][0] == 0
        assert all(first[1] == second[0] for first, second in pairwise(own))
        assert own[-1][1] >= end
        assert all(first[2] or not second[2] for first, second in pairwise(own))
    busy = sum(steps)
    assert end <= max(max(steps), busy // seats + max(steps))


@settings(deadline=None)
@given(counts_lists, st.integers(1, 70), st.integers(1, 3), st.booleans())
def test_an_epoch_takes_every_record_once(counts, size, epochs, pad):
    starts = np.concatenate([[0], np.cumsum(counts)])
    n = int(starts[-1])
    data = SiloData(torch.arange(n), torch.arange(n) * 2, np.arange(len(counts)), starts)
    keys = STREAMS.unit_keys("batches", 0, "", np.arange(len(counts)))
    taken = np.zeros((epochs, n))
    found, each = blocks(counts, size, pad, size)
    for start, stop in each:
        own = np.arange(start, stop)
        seats = min(4, found.seats[start])
        made = StackedBatches(
            data, own, size, last=found.last[own], seats=seats, epochs=epochs, keys=keys[own]
        )
        sitting = np.full(seats, -1)
        done = []
        for step in made:
            batch = step.batch
            sitting[step.begin.seats] = own[step.begin.users]
            real = batch.weight > 0
            users = torch.from_numpy(np.searchsorted(starts, batch.x.numpy(), side="right") - 1)
            # Padding is a user's own, too.
            assert bool((users == torch.from_numpy(sitting)[:, None]).all())
            assert torch.equal(batch.y, batch.x * 2)
            torch.testing.assert_close(batch.weight.sum(1), torch.ones(len(batch.x)))
            error = batch.weight * real.sum(1, keepdim=True) - real.float()
            assert bool(error.abs().max() < 1e-6)
            for seat, user in enumerate(sitting):
                if user not in done and seat == list(sitting).index(user):
                    records = batch.x[seat][real[seat]].numpy()
                    np.add.at(taken[step.epochs[seat]], records, 1)
            done += own[step.end.users].tolist()
        assert sorted(done) == own.tolist()
    assert (taken == 1).all()


def test_orders_differ_between_epochs_and_single_batches_are_reused():
    data = SiloData(torch.arange(40), torch.arange(40), np.arange(2), np.array([0, 20, 40]))
    keys = STREAMS.unit_keys("batches", 0, "", data.users)
    both = np.array([0, 1])
    given = {"last": np.array([10, 10]), "seats": 2}
    made = StackedBatches(data, both, 10, epochs=2, keys=keys, **given)
    steps = [step.batch for step in made]
    assert not torch.equal(steps[0].x[0], steps[2].x[0])
    given["last"] = np.array([20, 20])
    once = [step.batch for step in StackedBatches(data, both, 20, epochs=3, keys=None, **given)]
    assert len(once) == 3
    assert once[0] is once[2]
    assert torch.equal(once[0].x[1], torch.arange(20, 40))  # the order does not matter, and is kept
