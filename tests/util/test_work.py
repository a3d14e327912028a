"""Work that is done at once, before it is asked for, or with others' of its kind."""

import pytest

from fedpriv.util import work as work_module
from fedpriv.util.work import (
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
    assert made == [-1, -2, -3, -4, -5]
    assert [work.seconds for work in works] == [1.0, 4.0, 1.0, 1.0, 1.0]


def test_a_gatherer_is_asked_for_all_of_it():
    asked = []

    class WorkCollector:
        def ask(self, works):
            asked.append(len(works))
            return ["asked" for _ in works]

    works = [Negated(1), Negated(2)]
    assert run_all(works) == [-1, -2]
    with collected_by(WorkCollector()):
        assert run_all(works) == ["asked"] * 2
        assert run_work(works[0]) == "asked"
        assert run_work(Negated(3, batch_key=None)) == -3
    assert asked == [2, 1]
    assert run_work(works[0]) == -1


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
