"""Local-only training: nothing is sent, every silo goes on with its own model, evaluated on its own
records."""

import numpy as np
import torch

from fedpriv.runtime import prepare
from fedpriv.testing import experiment
from fedpriv.testing.experiments import SMALL
from fedpriv.training.initial import drawn_weights

WORDS = (
    *SMALL,
    "preset.n_silos=3",
    "algo=local_only",
    "algo.local_epochs=2",
    "preset.batch_size=7",
)


def after(rounds, *words):
    with prepare(experiment(*WORDS, *words)) as prepared:
        state, traffic = prepared.state, []
        for number in range(1, rounds + 1):
            result = prepared.run_round(prepared.queries(number), state)
            assert result.aborted is None
            state = result.state
            traffic += result.traffic
        np.testing.assert_array_equal(state.params, prepared.state.params)
        return prepared.algo.evaluated(state, prepared.standing.silo_states), prepared, traffic


def test_a_silo_goes_on_from_its_own_model_by_plain_gradient_descent():
    """Against a loop of its own: full batches, so that no order of records matters."""
    models, prepared, _ = after(3, "preset.batch_size=100000", "algo.local_lr=0.1")
    for index, (found, data) in enumerate(zip(models, prepared.silo_data)):
        seed = prepared.plan.streams.torch_seed("initial weights", party=f"silo{index}")
        vector = drawn_weights(prepared.model, seed).clone().requires_grad_()
        names = [(name, p.shape, p.numel()) for name, p in prepared.model.named_parameters()]
        for _ in range(3 * 2):
            pieces = torch.split(vector, [size for *_, size in names])
            weights = {name: piece.view(shape) for (name, shape, _), piece in zip(names, pieces)}
            outputs = torch.func.functional_call(prepared.model, weights, (data.x,))
            loss = prepared.evaluation.task.loss(
                outputs, data.y, torch.full((len(data.y),), 1 / len(data.y))
            )
            vector = (vector - 0.1 * torch.autograd.grad(loss, vector)[0]).detach().requires_grad_()
        np.testing.assert_allclose(found, vector.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_no_model_is_sent():
    models, prepared, traffic = after(2)
    assert models.shape == (3, prepared.plan.federation.n_parameters)
    assert len({model.tobytes() for model in models}) == 3
    assert max(row["bytes"] for row in traffic) < 600 < 8 * models.shape[1] * 3
