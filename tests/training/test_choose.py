"""The rule that picks the road."""

import numpy as np
import torch
from torch import nn

from fedpriv.tasks import Classification
from fedpriv.training import flatten
from fedpriv.training.choose import choose
from fedpriv.training.size import measure


def roads(model, shape, rows):
    chosen = choose(model, flatten(model), shape, Classification(), np.asarray(rows), torch.Generator())
    assert sorted(np.concatenate([users for _, users in chosen])) == list(range(len(rows)))
    return {type(road).__name__: users.tolist() for road, users in chosen}


def test_known_chains_are_stacked():
    assert list(roads(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), (4,), [64] * 3)) == ["Stacked"]


def test_others_are_mapped_when_small_and_looped_when_large():
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    assert list(roads(model, (4,), [64] * 6)) == ["Vmapped"]
    assert list(roads(model, (4,), [64] * 5)) == ["Loop"]  # too few to pay for vmap
    assert roads(model, (4,), [10**6, 10**6, *[9] * 6]) == {"Vmapped": [2, 3, 4, 5, 6, 7], "Loop": [0, 1]}
    wide = nn.Sequential(nn.Linear(500, 500), nn.Tanh(), nn.Linear(500, 2))
    assert list(roads(wide, (500,), [1] * 50)) == ["Loop"]


def test_size_of_the_published_cnn():
    from fedpriv.models.cnn import MnistCnn

    size = measure(MnistCnn([10, 20], 50, 0.5).build((1, 28, 28), 10), (1, 28, 28))
    assert size.parameters == 21840
    # 10 x 24 x 24 x 25 + 20 x 8 x 8 x 250 + 320 x 50 + 50 x 10 multiply-adds
    assert size.products == 144_000 + 320_000 + 16_000 + 500
