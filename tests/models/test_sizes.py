"""Parameter counts and architectures of the published networks."""

import pytest
import torch
from runs import experiment
from torch import nn

from fedpriv.errors import ConfigError
from fedpriv.models.char_gru import CharGru
from fedpriv.models.cnn import CifarCnn, MnistCnn
from fedpriv.models.linear import Linear
from fedpriv.models.mlp import Mlp
from fedpriv.models.resnet import ResNet18

CREDITCARD = Mlp(hidden=[30] * 5, norm=True, dropout=0.5)
MNIST = MnistCnn(channels=[10, 20], hidden=50, dropout=0.5)
CIFAR = CifarCnn(channels=[6, 16], hidden=[120, 84])


@pytest.mark.parametrize(
    ("model", "shape", "outputs", "parameters"),
    [
        (
            CREDITCARD,
            (30,),
            2,
            5012,
        ),  # Kato et al., Uldp-FL: "about 4K" in the text, 5012 in the published script
        (MNIST, (1, 28, 28), 10, 21840),
        (CIFAR, (3, 32, 32), 10, 62006),  # Lowy et al., as the next two
        (Mlp([64], norm=False, dropout=0.0), (50,), 2, 3394),
        (Mlp([5], norm=False, dropout=0.0), (30,), 2, 167),
        (
            CifarCnn([32, 64], [512], [5, 2]),
            (1, 28, 28),
            10,
            833930,
        ),  # Jeon et al., SecureD-FL, as the next two
        (CharGru(100, 128), (80,), 87, 108243),
        (ResNet18(), (3, 32, 32), 10, 11181642),
        (Linear(), (13,), 1, 14),  # heart disease
        (Linear(), (39,), 1, 40),  # TCGA-BRCA
        (Mlp([32], norm=False, dropout=0.0), (64,), 10, 64 * 32 + 32 + 32 * 10 + 10),
        (Linear(bias=False), (2, 3), 4, 24),
    ],
)
def test_parameter_counts(model, shape, outputs, parameters):
    assert sum(p.numel() for p in model.build(shape, outputs).parameters()) == parameters
    assert model.size(shape, outputs) == parameters


def test_creditcard_blocks():
    kinds = [type(layer) for layer in CREDITCARD.build((30,), 2)]
    block = [nn.Linear, nn.ReLU, nn.GroupNorm]
    assert kinds == block + 4 * [*block, nn.Dropout] + [nn.Linear]


@pytest.mark.parametrize(
    ("model", "shape", "layers"),
    [
        (
            MNIST,
            (1, 28, 28),
            "Conv2d MaxPool2d ReLU Conv2d Dropout2d MaxPool2d ReLU Flatten "
            "Linear ReLU Dropout Linear",
        ),
        (
            CIFAR,
            (3, 32, 32),
            "Conv2d ReLU MaxPool2d Conv2d ReLU MaxPool2d Flatten Linear ReLU Linear ReLU Linear",
        ),
    ],
)
def test_layers_of_convolutional_networks(model, shape, layers):
    assert [type(layer).__name__ for layer in model.build(shape, 10)] == layers.split()


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 31, 26)])
def test_images_of_other_sizes(shape):
    assert CIFAR.build(shape, 10)(torch.randn(2, *shape)).shape == (2, 10)
    assert MNIST.build((3, 32, 40), 10)(torch.randn(2, 3, 32, 40)).shape == (2, 10)


@pytest.mark.parametrize(
    ("build", "key"),
    [
        (lambda: Mlp([30, 0], True, 0.5), "model.hidden"),
        (lambda: Mlp([30], True, 1.0), "model.dropout"),
        (lambda: CifarCnn([6], [120, 84]), "model.channels"),
        (lambda: CifarCnn([6, 16], [120, 0]), "model.hidden"),
        (lambda: CifarCnn([6, 16], [120], [5]), "model.kernels"),
        (lambda: CharGru(0, 5), "model.embedding"),
        (lambda: CharGru(5, 0), "model.hidden"),
        (lambda: MnistCnn([10], 50, 0.5), "model.channels"),
        (lambda: MnistCnn([10, 20], 0, 0.5), "model.hidden"),
        (lambda: MnistCnn([10, 20], 50, -0.1), "model.dropout"),
    ],
)
def test_impossible_values_are_refused(build, key):
    with pytest.raises(ConfigError, match=key):
        build()


@pytest.mark.parametrize(
    ("words", "reads"),
    [
        (["model=char_gru"], "measurements"),
        (["data=shakespeare", "model=linear", "allocator.n_users=20"], "characters"),
    ],
)
def test_networks_for_characters_and_for_measurements_are_told_apart(words, reads):
    """Before data are read."""
    with pytest.raises(ConfigError, match=f"a network that reads {reads}"):
        experiment(*words)
