import numpy as np
import pytest
import torch
from plans import plan_for

from fedpriv.aggregation.base import SERVER, AggregationAborted
from fedpriv.aggregation.plain import Plain
from fedpriv.algorithms.base import Contributions, Update
from fedpriv.engines.faults import Faulty, alter, delay, drop, duplicate
from fedpriv.engines.inprocess import InProcess
from fedpriv.engines.traffic import Traffic

SILOS = ("silo0", "silo1", "silo2")


def plain_sum(*faults, log=None):
    """One round of the plain sum over three silos with one unit each, under a network with faults."""
    memory = {name: {"weights": np.full(1, 1 / 3)} for name in SILOS} | {SERVER: {}}
    updates = {
        name: Update(iter([Contributions(np.array([0]), torch.full((1, 2), 3.0**i).double())]), np.zeros(2))
        for i, name in enumerate(SILOS)
    }
    parties = Plain().exchange(plan_for(Plain(), 3), updates, memory)
    return Faulty(InProcess(), faults).run(parties, log)[SERVER].vector


def test_without_faults_nothing_changes():
    np.testing.assert_allclose(plain_sum(), [13 / 3, 13 / 3])


@pytest.mark.parametrize("fault", [drop(sender="silo1"), delay(1, sender="silo1", step=0)], ids=["lost", "late"])
def test_a_missing_message_ends_the_round_without_a_sum(fault):
    with pytest.raises(AggregationAborted, match="silo1"):
        plain_sum(fault)


def test_everybody_late_is_in_time():
    np.testing.assert_array_equal(plain_sum(delay(3, receiver=SERVER)), plain_sum())


def test_everybody_lost_ends_the_round():
    with pytest.raises(AggregationAborted, match="silo0, silo1, silo2"):
        plain_sum(drop())


def test_a_duplicate_is_harmless():
    np.testing.assert_array_equal(plain_sum(duplicate()), plain_sum())


def test_the_plain_sum_believes_an_altered_message():
    """Nothing in the clear is authenticated: the fault is felt, and only its target's part of the sum."""
    np.testing.assert_allclose(plain_sum(alter(lambda v: v + 10, sender="silo2")), plain_sum() + 10)
    np.testing.assert_array_equal(plain_sum(alter(lambda v: v + 10, sender="silo2", step=1)), plain_sum())


def test_what_is_sent_is_counted_whether_or_not_it_arrives():
    sent, lossy = Traffic(), Traffic()
    plain_sum(duplicate(sender="silo0"), log=sent)
    with pytest.raises(AggregationAborted):
        plain_sum(drop(sender="silo0"), log=lossy)
    assert sent.bytes == lossy.bytes
    assert sent.messages == {SERVER: 0, **dict.fromkeys(SILOS, 1)}


def listener(steps):
    heard = []
    for _ in range(steps):
        heard.append((yield {}))
    return heard


def teller(*messages):
    for message in messages:
        yield {"listener": message, "teller": "go on"}


def test_a_late_letter_comes_after_newer_ones_and_loses_to_one_in_the_same_step():
    def heard(*faults):
        engine = Faulty(InProcess(), faults)
        return engine.run({"teller": teller(1, 2, 3), "listener": listener(3)})["listener"]

    told = [{"teller": 1}, {"teller": 2}, {"teller": 3}]
    assert heard() == told
    assert heard(delay(1, step=0, receiver="listener")) == [{"teller": 2}, {"teller": 3}, {}]
    assert heard(delay(9, step=0, receiver="listener")) == [{"teller": 2}, {"teller": 3}, {"teller": 1}]
    assert heard(duplicate(step=2, receiver="listener")) == told
    assert heard(duplicate(step=1), drop(step=2)) == [{"teller": 1}, {"teller": 2}, {"teller": 2}]


def test_the_first_fault_that_fits_decides():
    engine = Faulty(InProcess(), (drop(step=0, receiver="listener"), alter(str, receiver="listener")))
    assert engine.run({"teller": teller(1, 2), "listener": listener(2)})["listener"] == [{"teller": "2"}, {}]
