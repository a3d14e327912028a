"""Random schedules of faults for hypothesis, and what every life under one of them must be."""

from __future__ import annotations

import signal
from contextlib import contextmanager

from hypothesis import strategies as st

from fedpriv.testing.fault_trials import FaultTrials
from fedpriv.testing.faults import delay, drop, duplicate
from scripts.fault_scenarios import SCENARIOS

ROUNDS = (1, 2)
LONGEST, LONGEST_BUSY = 900, 60
"""Seconds, and seconds of the processor, after which a life hangs; it takes a tenth of one. A
machine with much else to do may leave a process alone for minutes."""

PARTIES = ("server", "silo0", "silo1", "silo2", "silo3")
somebody = st.none() | st.sampled_from(PARTIES)
places = st.fixed_dictionaries(
    {
        "exchange": st.none() | st.integers(0, 3),
        "step": st.none() | st.integers(0, 11),
        "sender": somebody,
        "receiver": somebody,
    }
)
faults = st.one_of(
    st.tuples(st.just(drop), st.just(()), places),
    st.tuples(st.just(delay), st.tuples(st.integers(1, 4)), places),
    st.tuples(st.just(duplicate), st.just(()), places),
)
schedules = st.lists(faults, min_size=1, max_size=5)
"""Lists of (what happens, how long, to which letters); as plain values, so that a failing one
prints and shrinks."""


def bench(world, engine=None) -> FaultTrials:
    return FaultTrials(
        SCENARIOS[world].experiment(*(() if engine is None else (f"engine={engine}",)))
    )


def check(parties: FaultTrials, schedule) -> str:
    """One life: every sum it learns is right, and it ends as a life may. Returns what became of
    it.
    """
    with ends_in_time():
        life = parties.run(
            [make(*arguments, **where) for make, arguments, where in schedule], ROUNDS
        )
    if life.crash is not None:
        raise life.crash
    assert parties.is_correct(life), life
    assert all(life.aborts.values())
    return f"{len(life.successes)} of {len(ROUNDS)} rounds"


@contextmanager
def ends_in_time():
    """Raises TimeoutError in what hangs."""

    def hangs(*_):
        raise TimeoutError(f"no end within {LONGEST} seconds, or {LONGEST_BUSY} of the processor")

    timers = {
        signal.SIGALRM: (signal.ITIMER_REAL, LONGEST),
        signal.SIGPROF: (signal.ITIMER_PROF, LONGEST_BUSY),
    }
    before = {number: signal.signal(number, hangs) for number in timers}
    for timer, seconds in timers.values():
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for number, (timer, _) in timers.items():
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])
