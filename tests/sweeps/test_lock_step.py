"""Jobs that go on side by side."""

import pytest
from works import Doubled

from fedpriv.sweeps.lock_step import LockStep
from fedpriv.util.work import run_work


@pytest.fixture(autouse=True)
def sizes():
    Doubled.sizes.clear()
    return Doubled.sizes


def test_what_all_wait_for_is_done_in_one_go(sizes):
    results = {}

    def job(number):
        first = run_work(Doubled(number))
        batch_key = "even" if number % 2 == 0 else "odd"
        results[number] = first, run_work(Doubled(first, batch_key))

    LockStep([lambda number=number: job(number) for number in range(5)], at_once=10).run()
    assert results == {number: (2 * number, 4 * number) for number in range(5)}
    assert sizes == [5, 3, 2]


def test_no_more_are_on_their_way_than_allowed(sizes):
    LockStep([lambda: run_work(Doubled(1)) for _ in range(5)], at_once=2).run()
    assert sizes == [2, 2, 1]


def test_without_others_or_a_kind_work_is_done_at_once(sizes):
    assert run_work(Doubled(3)) == 6
    LockStep([lambda: run_work(Doubled(1, batch_key=None))], at_once=1).run()
    assert sizes == []


def test_a_job_that_fails_leaves_the_others_alone():
    ended = []

    def fails():
        run_work(Doubled(1))
        raise OSError("full")

    def goes_on():
        for _ in range(3):
            run_work(Doubled(1))
        ended.append(True)

    with pytest.raises(OSError, match="full"):
        LockStep([goes_on, fails, goes_on], at_once=3).run()
    assert ended == [True, True]


def test_an_interrupt_reaches_every_job_and_lets_it_clear_up():
    cleared = []

    class Interrupted(Doubled):
        @classmethod
        def run_batch(cls, works):
            raise KeyboardInterrupt

    def job(number):
        try:
            run_work(Doubled(number))
            run_work(Interrupted(number))
        except KeyboardInterrupt:
            cleared.append(
                (number, run_work(Doubled(number)))
            )  # what it still asks for is done at once
            raise

    with pytest.raises(KeyboardInterrupt):
        LockStep([lambda number=number: job(number) for number in range(3)], at_once=2).run()
    assert cleared == [(0, 0), (1, 2)]
