"""Optimisers on stacks of users, against torch's own on each user."""

import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import torch
import yaml
from hydra.utils import instantiate
from one_by_one import torch_optimizer

from fedpriv.errors import ConfigError
from fedpriv.training.optimizers import Adam, LocalOptimizer, RmsProp, Sgd

CONF = Path(__file__).resolve().parents[2] / "conf" / "optimizer"
OPTIMIZERS = [
    Sgd(),
    Sgd(momentum=0.9),
    Sgd(weight_decay=0.1),
    Sgd(momentum=0.5, weight_decay=0.1),
    RmsProp(),
    RmsProp(alpha=0.8, eps=1e-3, momentum=0.9, weight_decay=0.1),
    Adam(),
    Adam(beta1=0.5, beta2=0.9, eps=1e-3, weight_decay=0.1),
]
SHAPES = [(3, 4), (4,), ()]


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=str)
def test_every_user_takes_the_steps_of_torchs_optimiser(optimizer):
    torch.manual_seed(0)
    stacks = [torch.randn(5, *shape) for shape in SHAPES]
    alone = [[torch.nn.Parameter(stack[user].clone()) for stack in stacks] for user in range(5)]
    oracles = [torch_optimizer(optimizer, parameters, 0.1) for parameters in alone]
    slots = optimizer.init(stacks)
    # Users drop out of a prefix and come back with the next pass: their numbers of steps differ.
    for active in (5, 3, 1, 5, 2, 4):
        gradients = [torch.randn(active, *shape) for shape in SHAPES]
        before = [gradient.clone() for gradient in gradients]
        optimizer.step(stacks, gradients, slots, lr=0.1)
        assert all(torch.equal(gradient, same) for gradient, same in zip(gradients, before))
        for user in range(active):
            for parameter, gradient in zip(alone[user], gradients):
                parameter.grad = gradient[user].clone()
            oracles[user].step()
        for user in range(5):
            for stack, parameter in zip(stacks, alone[user]):
                torch.testing.assert_close(stack[user], parameter.detach(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=str)
def test_slots_are_as_large_as_declared(optimizer):
    slots = optimizer.init([torch.zeros(5, *shape) for shape in SHAPES])
    kept = sum(
        stack[0].numel() for name, stacks in slots.items() if name != "steps" for stack in stacks
    )
    assert kept == len(optimizer.slots) * 17


def test_only_sgd_without_anything_is_plain():
    assert [optimizer for optimizer in OPTIMIZERS if optimizer.plain] == [Sgd()]


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        (Sgd, "momentum", 1.0),
        (Sgd, "momentum", -0.1),
        (Sgd, "weight_decay", -1e-3),
        (RmsProp, "alpha", 1.0),
        (RmsProp, "eps", 0.0),
        (RmsProp, "momentum", float("nan")),
        (RmsProp, "weight_decay", float("inf")),
        (Adam, "beta1", 1.0),
        (Adam, "beta2", -0.5),
        (Adam, "eps", float("nan")),
        (Adam, "weight_decay", -1.0),
    ],
)
def test_impossible_values_are_told_by_their_key(kind, field, value):
    with pytest.raises(ConfigError, match=f"^optimizer.{field}={value}: "):
        kind(**{field: value})


@pytest.mark.parametrize(("name", "kind"), [("sgd", Sgd), ("rmsprop", RmsProp), ("adam", Adam)])
def test_a_configuration_holds_the_fields_and_their_defaults(name, kind):
    config = yaml.safe_load((CONF / f"{name}.yaml").read_text())
    assert set(config) - {"_target_"} == {field.name for field in fields(kind)}
    assert instantiate(config) == kind()


def test_every_configuration_is_an_optimiser():
    found = [instantiate(yaml.safe_load(path.read_text())) for path in sorted(CONF.glob("*.yaml"))]
    assert len(found) == 3
    assert all(isinstance(optimizer, LocalOptimizer) for optimizer in found)


def test_descriptions_need_no_torch():
    code = (
        "import sys; import fedpriv.training, fedpriv.training.description; sys.exit('torch' in "
        "sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
