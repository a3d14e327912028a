"""What models are evaluated on, against plain arithmetic."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedpriv.data.base import Records
from fedpriv.data.silo import SiloData
from fedpriv.errors import ConfigError
from fedpriv.models.tasks import BinaryClassification
from fedpriv.runtime import prepare
from fedpriv.runtime.evaluation import Evaluation
from fedpriv.testing.experiments import experiment
from fedpriv.training.vectors import flatten

X = np.array([[1.0], [-2.0], [3.0], [4.0], [-5.0]], dtype=np.float32)
Y = np.array([1, 1, 0, 1, 0], dtype=np.float32)
SILO = np.array([0, 0, 1, 1, 1])
HELD = Records(X[:2], Y[:2], SILO[1:3])


def evaluation(silo=None, held_out=None):
    model = torch.nn.Linear(1, 1)
    return Evaluation(model, BinaryClassification(), "cpu", Records(X, Y, silo), held_out)


def accuracy(weight, bias, rows=slice(None)):
    return float(((weight * X[rows, 0] + bias > 0) == (Y[rows] > 0.5)).mean())


def test_one_model_sees_all_test_records():
    row = evaluation().row(np.array([1.0, 0.5]))
    assert row["accuracy"] == pytest.approx(accuracy(1.0, 0.5))
    assert "local_accuracy" not in row
    row = evaluation(held_out=HELD).row(np.array([1.0, 0.5]))
    assert row["local_accuracy"] == accuracy(1.0, 0.5, slice(2))


def test_the_models_of_silos_see_their_own_records():
    models = np.array([[1.0, 0.0], [-1.0, 0.5]])
    row = evaluation(silo=SILO, held_out=HELD).row(models)
    own = [accuracy(1.0, 0.0, SILO == 0), accuracy(-1.0, 0.5, SILO == 1)]
    assert own[0] != own[1]
    assert row["accuracy"] == pytest.approx((2 * own[0] + 3 * own[1]) / 5)
    held = [accuracy(1.0, 0.0, slice(0, 1)), accuracy(-1.0, 0.5, slice(1, 2))]
    assert row["local_accuracy"] == pytest.approx(sum(held) / 2)


def test_without_known_silos_each_model_sees_all_records():
    models = np.array([[1.0, 0.0], [-1.0, 0.5]])
    row = evaluation().row(models)
    own = [accuracy(*map(float, model)) for model in models]
    assert row["accuracy"] == pytest.approx(sum(own) / 2)


def test_a_silo_without_test_records_counts_for_nothing():
    models = np.array([[1.0, 0.0], [-1.0, 0.5], [9.0, 9.0]])
    row = evaluation(silo=SILO).row(models)
    assert row == evaluation(silo=SILO).row(models[:2])


# -- what is measured on demand on the silos' training records -------------------------------------


WORDS = (
    "data=breast_cancer_silos",
    "model=linear",
    "algo=minibatch_sgd",
    "algo.calibration=given",
    "rounds=2",
    "device=cpu",
)
L1 = ("algo.prox=l1", "algo.prox_size=0.1", "algo.global_lr=0.25")


def row(*words):
    with prepare(experiment(*WORDS, *words)) as prepared:
        return prepared.evaluate(prepared.state), prepared


def test_nothing_is_measured_unless_asked_for():
    assert set(row()[0]) == {"loss", "accuracy", "balanced_accuracy", "error"}


def test_the_mapping_is_the_gradient_where_nothing_is_penalised():
    found, _ = row("evaluate_training=true")
    assert found["mapping_norm"] == pytest.approx(found["gradient_norm"], rel=1e-6)
    assert "excess_risk" not in found


def test_the_mapping_of_an_l1_penalty():
    """Against soft thresholding by hand, with the gradient by autograd."""
    found, prepared = row("evaluate_training=true", *L1)
    theta = torch.from_numpy(prepared.state.params).float().requires_grad_()
    weight, bias = theta[:60].view(2, 30), theta[60:]
    losses = [
        torch.nn.functional.cross_entropy(silo.x @ weight.T + bias, silo.y)
        for silo in prepared.silo_data
    ]
    gradients = [torch.autograd.grad(loss, theta, retain_graph=True)[0] for loss in losses]
    mean = (gradients[0] + gradients[1]) / 2
    moved = (theta - 0.25 * mean).detach()
    after = moved.sign() * (moved.abs() - 0.25 * 0.1).clamp_min(0)
    assert found["mapping_norm"] == pytest.approx(
        float((theta.detach() - after).norm()) / 0.25, rel=1e-4
    )
    assert found["heterogeneity"] == pytest.approx(
        float((gradients[0] - gradients[1]).norm()) / 2, rel=1e-4
    )
    assert found["train_loss"] == pytest.approx(float(sum(losses).detach()) / 2, rel=1e-5)


def test_excess_risk_is_that_of_loss_and_penalty():
    found, prepared = row("evaluate_training=true", "optimum=0.25", *L1)
    penalty = 0.1 * np.abs(prepared.state.params).sum()
    assert found["excess_risk"] == pytest.approx(found["train_loss"] + penalty - 0.25, rel=1e-6)


def test_an_optimum_that_nobody_looks_at_is_refused():
    with pytest.raises(ConfigError, match=r"optimum=0.5: null, unless evaluate_training=true"):
        experiment(*WORDS, "optimum=0.5")


def test_a_silo_without_training_records_is_in_no_mean():
    """Once a division by zero, which ended a run whose users' records were bounded."""
    with prepare(experiment(*WORDS, "evaluate_training=true")) as prepared:
        whole = prepared.evaluation
        theta = flatten(prepared.model)
        x, y = whole.silos[0].x[:0], whole.silos[0].y[:0]
        empty = SiloData(
            x, y, users=np.empty(0, dtype=np.int64), starts=np.zeros(1, dtype=np.int64)
        )
        beside = replace(whole, silos=[empty, *whole.silos])
        assert whole.training.row(theta, beside) == whole.training.row(theta, whole)
