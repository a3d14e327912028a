"""ResNet-18 with the statistics of the batch at hand: what it keeps, and who may train it."""

import pytest
import torch

from fedpriv.errors import ConfigError
from fedpriv.models.batch_statistics import BatchStatistics
from fedpriv.models.resnet import ResNet18
from fedpriv.testing import experiment


def test_it_has_no_buffers_to_send_and_normalises_by_the_batch_in_evaluation_too():
    network = ResNet18().build((3, 32, 32), 10).eval()
    assert list(network.buffers()) == []
    layer = BatchStatistics(4).eval()
    x = 3 + 5 * torch.randn(8, 4, 2, 2)
    y = layer(x)
    torch.testing.assert_close(y.mean((0, 2, 3)), torch.zeros(4), rtol=0, atol=1e-5)
    torch.testing.assert_close(y.var((0, 2, 3), correction=0), torch.ones(4), rtol=1e-3, atol=0)


def test_a_single_value_becomes_the_shift():
    layer = BatchStatistics(3)
    with torch.no_grad():
        layer.bias.copy_(torch.tensor([1.0, 2.0, 3.0]))
    y = layer(torch.randn(1, 3, 1, 1, requires_grad=True))
    assert y.flatten().tolist() == [1.0, 2.0, 3.0]
    y.sum().backward()
    assert layer.bias.grad.tolist() == [1.0] * 3


@pytest.mark.parametrize("algo", ["uldp_avg", "dp_sgd", "minibatch_sgd", "uldp_group_2"])
def test_it_is_refused_before_data_are_read_where_users_or_records_are_bounded(algo):
    with pytest.raises(ConfigError, match="model=resnet18: a network without batch statistics"):
        experiment("data=cifar10_clients", "data.root=/nowhere", f"algo={algo}")


@pytest.mark.parametrize("algo", ["fedavg", "secured_fl", "local_only", "scaffold", "uldp_naive"])
def test_it_is_allowed_where_a_silo_is_bounded_as_a_whole_or_nothing_is(algo):
    assert experiment(
        "data=cifar10_clients", "data.root=/nowhere", f"algo={algo}"
    ).model.mixes_records


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 16, 16), (3, 16, 32), (30,)])
def test_other_records_are_refused(shape):
    with pytest.raises(ConfigError, match="model=resnet18: colour images"):
        ResNet18().size(shape, 10)
