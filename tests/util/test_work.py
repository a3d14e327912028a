"""Work that is done at once, before it is asked for, or with others' of its kind."""

import pytest
from works import Doubled

from fedpriv.util import work as work_module
from fedpriv.util.work import (
    collected_by,
    run_all,
    run_grouped,
    run_work,
)


class Other(Doubled):
    pass


def test_results_come_in_the_order_of_the_works_with_their_part_of_the_time(monkeypatch):
    clock = iter([0.0, 3.0, 10.0, 14.0, 20.0, 21.0])
    monkeypatch.setattr(work_module.time, "perf_counter", lambda: next(clock))
    works = [Doubled(1), Other(2), Doubled(3), Doubled(4, "another"), Doubled(5)]
    made = run_grouped(works)
    assert made == [2, 4, 6, 8, 10]
    assert [work.seconds for work in works] == [1.0, 4.0, 1.0, 1.0, 1.0]


def test_a_gatherer_is_asked_for_all_of_it():
    asked = []

    class WorkCollector:
        def ask(self, works):
            asked.append(len(works))
            return ["asked" for _ in works]

    works = [Doubled(1), Doubled(2)]
    assert run_all(works) == [2, 4]
    with collected_by(WorkCollector()):
        assert run_all(works) == ["asked"] * 2
        assert run_work(works[0]) == "asked"
        assert run_work(Doubled(3, batch_key=None)) == 6
    assert asked == [2, 1]
    assert run_work(works[0]) == 2


class Missing(Doubled):
    @classmethod
    def run_batch(cls, works):
        return [2]


def test_a_result_that_is_missing_is_noticed():
    with pytest.raises(ValueError, match="shorter"):
        run_grouped([Missing(1), Missing(2)])
