"""Work that is done at once, before it is asked for, or with others' of its kind."""

from weakref import ref

import pytest

from fedpriv.util import work as work_module
from fedpriv.util.work import (
    DeferredWork,
    Result,
    Work,
    WorkList,
    collected_by,
    run_all,
    run_grouped,
    run_work,
)


class Negated(Work):
    def __init__(self, number, batch_key="negated"):
        self.number, self._key, self.runs = number, batch_key, 0

    @property
    def batch_key(self):
        return self._key

    def run(self):
        self.runs += 1
        return -self.number

    @classmethod
    def run_batch(cls, works):
        return [-work.number for work in works]


class Other(Negated):
    pass


def test_results_come_in_the_order_of_the_works_with_their_part_of_the_time(monkeypatch):
    clock = iter([0.0, 3.0, 10.0, 14.0, 20.0, 21.0])
    monkeypatch.setattr(work_module.time, "perf_counter", lambda: next(clock))
    works = [Negated(1), Other(2), Negated(3), Negated(4, "another"), Negated(5)]
    made = run_grouped(works)
    assert [one.value for one in made] == [-1, -2, -3, -4, -5]
    assert [one.seconds for one in made] == [1.0, 4.0, 1.0, 1.0, 1.0]


def test_a_gatherer_is_asked_for_all_of_it():
    asked = []

    class WorkCollector:
        def ask(self, works):
            asked.append(len(works))
            return [Result("asked", 1.0) for _ in works]

    works = [Negated(1), Negated(2)]
    assert [made.value for made in run_all(works)] == [-1, -2]
    with collected_by(WorkCollector()):
        assert [made.value for made in run_all(works)] == ["asked"] * 2
        assert run_work(works[0]) == "asked"
        assert run_work(Negated(3, batch_key=None)) == -3
    assert asked == [2, 1]
    assert run_work(works[0]) == -1


def test_work_is_done_when_it_is_asked_for_unless_it_was_before():
    one, two = Negated(1), Negated(1)
    later = DeferredWork(lambda: one)
    assert (later.batchable, later.has_result, later.seconds) == (True, False, 0.0)
    assert later.result() == -1
    assert one.runs == 1
    before = DeferredWork(lambda: two)
    before.set_result(Result("given", 2.0))
    assert before.has_result
    assert before.result() == "given"
    assert (before.has_result, before.seconds, two.runs) == (False, 2.0, 0)
    assert not DeferredWork(lambda: Negated(1, batch_key=None)).batchable


@pytest.mark.parametrize("given", [False, True])
def test_work_is_made_when_it_is_needed_and_let_go_of_when_it_is_done(given):
    """Else a silo's copies of records and buffers wait for the end of the query."""
    made = []

    def make():
        work = Negated(1)
        made.append(ref(work))
        return work

    deferred = DeferredWork(make)
    assert made == []
    assert deferred.batchable
    assert deferred.work is deferred.work
    if given:
        deferred.set_result(Result(-1, 0.0))
    else:
        assert deferred.result() == -1
    [work] = made
    assert work() is None
    assert not given or deferred.result() == -1
    with pytest.raises(RuntimeError, match="twice"):
        deferred.result()


def test_several_are_one_to_whoever_waits():
    one, two = WorkList([Negated(1), Other(2)]), WorkList([Negated(3), Other(4)])
    assert one.batch_key == two.batch_key != WorkList([Negated(1), Negated(2)]).batch_key
    assert WorkList([Negated(1), Negated(2, batch_key=None)]).batch_key is None
    assert one.run() == [-1, -2]
    assert WorkList.run_batch([one, two]) == [[-1, -2], [-3, -4]]
    assert WorkList.run_batch([WorkList([Negated(1), Negated(2)]), WorkList([]), one]) == [
        [-1, -2],
        [],
        [-1, -2],
    ]


def test_a_result_that_is_missing_is_noticed(monkeypatch):
    monkeypatch.setattr(Negated, "run_batch", classmethod(lambda cls, works: [-1]))
    with pytest.raises(ValueError, match="shorter"):
        run_grouped([Negated(1), Negated(2)])
