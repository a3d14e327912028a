"""What is measured on demand on the silos' training records."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedpriv.data.silo import SiloData
from fedpriv.errors import ConfigError
from fedpriv.papers.objective import Objective
from fedpriv.runtime import prepare
from fedpriv.testing.experiments import experiment
from fedpriv.training.vectors import flatten

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


def test_no_excess_risk_is_left_at_a_known_optimum():
    """Of logistic regression by L-BFGS, with so little strong convexity that it does not show."""
    with prepare(experiment(*WORDS)) as prepared:
        objective = Objective(prepared.silo_data, prepared.model, prepared.evaluation.task, 1e-4)
        best = objective.optimum(prepared.state.params)
    value = best.value - 1e-4 / 2 * best.theta @ best.theta
    with prepare(experiment(*WORDS, "evaluate_training=true", f"optimum={value}")) as prepared:
        state = prepared.state.with_params(best.theta, output=best.theta)
        start, end = prepared.evaluate(prepared.state), prepared.evaluate(state)
    assert start["excess_risk"] > 0.1
    assert abs(end["excess_risk"]) < 1e-5


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
