"""Silos that die at any moment: what the living and the run remember afterwards fits every sum."""

import random
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from fedpriv.runtime import prepare
from fedpriv.testing import experiment
from fedpriv.testing.damage import flip_bit
from fedpriv.testing.deaths import Death, Mortal
from fedpriv.testing.fault_trials import FaultTrials
from fedpriv.testing.faults import alter, delay, drop, duplicate, forge
from scripts.fault_scenarios import STATEFUL, TINY

ROUNDS = (1, 2)


MADE = {
    "drop": lambda rng, where: drop(**where),
    "delay": lambda rng, where: delay(rng.randint(1, 3), **where),
    "duplicate": lambda rng, where: duplicate(**where),
    "alter": lambda rng, where: alter(partial(flip_bit, random.Random(1)), **where),
    "forge": lambda rng, where: forge(lambda content: content, **where),
}


def schedule(rng, parties):
    """Some faults and one or two deaths."""
    faults = []
    for _ in range(rng.randint(0, 2)):
        make = MADE[rng.choice([*MADE])]
        where = {"exchange": rng.randint(0, 4), "sender": rng.choice(parties)}
        faults.append(make(rng, where | {"step": rng.choice([None, *range(8)])}))
    deaths = [
        Death(rng.choice(parties), rng.randint(0, 3), rng.randint(0, 8))
        for _ in range(rng.randint(1, 2))
    ]
    return faults, deaths


def trials_of(name, count, first=0):
    """The trials of a scenario that are wrong, and how many sums there were."""
    wrong, sums = [], 0
    with FaultTrials(STATEFUL[name].experiment()) as bench:
        prepared = bench.prepared
        parties = (*prepared.aggregation.helpers, *prepared.silos)
        for number in range(first, first + count):
            rng = random.Random(f"{name} {number}")
            faults, deaths = schedule(rng, parties)
            trial = bench.run(faults, ROUNDS, deaths)
            sums += len(trial.successes)
            if trial.crash is not None or not bench.is_correct(trial):
                wrong.append((number, deaths, trial))
    return wrong, sums


@pytest.mark.parametrize("name", STATEFUL)
def test_no_death_makes_anybody_remember_something_wrong(name):
    wrong, sums = trials_of(name, 8)
    assert not wrong
    assert sums


@pytest.mark.slow
@pytest.mark.parametrize("name", STATEFUL)
def test_none_of_many_deaths_makes_anybody_remember_something_wrong(name):
    wrong, _ = trials_of(name, 1500 // len(STATEFUL), first=1000)
    assert not wrong


@pytest.mark.parametrize("aggregation", ["plain", "secagg"])
@pytest.mark.parametrize("wake", [2, 3, 9])
def test_a_silo_that_dies_after_its_message_leaves_the_controls_consistent(aggregation, wake):
    """SCAFFOLD's c is the mean of all c_i after every round: a sum whose silo died before it stored
    its own c_i is no sum."""
    exp = experiment(*TINY.split(), "algo=scaffold", f"aggregation={aggregation}")
    engine = Mortal((Death("silo1", exchange=2, wake=wake),))
    aborts = []
    with prepare(replace(exp, engine=engine)) as prepared:
        state = prepared.state
        for number in (1, 2, 3):
            result = prepared.run_round(prepared.queries(number), state)
            aborts.append(result.aborted)
            state = result.state
            own = prepared.session.checkpoints(prepared.silos)
            stored = [prepared.standing.silo_states[name]["control"] for name in prepared.silos]
            np.testing.assert_allclose(state.slots["control"], np.mean(stored, axis=0), atol=1e-7)
            for name, memory in own.items() if result.aborted is None else ():
                np.testing.assert_array_equal(
                    memory["control"], prepared.standing.silo_states[name]["control"]
                )
    assert [abort is None for abort in aborts] == [True, False, True]
