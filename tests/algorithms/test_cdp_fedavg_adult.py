"""CDP-FedAvg on the census records of the published experiments."""

import pytest

from fedpriv.runtime import prepare
from fedpriv.testing import experiment


def accuracy(root, *words):
    exp = experiment("data=adult", f"data.root={root}", *words)
    with prepare(exp) as prepared:
        assert prepared.plan.federation.silo_records == (2441,) * 16
        state = prepared.state
        for round in range(1, exp.options.rounds + 1):
            state = prepared.run_round(prepared.queries(round), state).state
        return prepared.evaluate(state)["accuracy"]


@pytest.mark.slow
def test_logistic_regression_without_noise_passes_84_percent(real_root):
    plain = (
        "algo=cdp_fedavg",
        "mechanism=none",
        "algo.calibration=given",
        "algo.cohort=10",
        "algo.local_lr=0.5",
    )
    assert accuracy(real_root, *plain, "rounds=20") > 0.84


@pytest.mark.slow
def test_several_local_steps_beat_dp_sgd_at_equal_certified_epsilon(real_root):
    """Hu et al., Fig. 5: within 20 rounds, both at certified epsilon 10 against the server."""
    settings = (
        "rounds=20",
        "accountant.delta=1e-4",
        "algo.cohort=10",
        "algo.batch_size=244",
        "algo.clip=2",
    )
    settings += ("algo.local_lr=0.5", "algo.feature_norm=2.645")
    ours, baseline = (
        accuracy(real_root, f"algo={name}", *settings) for name in ("cdp_fedavg", "dp_sgd")
    )
    assert ours > 0.84
    assert ours > baseline + 0.005
