"""Gradients of every stacked layer, and of chains of them, against autograd."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from one_by_one import assert_same, one_by_one, silo, trained
from torch import nn

from fedpriv.models.l2_projection import L2Projection
from fedpriv.models.tasks import Classification
from fedpriv.training import users
from fedpriv.training.description import Execution, Recipe
from fedpriv.training.layers.buffers import BufferPool, Masks
from fedpriv.training.optimizers import Adam, Sgd
from fedpriv.training.trainers.batched import Batched
from fedpriv.training.trainers.compile_layers import compile_layers
from fedpriv.training.vectors import flatten
from fedpriv.util.streams import Streams

torch.manual_seed(0)  # a draw can be so ill-conditioned that float32 exceeds every tolerance
FEATURES = {
    "linear": nn.Linear(7, 3),
    "linear without bias": nn.Linear(7, 3, bias=False),
    "two linear": nn.Sequential(nn.Linear(7, 5), nn.Linear(5, 3)),
    "projection": nn.Sequential(L2Projection(1.5), nn.Linear(7, 3)),
    "relu first": nn.Sequential(nn.ReLU(), nn.Linear(7, 3)),
    "relu twice": nn.Sequential(nn.Linear(7, 5), nn.ReLU(), nn.ReLU(), nn.Linear(5, 3)),
    "group norm": nn.Sequential(nn.Linear(7, 5), nn.GroupNorm(1, 5), nn.Linear(5, 3)),
    "group norm first": nn.Sequential(nn.GroupNorm(1, 7), nn.Linear(7, 3)),
    "group norm last": nn.Sequential(nn.Linear(7, 3), nn.GroupNorm(1, 3)),
    "plain group norm": nn.Sequential(
        nn.Linear(7, 5), nn.GroupNorm(1, 5, eps=1e-2, affine=False), nn.Linear(5, 3)
    ),
    "nested": nn.Sequential(
        nn.Sequential(nn.Linear(7, 5), nn.Identity()), nn.Sequential(nn.ReLU(), nn.Linear(5, 3))
    ),
}
IMAGES = {
    "projection on images": nn.Sequential(
        nn.Flatten(), L2Projection(5.0), nn.Linear(2 * 8 * 10, 3)
    ),
    "flatten": nn.Sequential(nn.Flatten(), nn.ReLU(), nn.Linear(2 * 8 * 10, 3)),
    "convolution": nn.Sequential(nn.Conv2d(2, 3, 3), nn.Flatten(), nn.Linear(3 * 6 * 8, 3)),
    "padding": nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.Flatten(), nn.Linear(3 * 8 * 10, 3)),
    "stride": nn.Sequential(
        nn.Conv2d(2, 3, (2, 3), stride=(2, 3)), nn.Flatten(), nn.Linear(3 * 4 * 3, 3)
    ),
    "without bias": nn.Sequential(
        nn.Conv2d(2, 3, 3, bias=False), nn.Flatten(), nn.Linear(3 * 6 * 8, 3)
    ),
    "pool": nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(3 * 3 * 4, 3)
    ),
    "relu, pool": nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3)
    ),
    "two convolutions": nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 4 * 6, 3)
    ),
    "second with padding, stride, pool": nn.Sequential(
        nn.Conv2d(2, 3, 3),
        nn.Conv2d(3, 4, 3, padding=(1, 2), stride=(1, 2)),
        nn.MaxPool2d((3, 1)),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(4 * 2 * 5, 3),
    ),
    "second without bias": nn.Sequential(
        nn.Conv2d(2, 3, 3),
        nn.MaxPool2d(2),
        nn.Conv2d(3, 4, 2, bias=False),
        nn.MaxPool2d((2, 3)),
        nn.ReLU(),
        nn.Conv2d(4, 3, 1),
        nn.Flatten(),
    ),
}


class Residuals(nn.Module):
    """Sums with the records, with what several layers before computed, of a value with itself, and
    around another sum. The parameters are not in the order of the layers."""

    def __init__(self, p=0.0):
        super().__init__()
        self.last, self.first, self.third = nn.Linear(7, 3), nn.Linear(7, 7), nn.Linear(7, 7)
        self.norm, self.dropout, self.second = nn.GroupNorm(1, 7), nn.Dropout(p), nn.Linear(7, 7)

    def forward(self, x):
        h = torch.relu(x + self.first(x))
        inner = self.norm(self.second(h)) + h
        inner = self.dropout(torch.relu(inner))
        h = h + self.third(inner)
        h = torch.relu(h)
        return self.last(h + h)


class Doubled(nn.Module):
    """A sum before the first layer with parameters, and one as the last layer."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(7, 3), nn.Linear(3, 3)

    def forward(self, x):
        h = self.one(torch.relu(x) + x)
        return h + self.two(torch.relu(h))


FEATURES |= {"residual sums": Residuals(), "sums at the ends": Doubled()}
STEPS = pytest.mark.parametrize(
    "recipe", [Recipe(1, None, 0.1), Recipe(2, 4, 0.1)], ids=["gradient", "steps"]
)


@STEPS
@pytest.mark.parametrize("name", [*FEATURES, *IMAGES])
def test_layer_against_autograd(name, recipe):
    module, shape = (FEATURES[name], (7,)) if name in FEATURES else (IMAGES[name], (2, 8, 10))
    assert compile_layers(module, shape) is not None
    task, theta = Classification(), flatten(module)
    data = silo([3, 9, 1, 6], shape, task)
    assert_same(
        trained(module, theta, data, task, recipe),
        one_by_one(module, theta, data, task, recipe),
        theta,
    )


def batched_alone(problem, rows):
    return [(Batched(problem, compile_layers(problem.model, problem.shape)), np.arange(len(rows)))]


@STEPS
@pytest.mark.parametrize("optimizer", [Sgd(), Adam(eps=0.1)], ids=str)
@pytest.mark.parametrize("build", [Residuals, Doubled])
def test_residual_sums_of_users_side_by_side(build, recipe, optimizer, monkeypatch):
    monkeypatch.setattr(users, "select_trainers", batched_alone)
    torch.manual_seed(1)
    module, task = build(), Classification()
    theta, recipe = flatten(module), replace(recipe, optimizer=optimizer)
    data = silo([3, 9, 1, 6], (7,), task)
    together = trained(module, theta, data, task, recipe)
    assert_same(together, one_by_one(module, theta, data, task, recipe), theta)


def test_a_dropout_between_sums_leaves_each_user_its_own(monkeypatch):
    monkeypatch.setattr(users, "select_trainers", batched_alone)
    torch.manual_seed(1)
    module, task, recipe = Residuals(0.5), Classification(), Recipe(2, 4, 0.1)
    theta, data = flatten(module), silo([6, 6, 6], (7,), task)
    assert torch.equal(
        trained(module, theta, data, task, recipe), trained(module, theta, data, task, recipe)
    )
    plain = trained(Residuals(), theta, data, task, recipe)
    assert float((trained(module, theta, data, task, recipe) - plain).norm(dim=1).min()) > 1e-3


@pytest.mark.parametrize("skipped", ["branch", "image"])
def test_other_sums_are_left_to_the_other_trainers(skipped):
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(7, 3), nn.Linear(7, 3)

        def forward(self, x):
            return self.one(x) + self.two(x)

    class Image(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Conv2d(2, 2, 3, padding=1), nn.Linear(128, 3)

        def forward(self, x):
            return self.two((self.one(x) + x).flatten(1))

    module, shape = (Branches(), (7,)) if skipped == "branch" else (Image(), (2, 8, 8))
    assert compile_layers(module, shape) is None


def test_equal_maxima_send_the_gradient_to_the_first():
    torch.manual_seed(0)
    module, task = IMAGES["second without bias"], Classification()
    data = silo([4, 2], (2, 8, 10), task)
    data.x.copy_(torch.randint(0, 2, data.x.shape).float())  # few distinct patches: many ties
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randint(-1, 2, parameter.shape))
    theta, recipe = flatten(module), Recipe(1, None, 0.5)
    assert_same(
        trained(module, theta, data, task, recipe),
        one_by_one(module, theta, data, task, recipe),
        theta,
    )


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.Sequential(nn.Linear(4, 4), nn.Tanh()), (4,)),
        (nn.Sequential(nn.Linear(4, 4), nn.GroupNorm(2, 4)), (4,)),
        (nn.Sequential(nn.Linear(4, 4)), (2, 4)),
        (nn.Sequential(nn.Linear(4, 4), L2Projection(1.0)), (4,)),
        (nn.Sequential(nn.ReLU()), (4,)),
        (nn.Sequential(nn.Conv2d(2, 2, 3, groups=2), nn.Flatten()), (2, 8, 8)),
        (nn.Sequential(nn.Conv2d(2, 2, 3, padding="same"), nn.Flatten()), (2, 8, 8)),
        (nn.Sequential(nn.Conv2d(2, 2, 3, dilation=2), nn.Flatten()), (2, 8, 8)),
        (nn.Sequential(nn.Conv2d(2, 2, 3), nn.MaxPool2d(4), nn.Flatten()), (2, 8, 8)),
        (nn.Sequential(nn.Conv2d(2, 2, 3), nn.MaxPool2d(3, 1), nn.Flatten()), (2, 8, 8)),
        (nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(2, 2, 3), nn.Flatten()), (2, 8, 8)),
        (
            nn.Sequential(nn.Conv2d(2, 2, 3), nn.MaxPool2d(2), nn.MaxPool2d(3), nn.Flatten()),
            (2, 8, 8),
        ),
        (nn.Sequential(nn.Conv2d(2, 2, 3), nn.GroupNorm(1, 2), nn.Flatten()), (2, 8, 8)),
        (nn.Sequential(nn.Conv2d(2, 2, 3)), (2, 8, 8)),
    ],
)
def test_unknown_chains_are_left_to_the_other_trainers(module, shape):
    assert compile_layers(module, shape) is None


def test_a_module_used_twice_is_left_to_the_other_trainers():
    layer = nn.Linear(4, 4)
    assert compile_layers(nn.Sequential(layer, nn.ReLU(), layer), (4,)) is None


def masks_of(users, layers=(0,), budget=2**25):
    keys = Streams(0).unit_keys("dropout", 0, "", np.asarray(users))
    return Masks(keys, layers=layers, budget=budget, device=torch.device("cpu"))


def move(masks, epoch, place, row=0):
    users = len(masks._keys)
    masks.at(np.full(users, epoch), np.full(users, place), row)


def kept_by(masks, shape, p, rows=1, layer=0):
    words = torch.empty(shape, dtype=torch.int32)
    return words > masks.draw(layer, words, p, rows)


@pytest.mark.parametrize("varied", ["epoch", "place", "layer"])
@pytest.mark.parametrize("p", [0.5, 0.3, 0.9, 1.0])
def test_masks_keep_with_the_right_probability_and_are_independent(p, varied):
    draws, users, rows, features = 40, 20, 20, 101
    masks = masks_of(range(users), range(draws if varied == "layer" else 3))
    kept = []
    for i in range(draws):
        move(masks, i if varied == "epoch" else 0, i if varied == "place" else 0)
        kept.append(
            kept_by(masks, (users, rows, features), p, layer=i if varied == "layer" else 0).double()
        )
    kept, n = torch.stack(kept), users * rows * features
    # Standard error of a mean of n * draws coins, and of the mean product of two independent
    # centred ones.
    assert abs(float(kept.mean()) - (1 - p)) <= 5 * (p * (1 - p) / (n * draws)) ** 0.5
    centred = kept - (1 - p)
    for lag in (1, 2, 10, 11, 31, 32):
        product = (centred[lag:] * centred[:-lag]).mean()
        assert abs(float(product)) <= 5 * p * (1 - p) / (n * (draws - lag)) ** 0.5
    for dim in (1, 2, 3):  # users, rows, features
        first, second = (centred.narrow(dim, start, centred.shape[dim] - 1) for start in (0, 1))
        assert abs(float((first * second).mean())) <= 5 * p * (1 - p) / first.numel() ** 0.5


@pytest.mark.parametrize("p", [0.5, 0.3])
@pytest.mark.parametrize("budget", [0, 2**25])
def test_a_mask_is_a_users_own_whatever_the_block_the_padding_and_the_order(p, budget):
    """Users, rows, pieces, what was drawn before and what is kept in memory make no difference."""
    whole = masks_of(range(9), (0, 1), budget)
    steps = [(epoch, place, layer) for epoch in (0, 1, 17) for place in (0, 3) for layer in (0, 1)]
    want = {}
    for step in steps:
        move(whole, *step[:2])
        want[step] = kept_by(whole, (9, 12, 7), p, layer=step[2])
    some = masks_of([7, 2, 4], (0, 1), budget)
    for epoch, place, layer in reversed(steps):
        of_them = want[epoch, place, layer][[7, 2, 4]]
        move(some, epoch, place)
        assert torch.equal(kept_by(some, (3, 5, 7), p, layer=layer), of_them[:, :5])
        assert torch.equal(kept_by(some, (2, 12, 7), p, layer=layer), of_them[:2])
        move(some, epoch, place, row=4)
        assert torch.equal(kept_by(some, (3, 8, 7), p, layer=layer), of_them[:, 4:])
        move(some, epoch, place)
        images = kept_by(some, (3, 1, 12, 1, 1, 7), p, rows=2, layer=layer)
        assert torch.equal(images.view(3, 12, 7), of_them)


@pytest.mark.parametrize("p", [0.5, 0.3])
def test_users_of_a_stack_may_be_at_different_steps_and_change_seats(p):
    steps = [(0, 1), (17, 0), (5, 2)]
    want = {}
    for user in (7, 2, 4):
        for step in steps:
            alone = masks_of([user], (0, 1))
            move(alone, *step)
            want[user, step] = kept_by(alone, (1, 6, 7), p, layer=1)[0]
    masks = masks_of([7, 2, 2], (0, 1))
    for moment in ([0, 1, 2], [0, 1, 2], [2, 2, 0], [1, 1, 1], [0, 0, 1]):
        masks.at(*np.array([steps[i] for i in moment]).T)
        got = kept_by(masks, (3, 6, 7), p, layer=1)
        for seat, user in enumerate((7, 2, 2)):
            assert torch.equal(got[seat], want[user, steps[moment[seat]]])
    move(masks, *steps[1])
    kept_by(masks, (3, 6, 7), p, layer=1)
    masks.rekey(np.array([2, 0]), masks_of([4, 2])._keys)
    got = kept_by(masks, (3, 6, 7), p, layer=1)
    assert torch.equal(got, torch.stack([want[user, steps[1]] for user in (2, 2, 4)]))


def test_words_are_kept_within_the_budget():
    masks = masks_of(range(4), (0, 1), budget=2 * 4 * 6 * 8 * 4)
    for place in range(5):
        move(masks, 0, place)
        kept_by(masks, (4, 6, 8), 0.5)
    assert sum(words.nbytes for words in masks._cached.values()) == 2 * 4 * 6 * 8 * 4
    move(masks, 16, 0)
    assert not masks._cached


def held(pool):
    """Bytes."""
    return sum(flat.nbytes for flat in pool._flat.values())


def test_buffers_reuse_memory_and_keeps_orders():
    pool = BufferPool(torch.device("cpu"))
    first = pool.take("a", (4, 5))
    assert pool.take("a", (2, 3)).data_ptr() == first.data_ptr()
    assert held(pool) == 80
    permuted = torch.empty(2, 3, 4, 5).permute(0, 3, 1, 2)
    assert pool.like("b", permuted).stride() == permuted.stride()
    pair = [pool.gradient_like(first), pool.gradient_like(first), pool.gradient_like(first)]
    assert pair[0].data_ptr() == pair[2].data_ptr() != pair[1].data_ptr()
    assert np.isclose(held(pool), 80 + 480 + 160)


class ResidualOfImages(nn.Module):
    """A sum with what images become as features."""

    def __init__(self):
        super().__init__()
        self.images = nn.Conv2d(1, 2, 3)
        self.hidden, self.last = nn.Linear(18, 18), nn.Linear(18, 3)

    def forward(self, x):
        h = torch.flatten(self.images(x), 1)
        return self.last(torch.relu(self.hidden(h)) + h)


def test_a_sum_may_read_flattened_images():
    """Its gradient was added in the shape of images, and training ended with an error."""
    torch.manual_seed(1)
    model, task, recipe = ResidualOfImages(), Classification(), Recipe(2, 4, 0.1)
    data, theta = silo([3, 7, 5], (1, 5, 5), task), flatten(model)
    assert compile_layers(model, (1, 5, 5)) is not None
    own = {"execution": Execution("batched")}
    want = one_by_one(model, theta, data, task, recipe)
    assert_same(trained(model, theta, data, task, recipe, **own), want, theta)
