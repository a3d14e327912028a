import numpy as np
import pytest
import torch

from fedpriv.errors import ConfigError
from fedpriv.models.bounded_linear import BoundedLinear
from fedpriv.models.linear import Linear
from fedpriv.models.tasks import BinaryClassification, Classification
from fedpriv.training.vectors import flatten, load

LOSSES = {
    "one logit": (1, BinaryClassification(), 0.25),
    "two classes": (2, Classification(), 0.5),
    "weights of classes": (2, Classification(factors=(0.5, 10.0)), 5.0),
}
"""Outputs, task, largest second derivative of the loss in the outputs."""


def hessian(model, theta, x, y, task):
    """Of one record's loss at `theta` (d,), by autograd, (d, d)."""

    def loss(vector):
        size = model[-1].in_features * model[-1].out_features
        weight, bias = vector[:size].view(model[-1].out_features, -1), vector[size:]
        outputs = torch.nn.functional.linear(model[:-1](x), weight, bias if len(bias) else None)
        return task.loss(outputs, y, torch.ones(1))

    return torch.autograd.functional.hessian(loss, theta)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", LOSSES)
def test_no_record_curves_the_loss_more_than_its_public_bound(name, bias):
    """Records of any length, at random parameters; the bound is reached at the origin."""
    outputs, task, curvature = LOSSES[name]
    config, largest = BoundedLinear(bias=bias, input_norm=1.5), 0.0
    model = config.build((4,), outputs)
    bound = curvature * config.score_norm(np.inf) ** 2
    for seed in range(30):
        rng = torch.Generator().manual_seed(seed)
        theta = torch.randn(config.size((4,), outputs), generator=rng) * (seed % 3)
        x = torch.randn(1, 4, generator=rng) * 10 ** (seed % 4 - 1)
        y = torch.tensor([seed % 2]) if outputs == 2 else torch.tensor([float(seed % 2)])
        largest = max(
            largest, float(torch.linalg.eigvalsh(hessian(model, theta, x, y, task)).max())
        )
    assert largest <= bound * (1 + 1e-5)
    assert largest == pytest.approx(bound, rel=1e-4)


def test_short_records_pass_and_long_ones_keep_their_direction():
    model = BoundedLinear(input_norm=2.0).build((3,), 2)
    x = torch.tensor([[1.0, 0.5, -1.0], [0.0, 0.0, 0.0], [30.0, 0.0, -40.0]])
    torch.testing.assert_close(
        model[0](x), torch.tensor([[1.0, 0.5, -1.0], [0.0, 0.0, 0.0], [1.2, 0.0, -1.6]])
    )


def test_within_the_ball_it_is_the_plain_linear_model():
    plain, bounded = Linear().build((3,), 2), BoundedLinear(input_norm=100.0).build((3,), 2)
    load(bounded, flatten(plain))
    x = torch.randn(5, 3)
    torch.testing.assert_close(bounded(x), plain(x))


@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan")])
def test_impossible_bounds(value):
    with pytest.raises(ConfigError, match=r"model\.input_norm"):
        BoundedLinear(input_norm=value)
