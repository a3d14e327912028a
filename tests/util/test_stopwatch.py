import time

from fedpriv.util.stopwatch import Stopwatch


def test_phases_add_up_to_what_went_by():
    watch = Stopwatch()
    since = time.perf_counter()
    for _ in range(2):
        with watch.phase("outer"):
            with watch.phase("inner"):
                time.sleep(0.01)
            watch.add("elsewhere", 5.0)
    elapsed = time.perf_counter() - since
    assert set(watch.seconds) == {"outer", "inner", "elsewhere"}
    assert watch.seconds["inner"] >= 0.02
    assert watch.seconds["elsewhere"] == 10.0
    assert 0.02 <= sum(watch.seconds.values()) <= elapsed
