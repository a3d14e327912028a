"""Many networks at once, bit for bit as one after the other."""

import pytest
import torch
from compiled_sums import without_compiler
from torch import nn

from fedpriv.models.cnn import MnistCnn
from fedpriv.models.linear import Linear
from fedpriv.models.mlp import Mlp
from fedpriv.models.tasks import Classification
from fedpriv.training.clipped import _Sum, clipped_gradients
from fedpriv.training.contributions import ContributionStats
from fedpriv.training.evaluate import Evaluator, Labelled, _Evaluated
from fedpriv.training.layers.mapping import layer_chain
from fedpriv.training.vectors import flatten

NETWORKS = [
    (Mlp([5], False, 0.0), (30,), 2),
    (Mlp([64], False, 0.0), (50,), 2),
    (Linear(), (1, 8, 8), 10),
]
RUNS = 9


@pytest.mark.parametrize("rows", [1, 3, 10, 90])
@pytest.mark.parametrize("network", NETWORKS)
def test_sums_and_evaluations_have_the_bits_of_single_ones(network, rows, monkeypatch):
    without_compiler(monkeypatch)
    config, shape, outputs = network
    torch.manual_seed(rows)
    model, task = config.build(shape, outputs), Classification()
    x, y = torch.randn(rows, *shape), torch.randint(0, outputs, (rows,))
    sums, evaluations = [], []
    for number in range(RUNS):
        theta = flatten(model) + 0.3 * torch.randn(len(flatten(model)))
        gradients = clipped_gradients(model, task, 0.1 + number / 4, shape=shape)
        labels = torch.randint(0, outputs, (rows,))
        sums.append(
            _Sum(gradients, theta, torch.randn(rows, *shape), labels, {}, ContributionStats())
        )
        evaluations.append(_Evaluated(Evaluator(model, task), theta, Labelled(x, y)))
    assert len({work.batch_key for work in sums} | {None}) == 2
    assert len({work.batch_key for work in evaluations} | {None}) == 2
    alone = [work.run() for work in sums]
    tallies = [repr(work.stats) for work in sums]
    for work in sums:
        work.stats.__init__()
    assert all(map(torch.equal, _Sum.run_batch(sums), alone))
    assert [repr(work.stats) for work in sums] == tallies
    assert _Evaluated.run_batch(evaluations) == [work.run() for work in evaluations]


def test_only_networks_without_chance_and_of_linear_layers_are_stacked():
    def stackable(config, shape=(3,)):
        return layer_chain(config.build(shape, 2), shape).stackable

    assert stackable(Mlp([5], False, 0.5))  # it drops nothing in its first block
    assert not stackable(Mlp([5, 5], False, 0.5))
    assert not stackable(Mlp([5], True, 0.0))
    assert not stackable(MnistCnn([2, 3], 4, 0.0), (1, 20, 20))
    in_place = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True), nn.Linear(3, 2))
    assert layer_chain(in_place, (3,)).in_place
    assert not layer_chain(in_place, (3,)).stackable
    assert layer_chain(nn.Sequential(nn.Linear(3, 3), nn.Softmax(0), nn.Linear(3, 2)), (3,)) is None
    twice = nn.Linear(3, 3)
    assert layer_chain(nn.Sequential(twice, nn.ReLU(), twice), (3,)) is None
    one, other = (layer_chain(Mlp([5], False, 0.0).build((3,), n), (3,)) for n in (2, 3))
    assert one.batch_key != other.batch_key


def test_looking_at_a_network_draws_nothing_and_leaves_its_mode():
    torch.manual_seed(3)
    model = Mlp([5, 5], False, 0.5).build((3,), 2)
    model.eval()
    state = torch.get_rng_state()
    assert layer_chain(model, (3,)).draws
    assert torch.equal(torch.get_rng_state(), state)
    assert not model.training
