"""Methods that remember something, stopped after any of their rounds."""

import pytest

from fedpriv.runtime import prepare
from fedpriv.testing import experiment
from fedpriv.testing.experiments import SMALL

ROUNDS = 4
METHODS = {
    "decor": ("algo.batch_size=9", "algo.calibration=given", "algo.noise_multiplier=1"),
    "local_only": ("optimizer=adam", "algo.keep_optimizer=true"),
    "localized_mb_sgd": (
        *("algo.phases=2", "algo.batch_size=9", "algo.calibration=given"),
        "algo.noise_multiplier=1",
    ),
    "mr_mtl": ("algo.batch_size=20",),
    "uldp_opt": ("algo.cycle=2", "algo.rule=momentum", "mechanism=correlated"),
}


@pytest.mark.parametrize("algo", METHODS)
def test_a_run_resumes_to_the_same_bits_after_every_round(algo):
    exp = experiment(*SMALL, f"algo={algo}", *METHODS[algo], f"rounds={ROUNDS}")
    checkpoints = []
    with prepare(exp) as run:
        for number in range(1, ROUNDS + 1):
            checkpoints.append(run.arrays(run.state))
            run.state = run.run_round(run.queries(number), run.state).state
        checkpoints.append(run.arrays(run.state))
    for number, arrays in enumerate(checkpoints[:-1], start=1):
        with prepare(exp, arrays) as resumed:
            resumed.state = resumed.run_round(resumed.queries(number), resumed.state).state
            found = resumed.arrays(resumed.state)
        assert found.keys() == checkpoints[number].keys()
        for name, array in checkpoints[number].items():
            assert found[name].tobytes() == array.tobytes(), (number, name)
