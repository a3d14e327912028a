"""What is written behind the rounds."""

import threading

import pytest

from fedpriv.behind import Behind


def test_the_newest_of_those_that_wait_is_done():
    done, started, go = [], threading.Event(), threading.Event()

    def first():
        started.set()
        go.wait(10)
        done.append(1)

    with Behind() as behind:
        behind.hand(first)
        started.wait(10)
        for number in (2, 3, 4):
            behind.hand(lambda number=number: done.append(number))
        assert done == []
        go.set()
    assert done == [1, 4]


def test_everything_is_done_when_it_is_left_by_an_error():
    done = []

    def interrupted():
        with Behind() as behind:
            behind.hand(lambda: done.append(1))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert done == [1]


def test_a_failure_comes_to_light():
    def fails():
        raise OSError("disk full")

    behind = Behind()
    behind.hand(fails)
    with pytest.raises(OSError, match="disk full"):
        behind.finish()
    with pytest.raises(OSError, match="disk full"):
        behind.hand(lambda: None)
    with pytest.raises(OSError, match="disk full"):
        behind.__exit__()
