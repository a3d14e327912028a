"""Trainers whose optimiser goes on from what it remembered: two trainings are one long one,
whichever trainer it is."""

import numpy as np
import pytest
import torch
from torch import nn

from fedpriv.data.silo import SiloData
from fedpriv.models.tasks import Classification
from fedpriv.training.batches import TrainingUsers
from fedpriv.training.cost import known_cost
from fedpriv.training.description import Recipe
from fedpriv.training.optimizers import Adam, RmsProp, Sgd
from fedpriv.training.trainers.base import LocalProblem
from fedpriv.training.trainers.batched import batched
from fedpriv.training.trainers.plain import Plain
from fedpriv.training.vectors import flatten

OPTIMIZERS = [Adam(), RmsProp(momentum=0.5), Sgd(momentum=0.9)]
TRAINERS = {"batched": batched, "plain": Plain}


def data():
    torch.manual_seed(0)
    return SiloData(torch.randn(12, 5), torch.randint(3, (12,)), np.array([4]), np.array([0, 12]))


def problem_of(optimizer, epochs, start=None):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))
    recipe = Recipe(epochs, None, 0.05, optimizer)
    start = flatten(model) if start is None else start
    return LocalProblem(
        model, known_cost(model, (5,), torch.float32), (5,), Classification(), recipe, start
    )


def user():
    return TrainingUsers(data(), np.array([0]), 12, None, np.array([7], dtype=np.uint64))


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda optimizer: type(optimizer).__name__)
@pytest.mark.parametrize("name", TRAINERS)
def test_two_trainings_are_one(name, optimizer):
    first = TRAINERS[name](problem_of(optimizer, 2))
    change, kept = first.run(user(), {})
    memory = {slot: value[0].numpy() for slot, value in kept.items()}
    d = len(first.problem.start)
    assert {value.shape for slot, value in memory.items()} <= {(d,), (1,)}
    middle = first.problem.start + change[0]
    second = TRAINERS[name](problem_of(optimizer, 3, middle))
    end = middle + second.run(user(), memory)[0][0]
    whole = TRAINERS[name](problem_of(optimizer, 5))
    expected = whole.problem.start + whole.run(user(), None)[0][0]
    torch.testing.assert_close(end, expected, rtol=1e-4, atol=1e-6)
    fresh = TRAINERS[name](problem_of(optimizer, 3, middle))
    assert (middle + fresh.run(user(), {})[0][0] - expected).abs().max() > 1e-3


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda optimizer: type(optimizer).__name__)
def test_all_trainers_remember_the_same_in_the_same_order(optimizer):
    memories = [own(problem_of(optimizer, 4)).run(user(), {})[1] for own in TRAINERS.values()]
    assert set(memories[0]) == {*optimizer.slots, *optimizer.counters}
    for other in memories[1:]:
        for slot, value in memories[0].items():
            torch.testing.assert_close(other[slot], value, rtol=1e-3, atol=1e-6)


def test_what_is_given_out_is_no_view_of_what_goes_on():
    trainer = batched(problem_of(Adam(), 1))
    kept = trainer.run(user(), {})[1]["mean"]
    before = kept.clone()
    trainer.run(user(), {"mean": before[0].numpy()})
    assert kept.equal(before)
