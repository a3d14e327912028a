"""Set-ups that are repeated: after an altered message, and not after mere silence."""

from dataclasses import replace

import pytest
from runs import experiment

from fedpriv.aggregation.private_weighting import server
from fedpriv.aggregation.private_weighting.counts import CountsRefusedError
from fedpriv.engines.inprocess import InProcess
from fedpriv.runtime import prepare
from fedpriv.testing.faults import Faulty, drop, forge

COUNTED = ("algo=uldp_avg", "algo.weighting=records")
PRIVATE = (
    *COUNTED,
    "aggregation=private_weighting",
    "aggregation.key_bits=256",
    "aggregation.precision=16",
    "aggregation.count_cap=4",
    "aggregation.n_max=12",
)


def faulty(words, *faults):
    return replace(experiment(*words), engine=Faulty(InProcess(), faults))


def set_ups(result):
    return sum(
        line["query"] == "setup" and line["step"] == 0 and line["party"] == "silo0"
        for line in result.traffic
    )


def rounds(prepared, numbers, state):
    return [prepared.run_round(prepared.queries(number), state) for number in numbers]


@pytest.mark.parametrize("words", [(*COUNTED, "aggregation=masked"), PRIVATE], ids=str)
def test_a_forged_key_is_found_before_anybody_uses_it(words):
    fault = forge(lambda said: said, exchange=0, phase="keys", receiver="silo1")
    refused = "repeating the set-up: a message of server is refused: the signature is not its own"
    with pytest.warns(RuntimeWarning, match=refused):
        prepared = prepare(faulty(words, fault))
    with prepared:
        results = rounds(prepared, (1, 2), prepared.state)
    assert [result.aborted for result in results] == [None, None]
    assert [set_ups(result) for result in results] == [0, 0]


def test_silence_is_no_reason_for_another_set_up():
    for fault, again in ((drop, 0), (lambda **where: forge(lambda _: b"", **where), 1)):
        where = {"exchange": 1, "phase": "message", "sender": "silo1"}
        with prepare(faulty((*COUNTED, "aggregation=masked"), fault(**where))) as prepared:
            results = rounds(prepared, (1, 2), prepared.state)
        assert "silo1" in results[0].aborted
        assert not results[1].aborted
        assert [set_ups(result) for result in results] == [0, again]


def test_counts_that_are_refused_in_a_later_set_up_end_a_round_and_not_the_run(monkeypatch):
    """Honest counts do not change, so that somebody lies."""

    def refuse(totals):
        raise CountsRefusedError("no silo has a record of user 3")

    with prepare(experiment(*PRIVATE)) as prepared:
        start = prepared.state
        with monkeypatch.context() as patched:
            patched.setattr(server, "refuse_none", refuse)
            prepared.standing.ready = False
            [result] = rounds(prepared, (1,), start)
        assert result.aborted == "no silo has a record of user 3"
        [after] = rounds(prepared, (2,), start)
        assert not after.aborted


def test_counts_that_are_refused_at_the_start_end_the_run():
    with (
        pytest.warns(RuntimeWarning),
        pytest.raises(CountsRefusedError, match="more than 4 records"),
    ):
        prepare(experiment(*PRIVATE, "aggregation.count_cap=null"))


def test_every_set_up_begins_a_session_of_its_own():
    """Messages of an earlier one are strays then, whoever sends them again."""
    with prepare(experiment("aggregation=masked")) as prepared:
        names = []
        for number in (1, 2, 3):
            prepared.set_up(number, [])
            names.append(prepared.standing.session_name)
        assert {len(name) for name in names} == {16}
        assert len(set(names)) == 3
