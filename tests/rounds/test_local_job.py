"""What a silo computes: contributions and work, in turn or in one batch with other silos."""

import numpy as np
import pytest
from works import Doubled

from fedpriv.rounds.local_job import LocalJob
from fedpriv.training.contributions import Contributions


def block(number):
    return Contributions(np.array([number]), np.zeros((1, 1)))


def two_works(*keys):
    """A computation of two works, each on the result of the last, then of two blocks."""
    number = 1
    for key in keys:
        number = yield Doubled(number, key)
    yield block(number)
    yield block(number + 1)


def units(job):
    return [int(unit) for found in job.contributions for unit in found.units]


def finished(party, *results):
    """The works that `party` yields, and its job, with these results."""
    works = [next(party)] if results else []
    try:
        for result in results[:-1]:
            works.append(party.send(result))
        party.send(results[-1]) if results else next(party)
    except StopIteration as end:
        return works, end.value
    raise AssertionError("goes on")


@pytest.mark.parametrize("keys", [("a", "b"), ("a", None), (None, "a"), (None, None)])
def test_contributions_run_the_works_that_nobody_has_run(keys):
    assert units(LocalJob(two_works(*keys))) == [4, 5]
    batched = next((place for place, key in enumerate(keys) if key is None), 2)
    results = [20, 40][:batched]
    works, job = finished(LocalJob(two_works(*keys)).batched(), *results)
    assert [work.runs for work in works] == [0] * batched
    number = (results[-1] if results else 1) * 2 ** (2 - batched)
    assert units(job) == [number, number + 1]


def test_blocks_of_a_plain_iterator_need_no_work():
    works, job = finished(LocalJob(iter([block(1), block(2)])).batched())
    assert works == []
    assert units(job) == [1, 2]
    assert units(finished(LocalJob(iter(())).batched())[1]) == []


@pytest.mark.parametrize("changes", [1, 2])
def test_changes_see_blocks_and_let_works_pass(changes):
    job = LocalJob(two_works("a"))
    for _ in range(changes):
        job = job.map(lambda found: None if 3 in found.units else block(found.units[0] * 10))
    [work], job = finished(job.batched(), 2)
    assert work.runs == 0
    assert units(job) == [2 * 10**changes]
