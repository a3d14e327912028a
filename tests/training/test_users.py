"""Training all users at once equals training them one by one."""

import copy
import dataclasses
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from one_by_one import (
    PROBLEMS,
    ROUND,
    as_array,
    assert_same,
    blocks,
    cnn,
    mlp,
    one_by_one,
    relative_errors,
    silo,
    trained,
    wide,
)
from test_isolated_users import without
from torch import nn

from fedpriv.errors import ConfigError
from fedpriv.models.tasks import Classification
from fedpriv.testing import experiment
from fedpriv.training.description import Execution, Recipe, Training
from fedpriv.training.vectors import flatten
from fedpriv.util.streams import Streams

COUNTS = [5, 1, 9, 16, 17, 3, 3, 40, 8]


def problem(name):
    torch.manual_seed(1)
    build, shape, task = PROBLEMS[name]
    model = build()
    return model, flatten(model), silo(COUNTS, shape, task), task


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    counts=st.lists(st.integers(1, 150), min_size=1, max_size=5),
    size=st.one_of(st.none(), st.integers(1, 70)),
    epochs=st.integers(1, 3),
    name=st.sampled_from(["mlp", "wide", "linear-cox", "linear-binary"]),
    trainer=st.sampled_from(["auto", "batched"]),
)
@example(counts=[125, 1, 148, 200], size=15, epochs=1, name="cnn", trainer="auto")
@example(counts=[1, 196, 190], size=1, epochs=1, name="mlp", trainer="auto")
def test_any_record_counts(counts, size, epochs, name, trainer):
    """Where the loop itself is stable: from a start that differs in the last bits it makes the same
    changes. Hundreds of steps of one record may drive rounding apart."""
    torch.manual_seed(1)
    build, shape, task = (PROBLEMS | {"wide": (wide, (19,), Classification())})[name]
    model = build()
    theta, data, recipe = flatten(model), silo(counts, shape, task), Recipe(epochs, size, 0.01)
    want, beside = (
        one_by_one(model, start, data, task, recipe) for start in (theta, theta * (1 + 2.0**-22))
    )
    rows = max(64, *counts)
    assume(float(relative_errors(beside, want, theta, rows).max()) < 0.5)
    got = trained(model, theta, data, task, recipe, execution=Execution(trainer))
    assert_same(got, want, theta, rows)


@pytest.mark.parametrize(
    "build", [lambda: mlp(p=0.3), lambda: cnn(p=0.5), lambda: nn.Sequential(mlp(p=0.5), nn.Tanh())]
)
@pytest.mark.parametrize("counts", [[9], COUNTS], ids=["alone", "many"])
def test_dropout_repeats_bit_for_bit_and_leaves_torch_alone(build, counts):
    torch.manual_seed(3)
    model = build()
    shape = (1, 12, 12) if isinstance(model[0], nn.Conv2d) else (6,)
    theta, task, recipe = flatten(model), Classification(), Recipe(2, 8, 0.1)
    data = silo(counts, shape, task)
    before, modes = torch.get_rng_state(), [part.training for part in model.modules()]
    first = trained(model, theta, data, task, recipe)
    assert torch.equal(torch.get_rng_state(), before)
    assert [part.training for part in model.modules()] == modes
    torch.rand(7)
    assert torch.equal(trained(model, theta, data, task, recipe), first)
    other = trained(model, theta, data, task, recipe, round=ROUND + 1)
    assert not torch.allclose(other, first)


def without_norm(p):
    """GroupNorm blows rounding up where dropout leaves a row almost constant."""
    return nn.Sequential(*(layer for layer in mlp(p=p) if not isinstance(layer, nn.GroupNorm)))


DROPPING = {
    "mlp": lambda: without_norm(0.5),
    "mlp of other odds": lambda: without_norm(0.3),
    "cnn": lambda: cnn(p=0.5),
    "cnn with dropped pixels": lambda: nn.Sequential(
        nn.Conv2d(1, 3, 3),
        nn.Dropout(0.5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(75, 3),
    ),
    "unknown layers": lambda: nn.Sequential(without_norm(0.5), nn.Softsign()),
}


@pytest.mark.parametrize("size", [4, None])
@pytest.mark.parametrize("name", DROPPING)
def test_what_a_user_draws_does_not_depend_on_who_else_trains(name, size):
    """Orders and dropout of a user: alone, in a sample, in a smaller silo, in other blocks and in
    pieces."""
    torch.manual_seed(3)
    model, task, recipe = DROPPING[name](), Classification(), Recipe(3, size, 0.02)
    shape = (1, 12, 12) if isinstance(model[0], nn.Conv2d) else (6,)
    theta, data = flatten(model), silo(COUNTS, shape, task)
    full = trained(model, theta, data, task, recipe)
    for positions in ([7, 0, 4, 1], [2], [8]):
        assert_same(
            trained(model, theta, data, task, recipe, np.array(positions)), full[positions], theta
        )
    assert_same(trained(model, theta, without(data, 7), task, recipe), np.delete(full, 7, 0), theta)


def test_system_randomness_is_new_in_every_training():
    model, (_, shape, task) = mlp(p=0.5), PROBLEMS["mlp"]
    data, recipe, place = (
        silo([9] * 6, shape, task),
        Recipe(1, None, 0.1),
        {"streams": Streams(5, system=True)},
    )
    one, other = (trained(model, flatten(model), data, task, recipe, **place) for _ in range(2))
    assert not torch.allclose(one, other)
    plain = mlp()
    one, other = (
        trained(plain, flatten(plain), data, task, Recipe(1, 4, 0.1), **place) for _ in range(2)
    )
    assert not torch.allclose(one, other)


@pytest.mark.parametrize("trainer", ["auto", "plain", "batched"])
def test_dropout_is_active_and_differs_between_users_and_steps(trainer):
    model, task = nn.Sequential(nn.Dropout(0.5), nn.Linear(400, 3, bias=False)), Classification()
    theta, data = torch.zeros(1200), silo([1] * 60, (400,), task)
    data = dataclasses.replace(data, x=torch.ones_like(data.x), y=torch.zeros_like(data.y))
    # With zero weights, the first step moves class 0's weights by lr (1 - 1/3) times the scaled
    # mask.
    own = {"execution": Execution(trainer)}
    once = trained(model, theta, data, task, Recipe(1, 4, 2.0**-10), **own)[:, :400] * 1.5 * 2.0**10
    assert set(once.round(decimals=5).unique().tolist()) == {0.0, 2.0}
    # 24,000 fair coins with values 0 and 2: mean 1, standard error 1 / sqrt(24,000)
    assert abs(float(once.mean()) - 1) < 5 / 24_000**0.5
    agreement = (once[:-1] == once[1:]).float().mean()  # neighbours agree on half of the units
    assert abs(float(agreement) - 0.5) < 5 * 0.5 / 23_600**0.5
    twice = trained(model, theta, data, task, Recipe(2, 4, 2.0**-10), **own)[:, :400]
    kept = (twice > 1e-5).float().mean()  # a unit stays at zero only if both masks drop it
    assert abs(float(kept) - 0.75) < 5 * (0.75 * 0.25 / 24_000) ** 0.5


def test_integers_are_not_cast_for_a_network_that_takes_none():
    model, theta, data, task = problem("mlp")
    data = dataclasses.replace(data, x=data.x.round().long())
    with pytest.raises(RuntimeError, match="dtype"):
        blocks(Training(Recipe(1, 8, 0.1), as_array(theta)), model, data, task)


def test_streams_have_the_prefix():
    model, theta, data, task = problem("mlp")
    model = mlp(p=0.5)
    asked = []

    class Heard(Streams):
        def unit_bases(self, purpose, round, parties):
            asked.extend((purpose, round, party) for party in parties)
            return super().unit_bases(purpose, round, parties)

    place = {"streams": Heard(5), "round": 2, "party": "silo4"}
    training = Training(Recipe(1, 8, 0.1), as_array(theta))
    plain = blocks(training, model, data, task, **place)
    assert asked == [("batches", 2, "silo4"), ("dropout", 2, "silo4")]
    other = blocks(training, model, data, task, **place, prefix="anchor")
    assert asked[2:] == [("anchor batches", 2, "silo4"), ("anchor dropout", 2, "silo4")]
    assert not torch.equal(plain[0].vectors, other[0].vectors)


def test_pooled_records_train_as_one_user():
    model, theta, data, task = problem("mlp")
    recipe = Recipe(2, 8, 0.1)
    [block] = blocks(Training(recipe, as_array(theta), pooled=True), model, data, task)
    assert block.units.tolist() == [0]
    assert_same(block.vectors, one_by_one(model, theta, data.pooled(), task, recipe), theta)


def batch_norm():
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def test_batch_norm_is_refused_where_users_are_bounded():
    model = batch_norm()
    data = silo([4, 5], (6,), Classification())
    for positions in (None, np.array([0])):
        with pytest.raises(ConfigError, match="BatchNorm1d"):
            blocks(
                Training(Recipe(1, 8, 0.1), as_array(flatten(model)), positions),
                model,
                data,
                Classification(),
            )


@pytest.mark.parametrize(
    ("algo", "fits"),
    [("uldp_avg", False), ("dp_sgd", False), ("uldp_naive", True), ("fedavg", True)],
)
def test_who_trains_batch_norm_is_known_before_data_are_read(algo, fits):
    exp = experiment(f"algo={algo}")
    with nullcontext() if fits else pytest.raises(ConfigError, match="BatchNorm1d"):
        exp.algo.check_network(batch_norm(), exp.data)


def test_a_whole_silo_trains_with_batch_norm_from_the_models_own_statistics():
    torch.manual_seed(6)
    model, task, recipe = batch_norm(), Classification(), Recipe(2, 8, 0.1)
    model(torch.randn(20, 6) + 2)  # statistics that are not those of a fresh layer
    theta, buffers = (
        flatten(model),
        {name: buffer.clone() for name, buffer in model.named_buffers()},
    )
    data = silo([16, 4, 20], (6,), task)
    training = Training(recipe, as_array(theta), pooled=True)
    [first] = blocks(training, model, data, task)
    assert all(torch.equal(buffer, buffers[name]) for name, buffer in model.named_buffers())
    assert torch.equal(flatten(model), theta)
    oracle = one_by_one(copy.deepcopy(model).train(), theta, data.pooled(), task, recipe)
    assert_same(first.vectors, oracle, theta)
    other = silo([30], (6,), task, seed=1)
    blocks(training, model, other, task)  # another silo in between leaves no trace
    [again] = blocks(training, model, data, task)
    assert torch.equal(first.vectors, again.vectors)
