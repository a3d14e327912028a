"""What is written behind the rounds."""

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from fedpriv.behind import Behind, Shared


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


def test_a_job_that_comes_too_soon_waits_for_a_later_one_or_the_end(monkeypatch):
    now, done = [0.0], []
    monkeypatch.setattr("fedpriv.behind.time", SimpleNamespace(monotonic=lambda: now[0]))

    def hand(number):
        written = threading.Event()
        behind.hand(lambda: (done.append(number), written.set()))
        return written

    with Behind(every=5.0) as behind:
        assert hand(1).wait(10)
        now[0] = 4.0
        hand(2)
        hand(3)
        assert done == [1]
        now[0] = 5.0
        assert hand(4).wait(10)
        hand(5)
    assert done == [1, 4, 5]


def test_runs_that_share_threads_have_their_turn_less_often(monkeypatch):
    now, done = [0.0], []
    monkeypatch.setattr("fedpriv.behind.time", SimpleNamespace(monotonic=lambda: now[0]))
    with ThreadPoolExecutor(1) as pool, Behind(Shared(pool, runs=7), every=5.0) as behind:
        for now[0], number in ((0.0, 1), (34.0, 2), (35.0, 3)):
            behind.hand(lambda number=number: done.append(number))
            pool.submit(lambda: None).result(10)
        assert done == [1, 3]


def test_a_failure_is_not_hidden_by_a_job_that_waits():
    def fails():
        failed.set()
        raise OSError("disk full")

    failed, behind = threading.Event(), Behind(every=60)
    behind.hand(lambda: None)
    behind.finish()
    behind.hand(fails)
    with pytest.raises(OSError, match="disk full"):
        behind.finish()
    with pytest.raises(OSError, match="disk full"):
        behind.hand(lambda: None)


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
