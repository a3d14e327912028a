"""What is written behind the rounds."""

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from fedpriv.runs.background_writer import BackgroundWriter, SharedWriters


def test_the_newest_of_those_that_wait_is_done():
    done, started, run_or_resume = [], threading.Event(), threading.Event()

    def first():
        started.set()
        run_or_resume.wait(10)
        done.append(1)

    with BackgroundWriter() as writer:
        writer.submit(first)
        started.wait(10)
        for number in (2, 3, 4):
            writer.submit(lambda number=number: done.append(number))
        assert done == []
        run_or_resume.set()
    assert done == [1, 4]


@pytest.fixture
def now(monkeypatch):
    """The seconds of the clock, in a list."""
    now = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr("fedpriv.runs.background_writer.time", clock)
    return now


def test_a_job_that_comes_too_soon_waits_for_a_later_one_or_the_end(now):
    done = []

    def submit(number):
        written = threading.Event()
        writer.submit(lambda: (done.append(number), written.set()))
        return written

    with BackgroundWriter(every=5.0) as writer:
        assert submit(1).wait(10)
        now[0] = 4.0
        submit(2)
        submit(3)
        assert done == [1]
        now[0] = 5.0
        assert submit(4).wait(10)
        submit(5)
    assert done == [1, 4, 5]


def test_runs_that_share_threads_have_their_turn_less_often(now):
    done = []
    with (
        ThreadPoolExecutor(1) as pool,
        BackgroundWriter(SharedWriters(pool, runs=7), every=5.0) as writer,
    ):
        for now[0], number in ((0.0, 1), (34.0, 2), (35.0, 3)):
            writer.submit(lambda number=number: done.append(number))
            pool.submit(lambda: None).result(10)
        assert done == [1, 3]


def test_a_failure_is_not_hidden_by_a_job_that_waits():
    def fails():
        failed.set()
        raise OSError("disk full")

    failed, writer = threading.Event(), BackgroundWriter(every=60)
    writer.submit(lambda: None)
    writer.finish()
    writer.submit(fails)
    with pytest.raises(OSError, match="disk full"):
        writer.finish()
    with pytest.raises(OSError, match="disk full"):
        writer.submit(lambda: None)


def test_everything_is_done_when_it_is_left_by_an_error():
    done = []

    def interrupted():
        with BackgroundWriter() as writer:
            writer.submit(lambda: done.append(1))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert done == [1]
