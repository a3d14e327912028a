"""Trainings of steps of one record, side by side and one after the other."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from fedpriv.models.cnn import MnistCnn
from fedpriv.models.mlp import Mlp
from fedpriv.models.tasks import Classification
from fedpriv.training import record_steps as side_by_side
from fedpriv.training.contributions import ContributionStats
from fedpriv.training.record_steps import RecordSteps
from fedpriv.training.trainers.compile_layers import compile_layers
from fedpriv.util.streams import Streams


class Residual:
    def build(self, shape, outputs):
        return OwnModule(*shape, outputs)


class OwnModule(nn.Module):
    """A residual sum, with parameters that are not in the order of the layers."""

    def __init__(self, width, outputs):
        super().__init__()
        self.last, self.first = nn.Linear(width, outputs), nn.Linear(width, width)

    def forward(self, x):
        return self.last(torch.relu(self.first(x)) + x)


NETWORKS = {
    "residual": (Residual(), (5,)),
    "mlp": (Mlp([6], True, 0.0), (5,)),
    "cnn": (MnistCnn([2, 3], 4, 0.0), (1, 20, 20)),
}
STEPS = 40
"""More than are fetched together."""


def works(name, sick=False):
    """Three settings for each of two seeds, one without noise, and one more that has its noise
    alone."""
    config, shape = NETWORKS[name]
    torch.manual_seed(0)
    links = compile_layers(config.build(shape, 3), shape)
    d = sum(own.numel() for link in links for own in link.module.parameters())
    found = []
    for number, seed in enumerate([0, 1, 0, 1, 0, 1, 2, 3]):
        rng = np.random.default_rng(seed)
        x, y = (
            torch.from_numpy(rng.normal(size=(50, *shape))).float(),
            torch.from_numpy(rng.integers(0, 3, 50)),
        )
        if sick and number == 2:
            x[int(rng.integers(50))] = torch.nan
        noise = None if seed == 2 else Streams(seed).generator("noise", 3, "silo1")
        settings = {"clip": 0.2 + number / 10, "lr": 0.1 + number / 20, "deviation": 0.05 * number}
        common = {
            "task": Classification(),
            "noise": noise,
            "rows": rng.permutation(50)[:STEPS],
            "stats": ContributionStats(),
        }
        found.append(
            RecordSteps(links, theta=0.3 * rng.normal(size=d), x=x, y=y, **settings, **common)
        )
    return found


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("numbers", [1, 2**17])
def test_side_by_side_each_is_as_alone(name, numbers, monkeypatch):
    monkeypatch.setattr(side_by_side, "NUMBERS_AT_ONCE", numbers)
    known, again = works(name, sick=True), works(name, sick=True)
    run, run_batch = [work.run() for work in known], RecordSteps.run_batch(again)
    np.testing.assert_allclose(run_batch, run, rtol=1e-5, atol=1e-6)  # float32 gradients
    for one, other in zip(known, again):
        assert (one.stats.units, one.stats.nonfinite) == (other.stats.units, other.stats.nonfinite)
        assert one.stats.norm_sum == pytest.approx(other.stats.norm_sum, rel=1e-6)
    assert [work.stats.nonfinite for work in again] == [0, 0, again[2].stats.nonfinite, *[0] * 5]
    assert all(np.isfinite(change).all() for change in run_batch)


def test_noise_of_equal_generators_is_drawn_once():
    known = works("mlp")
    states = [None if work.noise is None else str(work.noise.bit_generator.state) for work in known]
    RecordSteps.run_batch(known)
    used = [
        work.noise is not None and str(work.noise.bit_generator.state) != was
        for work, was in zip(known, states)
    ]
    assert sum(used[0:6:2]) == sum(used[1:6:2]) == 1
    assert used[6:] == [False, True]


def test_only_trainings_of_equal_networks_and_lengths_go_together():
    one, other = works("mlp")[:2]
    assert one.batch_key == other.batch_key
    assert replace(one, rows=one.rows[1:]).batch_key != one.batch_key
    assert works("cnn")[0].batch_key != one.batch_key
    wider = compile_layers(Mlp([7], True, 0.0).build((5,), 3), (5,))
    assert replace(one, links=wider).batch_key != one.batch_key
