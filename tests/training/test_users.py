"""Training all users at once equals training them one by one."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from one_by_one import (
    PARTY,
    PROBLEMS,
    ROUND,
    STREAMS,
    assert_same,
    cnn,
    mlp,
    one_by_one,
    silo,
    trained,
)
from torch import nn

from fedpriv.errors import ConfigError
from fedpriv.streams import Streams
from fedpriv.tasks import Classification
from fedpriv.training import LocalSgd, flatten, train_users, users
from fedpriv.training.loop import Loop
from fedpriv.training.size import measure
from fedpriv.training.stacked import Stacked
from fedpriv.training.vmapped import Vmapped

COUNTS = [5, 1, 9, 16, 17, 3, 3, 40, 8]


def stacked(model, theta, shape, task, rows, generator):
    return [(Stacked(model, theta, shape, task, generator), np.arange(len(rows)))]


def vmapped(model, theta, shape, task, rows, generator):
    return [(Vmapped(model, theta, measure(model, shape), task), np.arange(len(rows)))]


def loop(model, theta, shape, task, rows, generator):
    return [(Loop(model, theta, task), np.arange(len(rows)))]


ROADS = {"stacked": stacked, "vmapped": vmapped, "loop": loop}


def problem(name):
    torch.manual_seed(1)
    build, shape, task = PROBLEMS[name]
    model = build()
    return model, flatten(model), silo(COUNTS, shape, task), task


@pytest.mark.parametrize("recipe", [LocalSgd(3, 8, 0.1), LocalSgd(2, 64, 0.1), LocalSgd(2, None, 0.05)], ids=str)
@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("road", ROADS)
def test_every_road_equals_one_by_one(road, name, recipe, monkeypatch):
    monkeypatch.setattr(users, "choose", ROADS[road])
    model, theta, data, task = problem(name)
    got = trained(model, theta, data, task, recipe)
    assert torch.equal(flatten(model), theta)  # the caller's model is only a template
    assert_same(got, one_by_one(model, theta, data, task, recipe), theta)
    assert float(got.norm(dim=1).max()) > 1e-3


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    counts=st.lists(st.integers(1, 200), min_size=1, max_size=8),
    size=st.one_of(st.none(), st.integers(1, 70)),
    epochs=st.integers(1, 3),
    name=st.sampled_from(["mlp", "linear-cox", "linear-binary"]),
)
def test_any_record_counts(counts, size, epochs, name):
    torch.manual_seed(2)
    build, shape, task = PROBLEMS[name]
    model = build()
    theta, data, recipe = flatten(model), silo(counts, shape, task), LocalSgd(epochs, size, 0.01)
    got = trained(model, theta, data, task, recipe)
    assert_same(got, one_by_one(model, theta, data, task, recipe), theta, rows=max(64, *counts))


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_blocks_do_not_change_results(name, monkeypatch):
    model, theta, data, task = problem(name)
    recipe = LocalSgd(2, 8, 0.1)
    want = trained(model, theta, data, task, recipe)
    blocks = []

    def small(*args):
        [(road, indices)] = stacked(*args)
        road.limits = dataclasses.replace(road.limits, budget=3 * road.limits.user_bytes)
        blocks.append(road)
        return [(road, indices)]

    monkeypatch.setattr(users, "choose", small)
    got = list(train_users(model, theta, data, None, task, recipe, STREAMS, ROUND, PARTY))
    assert len(got) > len(COUNTS) // 3
    rows = torch.empty_like(want)
    for block in got:
        rows[block.positions] = block.deltas
    assert_same(rows, want, theta)


@pytest.mark.parametrize("road", ROADS)
def test_a_sample_of_users_trains_as_in_the_full_run(road, monkeypatch):
    monkeypatch.setattr(users, "choose", ROADS[road])
    model, theta, data, task = problem("mlp")
    recipe, positions = LocalSgd(3, 4, 0.1), np.array([7, 0, 4, 1])
    full = trained(model, theta, data, task, recipe)
    assert_same(trained(model, theta, data, task, recipe, positions), full[positions], theta)
    assert list(train_users(model, theta, data, np.array([], int), task, recipe, STREAMS, 0, PARTY)) == []


@pytest.mark.parametrize(
    "build", [lambda: mlp(p=0.3), lambda: cnn(p=0.5), lambda: nn.Sequential(mlp(p=0.5), nn.Tanh())]
)
@pytest.mark.parametrize("counts", [[9], COUNTS], ids=["alone", "many"])
def test_dropout_repeats_bit_for_bit_and_leaves_torch_alone(build, counts):
    torch.manual_seed(3)
    model = build()
    shape = (1, 12, 12) if isinstance(model[0], nn.Conv2d) else (6,)
    theta, task, recipe = flatten(model), Classification(), LocalSgd(2, 8, 0.1)
    data = silo(counts, shape, task)
    before, modes = torch.get_rng_state(), [part.training for part in model.modules()]
    first = trained(model, theta, data, task, recipe)
    assert torch.equal(torch.get_rng_state(), before)
    assert [part.training for part in model.modules()] == modes
    torch.rand(7)
    assert torch.equal(trained(model, theta, data, task, recipe), first)
    other = trained(model, theta, data, task, recipe, round=ROUND + 1)
    assert not torch.allclose(other, first)


@pytest.mark.parametrize("road", ROADS)
def test_dropout_is_active_and_differs_between_users_and_steps(road, monkeypatch):
    monkeypatch.setattr(users, "choose", ROADS[road])
    model, task = nn.Sequential(nn.Dropout(0.5), nn.Linear(400, 3, bias=False)), Classification()
    theta, data = torch.zeros(1200), silo([1] * 60, (400,), task)
    data = dataclasses.replace(data, x=torch.ones_like(data.x), y=torch.zeros_like(data.y))
    # With zero weights, the first step moves class 0's weights by lr (1 - 1/3) times the scaled mask.
    once = trained(model, theta, data, task, LocalSgd(1, 4, 2.0**-10))[:, :400] * 1.5 * 2.0**10
    assert set(once.round(decimals=5).unique().tolist()) == {0.0, 2.0}
    # 24,000 fair coins with values 0 and 2: mean 1, standard error 1 / sqrt(24,000)
    assert abs(float(once.mean()) - 1) < 5 / 24_000**0.5
    agreement = (once[:-1] == once[1:]).float().mean()  # neighbours agree on half of the units
    assert abs(float(agreement) - 0.5) < 5 * 0.5 / 23_600**0.5
    twice = trained(model, theta, data, task, LocalSgd(2, 4, 2.0**-10))[:, :400]
    kept = (twice > 1e-5).float().mean()  # a unit stays at zero only if both masks drop it
    assert abs(float(kept) - 0.75) < 5 * (0.75 * 0.25 / 24_000) ** 0.5


@pytest.mark.parametrize("road", ROADS)
def test_a_user_that_diverges_stays_alone(road, monkeypatch):
    monkeypatch.setattr(users, "choose", ROADS[road])
    model, theta, data, task = problem("mlp")
    recipe = LocalSgd(3, 8, 0.1)
    want = one_by_one(model, theta, data, task, recipe)
    data.x[data.starts[4] : data.starts[5]] = torch.nan
    got = trained(model, theta, data, task, recipe)
    assert not bool(got[4].isfinite().any())
    others = np.delete(np.arange(len(COUNTS)), 4)
    assert_same(got[others], want[others], theta)


def test_one_full_step_of_rate_one_is_minus_the_gradient():
    model, theta, data, task = problem("linear-binary")
    got = trained(model, theta, data, task, LocalSgd(1, None, 1.0))
    x, y = data.x[: COUNTS[0]], data.y[: COUNTS[0]]
    gradient = ((torch.sigmoid(x @ theta) - y)[:, None] * x).mean(0)  # closed form of logistic regression
    torch.testing.assert_close(got[0], -gradient, rtol=1e-5, atol=1e-6)


def test_a_large_batch_in_pieces_is_the_same_step(monkeypatch):
    for name in ("cnn", "linear-cox"):
        model, theta, data, task = problem(name)
        recipe = LocalSgd(2, None, 0.1)
        want = one_by_one(model, theta, data, task, recipe)

        def tiny(*args):
            [(road, indices)] = stacked(*args)
            road.limits = dataclasses.replace(road.limits, budget=2 * road.limits.row_bytes)
            return [(road, indices)]

        monkeypatch.setattr(users, "choose", tiny)
        monkeypatch.setattr("fedpriv.training.stacked.PIECES_FROM", 1)
        assert_same(trained(model, theta, data, task, recipe), want, theta)


def test_pieces_see_the_same_masks_in_both_passes(monkeypatch):
    # One unit is kept (value 2) or dropped; the second pass must apply a record's error to its own mask.
    model, task = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Dropout(0.5), nn.Linear(1, 2)), Classification()
    theta = torch.tensor([1.0, 0.5, -0.5, 0.0, 0.0])
    data = silo([64], (1,), task)
    data = dataclasses.replace(data, x=torch.ones_like(data.x), y=torch.zeros_like(data.y))

    def tiny(*args):
        [(road, indices)] = stacked(*args)
        road.limits = dataclasses.replace(road.limits, budget=5 * road.limits.row_bytes)
        return [(road, indices)]

    monkeypatch.setattr(users, "choose", tiny)
    monkeypatch.setattr("fedpriv.training.stacked.PIECES_FROM", 1)
    [delta] = trained(model, theta, data, task, LocalSgd(1, None, 1.0))
    # kept: logits (1, -1), error e = sigmoid(-2); dropped: logits 0, error 1/2 reaches only the last bias.
    e = torch.sigmoid(torch.tensor(-2.0))
    kept = float((0.5 - delta[3]) / (0.5 - e))
    assert kept * 64 == pytest.approx(round(kept * 64), abs=1e-3)
    assert 0.2 < kept < 0.8
    torch.testing.assert_close(delta[1], 2 * kept * e, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(delta[0], 2 * kept * e, rtol=1e-4, atol=1e-6)


def test_memory_stays_within_the_budget(monkeypatch):
    roads = []

    def small(*args):
        [(road, indices)] = stacked(*args)
        road.limits = dataclasses.replace(road.limits, budget=200_000)
        roads.append(road)
        return [(road, indices)]

    monkeypatch.setattr(users, "choose", small)
    for name, most in (("mlp", 3000), ("cnn", 300)):
        build, shape, task = PROBLEMS[name]
        model = build()
        counts = np.random.default_rng(0).integers(1, 20, most)
        trained(model, flatten(model), silo(counts, shape, task), task, LocalSgd(1, 8, 0.1))
        assert roads[-1].space.nbytes <= 200_000


def test_batch_norm_is_refused():
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    data = silo([4, 5], (6,), Classification())
    with pytest.raises(ConfigError, match="BatchNorm1d"):
        next(train_users(model, flatten(model), data, None, Classification(), LocalSgd(1, 8, 0.1), Streams(0), 0, "s"))
