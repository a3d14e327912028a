"""What a silo's optimiser remembers survives a round if it is asked to, and starts afresh
otherwise."""

import numpy as np
import pytest
import torch

from fedpriv.errors import ConfigError
from fedpriv.runtime import prepare
from fedpriv.testing import experiment
from fedpriv.testing.experiments import SMALL

ORACLES = {
    "adam": (("optimizer=adam",), lambda params: torch.optim.Adam(params, lr=0.05)),
    "rmsprop": (("optimizer=rmsprop",), lambda params: torch.optim.RMSprop(params, lr=0.05)),
    "momentum": (
        ("optimizer=sgd", "optimizer.momentum=0.9"),
        lambda params: torch.optim.SGD(params, 0.05, 0.9),
    ),
}
ONE = (*SMALL, "device=cpu", "preset.n_silos=1", "algo.local_lr=0.05", "algo.local_epochs=3")
"""One silo, all of its records in a batch: federated averaging is then plain training."""


def after_two_rounds(*words):
    with prepare(experiment(*ONE, *words)) as prepared:
        state = prepared.state
        for number in (1, 2):
            state = prepared.run_round(prepared.queries(number), state).state
        return state.params, prepared


@pytest.mark.parametrize(
    ("name", "algo", "model"),
    [*((name, "fedavg", "mlp") for name in ORACLES), ("adam", "fedprox", "linear")],
)
def test_two_rounds_are_one_long_training(name, algo, model):
    words, optimizer_of = ORACLES[name]
    words = (
        *words,
        f"algo={algo}",
        f"model={model}",
        *(["algo.proximal=0"] if algo == "fedprox" else []),
    )
    found, prepared = after_two_rounds(*words, "algo.keep_optimizer=true")
    module, [data] = prepared.model, prepared.silo_data
    optimizer = optimizer_of(module.parameters())
    for _ in range(6):
        optimizer.zero_grad()
        loss = prepared.evaluation.task.loss(
            module(data.x), data.y, torch.full((len(data.y),), 1 / len(data.y))
        )
        loss.backward()
        optimizer.step()
    expected = torch.cat([p.detach().reshape(-1) for p in module.parameters()]).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)
    fresh, _ = after_two_rounds(*words)
    assert np.abs(fresh - found).max() > 1e-3


def test_an_optimiser_without_memory_has_nothing_to_keep():
    with pytest.raises(
        ConfigError, match="keep_optimizer=True: false with an optimiser without slots"
    ):
        experiment(*ONE, "algo=fedavg", "algo.keep_optimizer=true")
