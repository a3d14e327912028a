"""What models are evaluated on, against plain arithmetic."""

import numpy as np
import pytest
import torch

from fedpriv.data.base import Records
from fedpriv.models.tasks import BinaryClassification
from fedpriv.runtime.evaluation import Evaluation

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
