"""Several faults at once, in every exchange of every aggregation."""

import random

import pytest

from fedpriv.testing.damage import flip_bit
from fedpriv.testing.fault_trials import FaultTrials
from fedpriv.testing.faults import alter, delay, drop, duplicate, forge
from scripts.fault_scenarios import SCENARIOS

pytestmark = pytest.mark.slow
TRIALS = 12


def drawn_fault(chance, everybody):
    where = {
        "exchange": chance.randint(0, 3),
        "sender": chance.choice(everybody),
        "step": chance.choice([None, *range(9)]),
    }
    seed = chance.random()
    kinds = (
        lambda: alter(lambda message: flip_bit(random.Random(seed), message), **where),
        lambda: forge(lambda content: (content, 0), **where),
        lambda: delay(chance.randint(1, 5), **where),
        lambda: drop(**where),
        lambda: duplicate(**where),
    )
    return chance.choice(kinds)()


@pytest.mark.parametrize("name", SCENARIOS)
def test_two_to_four_faults_give_no_wrong_sum_and_no_other_error(name, chance):
    with FaultTrials(SCENARIOS[name].experiment()) as bench:
        everybody = (*bench.prepared.aggregation.helpers, *bench.prepared.silos)
        for _ in range(TRIALS):
            faults = [drawn_fault(chance, everybody) for _ in range(chance.randint(2, 4))]
            trial = bench.run(faults, (1, 2))
            assert trial.crash is None
            assert bench.is_correct(trial)
