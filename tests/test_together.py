"""Work that is done at once, before it is asked for, or with others' of its kind."""

from weakref import ref

import pytest

from fedpriv import together
from fedpriv.together import Ahead, Done, Several, Work, all_done, done, gathered_by, in_groups


class Negated(Work):
    def __init__(self, number, kind="negated"):
        self.number, self._kind, self.alone_count = number, kind, 0

    @property
    def kind(self):
        return self._kind

    def alone(self):
        self.alone_count += 1
        return -self.number

    @classmethod
    def together(cls, works):
        return [-work.number for work in works]


class Other(Negated):
    pass


def test_results_come_in_the_order_of_the_works_with_their_part_of_the_time(monkeypatch):
    clock = iter([0.0, 3.0, 10.0, 14.0, 20.0, 21.0])
    monkeypatch.setattr(together.time, "perf_counter", lambda: next(clock))
    works = [Negated(1), Other(2), Negated(3), Negated(4, "another"), Negated(5)]
    made = in_groups(works)
    assert [one.result for one in made] == [-1, -2, -3, -4, -5]
    assert [one.seconds for one in made] == [1.0, 4.0, 1.0, 1.0, 1.0]


def test_a_gatherer_is_asked_for_all_of_it():
    asked = []

    class Gatherer:
        def ask(self, works):
            asked.append(len(works))
            return [Done("asked", 1.0) for _ in works]

    works = [Negated(1), Negated(2)]
    assert [made.result for made in all_done(works)] == [-1, -2]
    with gathered_by(Gatherer()):
        assert [made.result for made in all_done(works)] == ["asked"] * 2
        assert done(works[0]) == "asked"
        assert done(Negated(3, kind=None)) == -3
    assert asked == [2, 1]
    assert done(works[0]) == -1


def test_work_is_done_when_it_is_asked_for_unless_it_was_before():
    one, two = Negated(1), Negated(1)
    later = Ahead(lambda: one)
    assert (later.waits, later.given, later.seconds) == (True, False, 0.0)
    assert later.result() == -1
    assert one.alone_count == 1
    before = Ahead(lambda: two)
    before.give(Done("given", 2.0))
    assert before.given
    assert before.result() == "given"
    assert (before.given, before.seconds, two.alone_count) == (False, 2.0, 0)
    assert not Ahead(lambda: Negated(1, kind=None)).waits


@pytest.mark.parametrize("given", [False, True])
def test_work_is_made_when_it_is_needed_and_let_go_of_when_it_is_done(given):
    """Else a silo's copies of records and buffers wait for the end of the query."""
    made = []

    def make():
        work = Negated(1)
        made.append(ref(work))
        return work

    ahead = Ahead(make)
    assert made == []
    assert ahead.waits
    assert ahead.work is ahead.work
    if given:
        ahead.give(Done(-1, 0.0))
    else:
        assert ahead.result() == -1
    [work] = made
    assert work() is None
    assert not given or ahead.result() == -1
    with pytest.raises(RuntimeError, match="twice"):
        ahead.result()


def test_several_are_one_to_whoever_waits():
    one, two = Several([Negated(1), Other(2)]), Several([Negated(3), Other(4)])
    assert one.kind == two.kind != Several([Negated(1), Negated(2)]).kind
    assert Several([Negated(1), Negated(2, kind=None)]).kind is None
    assert one.alone() == [-1, -2]
    assert Several.together([one, two]) == [[-1, -2], [-3, -4]]
    assert Several.together([Several([Negated(1), Negated(2)]), Several([]), one]) == [[-1, -2], [], [-1, -2]]


def test_a_result_that_is_missing_is_noticed(monkeypatch):
    monkeypatch.setattr(Negated, "together", classmethod(lambda cls, works: [-1]))
    with pytest.raises(ValueError, match="shorter"):
        in_groups([Negated(1), Negated(2)])
