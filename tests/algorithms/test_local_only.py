"""Local-only training: nothing is sent, every silo goes on with its own model, evaluated on its own
records."""

import numpy as np
import pytest
import torch

from fedpriv.algorithms.local_only import PARAMS
from fedpriv.data.base import Records
from fedpriv.models.tasks import Classification
from fedpriv.runtime import prepare
from fedpriv.runtime.evaluation import Evaluation
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


def test_a_resumed_run_goes_on_from_every_silos_model():
    whole, _, _ = after(2, "optimizer=adam", "algo.keep_optimizer=true")
    words = (*WORDS, "optimizer=adam", "algo.keep_optimizer=true")
    with prepare(experiment(*words)) as prepared:
        state = prepared.run_round(prepared.queries(1), prepared.state).state
        saved = prepared.arrays(state)
    with prepare(experiment(*words), saved) as prepared:
        prepared.run_round(prepared.queries(2), prepared.state)
        np.testing.assert_array_equal(
            prepared.algo.evaluated(prepared.state, prepared.standing.silo_states), whole
        )
        assert set(prepared.standing.silo_states["silo0"]) == {
            PARAMS,
            "optimizer/mean",
            "optimizer/square",
            "optimizer/steps",
        }


def test_each_model_counts_by_its_own_silos_test_records():
    """Two silos: a model that is always right on 3 records, and one that is right on 1 of 5 of its
    own."""
    x = np.array([[1.0], [1.0], [1.0], [1.0], [-1.0], [-1.0], [-1.0], [-1.0]], dtype=np.float32)
    held_out = Records(x, np.ones(8, dtype=np.int64), np.array([0, 0, 0, 1, 1, 1, 1, 1]))
    model = torch.nn.Linear(1, 2, bias=False)
    evaluation = Evaluation(model, Classification(), "cpu", held_out, held_out)
    row = evaluation.row(np.array([[-1.0, 1.0], [-1.0, 1.0]]))
    assert row["local_accuracy"] == pytest.approx(3 / 8 * 1 + 5 / 8 * 1 / 5)
    one = evaluation.row(np.array([[-1.0, 1.0]]))
    assert one["local_accuracy"] == 1
    other = evaluation.row(np.array([[1.0, -1.0], [-1.0, 1.0]]))
    assert other["local_accuracy"] == pytest.approx(5 / 8 * 1 / 5)
