import copy
import random
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from one_by_one import Tokens, token_silo
from scipy.stats import chi2, chisquare
from torch import nn

from fedpriv.errors import ConfigError
from fedpriv.models.cnn import MnistCnn
from fedpriv.models.linear import Linear
from fedpriv.models.mlp import Mlp
from fedpriv.models.tasks import BinaryClassification, Classification, CoxRegression, Task
from fedpriv.training.contributions import ContributionStats
from fedpriv.training.dp_sgd import DpSgd, dp_sgd
from fedpriv.training.record_dropout import RecordDropout
from fedpriv.training.vectors import flatten, load
from fedpriv.util.streams import Streams, SystemGenerator

WHOLE = DpSgd(
    steps=1, sampling_rate=1.0, clip=1.0, noise_multiplier=0.0, lr=0.5, expected_batch=7.0
)
TINY = 1e-6  # smallest p-value that passes


@dataclass(frozen=True)
class Score(Task):
    """The loss is `scale` times the output, so a linear model's gradient is `scale` times the
    record."""

    scale: float = 1.0
    metric = "none"

    def loss(self, outputs, y, weight):
        return self.scale * (outputs.sum(-1) * weight).sum(-1)

    def metrics(self, outputs, y):
        return {}


class Zeros:
    """A source of no noise that calls back once a step."""

    def __init__(self, callback):
        self.callback = callback

    def standard_normal(self, size):
        self.callback()
        return np.zeros(size)


def rng(seed=0):
    return np.random.default_rng(seed)


def network(kind: str, dropout: float = 0.0):
    """A network with records, labels, task and group size."""
    torch.manual_seed(1)
    if kind == "tokens":
        data = token_silo([20])
        return Tokens(), data.x, data.y, Classification(), 2  # the loss is a mean over the group
    if kind == "mlp":
        model, x, y, task = (
            Mlp([8, 8, 6], True, dropout).build((5,), 3),
            (20, 5),
            torch.arange(20) % 3,
            Classification(),
        )
    elif kind == "cnn":
        model, x = MnistCnn([2, 3], 6, dropout).build((1, 20, 20), 4), (20, 1, 20, 20)
        y, task = torch.arange(20) % 4, Classification()
    elif kind == "linear":
        model, x, y, task = (
            Linear().build((5,), 1),
            (20, 5),
            (torch.arange(20) % 2).float(),
            BinaryClassification(),
        )
    else:
        model, x, task = Linear().build((5,), 1), (20, 5), CoxRegression()
        y = torch.stack([(torch.arange(20) % 3 > 0).float(), torch.rand(20)], dim=1)
    return model, torch.randn(x), y, task, 2 if kind == "cox" else 1


def train(model, x, y, task, recipe, group=1, sample=0, noise=1, dropout=2, stats=None):
    noise_rng, sampler = rng(noise) if isinstance(noise, int) else noise, rng(sample)
    units = len(x) // group
    keys = Streams(dropout).unit_keys("dropout", 1, "silo0", np.arange(units))
    random = {
        "coins": lambda step: sampler.random(units),
        "noise_rng": noise_rng,
        "dropout_keys": keys,
    }
    change, _ = dp_sgd(
        recipe,
        model=model,
        theta=flatten(model).double().numpy(),
        x=x,
        y=y,
        task=task,
        group=group,
        stats=stats or ContributionStats(),
        **random,
    ).run()
    return torch.from_numpy(change)


def one_by_one(model, theta, x, y, task, group):
    """Gradient of each group's mean loss by plain autograd, (n / group, d)."""
    model = copy.deepcopy(model)
    load(model, theta)
    rows = []
    for start in range(0, len(x), group):
        part = slice(start, start + group)
        loss = task.loss(model(x[part]), y[part], torch.full((group,), 1 / group))
        rows.append(
            torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])
        )
    return torch.stack(rows)


@pytest.mark.parametrize("kind", ["mlp", "cnn", "linear", "cox", "tokens"])
def test_the_update_is_the_sum_of_clipped_gradients_over_the_expected_batch(kind):
    model, x, y, task, group = network(kind)
    theta = flatten(model)
    norms = one_by_one(model, theta, x, y, task, group).norm(dim=1)
    clip = float(norms[norms > 0].median())  # about half of them are clipped
    recipe = DpSgd(3, 0.5, clip, noise_multiplier=0.0, lr=0.3, expected_batch=7.0)
    sampler, vector = rng(), theta.clone()
    for _ in range(recipe.steps):
        gradients = one_by_one(model, vector, x, y, task, group)
        gradients = gradients[sampler.random(len(gradients)) < recipe.sampling_rate]
        factors = (recipe.clip / gradients.norm(dim=1)).clamp(max=1)
        vector = vector - recipe.lr * (factors @ gradients) / recipe.expected_batch
    expected = vector - theta
    update = train(model, x, y, task, recipe, group)
    assert update.dtype == torch.float64
    assert (update - expected).norm() < 1e-5 * expected.norm()


@pytest.mark.parametrize("rate", [0.0, 1.0], ids=["empty batches", "zero gradients"])
@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize(
    "source", [np.random.default_rng, lambda _: SystemGenerator()], ids=["numpy", "system"]
)
def test_every_step_adds_exactly_the_declared_noise(rate, steps, source):
    model, x, y = Linear().build((1999,), 1), torch.randn(6, 1999), torch.zeros(6)
    recipe = DpSgd(steps, rate, clip=0.5, noise_multiplier=3.0, lr=1.0, expected_batch=4.0)
    update = train(model, x, y, Score(0.0), recipe, noise=source(5))
    std = 3.0 * 0.5 / 4.0 * steps**0.5
    statistic = float((update.double() / std).square().sum())
    assert min(chi2.cdf(statistic, 2000), chi2.sf(statistic, 2000)) > TINY


def test_noise_is_one_flat_draw_a_step_in_the_order_of_the_parameters():
    model, x, y, _, _ = network("mlp")
    recipe = DpSgd(2, 0.5, clip=2.0, noise_multiplier=1.5, lr=0.1, expected_batch=4.0)
    source, d = rng(1), len(flatten(model))
    expected = -(source.standard_normal(d) + source.standard_normal(d)) * 1.5 * 2.0 * 0.1 / 4.0
    np.testing.assert_allclose(train(model, x, y, Score(0.0), recipe).numpy(), expected, atol=1e-6)


def test_batches_are_poisson():
    n, rate, steps = 50, 0.1, 1500
    stats, totals = ContributionStats(), []
    recipe = DpSgd(steps, rate, clip=2.0, noise_multiplier=1.0, lr=1.0, expected_batch=1.0)
    source = Zeros(lambda: totals.append(stats.units))
    # The gradient of record i is the unit vector i, so the update counts how often each record was
    # drawn.
    update = train(
        Linear(bias=False).build((n,), 1),
        torch.eye(n),
        torch.zeros(n),
        Score(),
        recipe,
        noise=source,
        stats=stats,
    )
    sizes, variance = np.diff([0, *totals]), n * rate * (1 - rate)
    assert len(sizes) == steps
    assert abs(sizes.mean() - n * rate) < 5 * np.sqrt(variance / steps)
    assert abs(sizes.var() - variance) < 5 * variance * np.sqrt(2 / steps)
    assert (sizes == 0).any()
    drawn = -update.double().numpy()
    assert drawn.sum() == pytest.approx(sizes.sum(), rel=1e-4)
    assert chisquare(drawn).pvalue > TINY


def test_groups_are_drawn_as_one():
    recipe = DpSgd(60, 0.3, clip=1.0, noise_multiplier=0.0, lr=1.0, expected_batch=1.0)
    stats = ContributionStats()
    model = Linear(bias=False).build((12,), 1)
    drawn = -train(
        model, torch.eye(12), torch.zeros(12), Score(), recipe, group=2, stats=stats
    ).reshape(6, 2)
    torch.testing.assert_close(drawn[:, 0], drawn[:, 1])
    assert len(drawn[:, 0].unique()) > 1
    assert float(drawn.sum()) == pytest.approx(
        stats.units, rel=1e-4
    )  # a half from each of the two records


@pytest.mark.parametrize("kind", ["mlp", "cnn"])
def test_dropout_comes_from_its_seed_and_the_caller_sees_no_trace(kind):
    model, x, y, task, _ = network(kind, dropout=0.5)
    model.eval()
    model[0].train()
    parameters, modes = flatten(model), [part.training for part in model.modules()]
    torch.manual_seed(9)
    state = torch.get_rng_state()
    first, again, other = (train(model, x, y, task, WHOLE, dropout=seed) for seed in (2, 2, 3))
    assert torch.equal(torch.get_rng_state(), state)
    assert [part.training for part in model.modules()] == modes
    assert torch.equal(flatten(model), parameters)
    assert all(p.grad is None and not hasattr(p, "grad_sample") for p in model.parameters())
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def dropping(kind):
    """A network whose dropout layers are of all kinds that it may have, with records and labels."""
    torch.manual_seed(1)
    if kind == "channels":
        model = nn.Sequential(
            nn.Conv2d(1, 3, 3),
            nn.Dropout2d(0.4),
            nn.Dropout(0.0),
            nn.Flatten(),
            nn.Linear(48, 8),
            nn.Tanh(),
            nn.Dropout(0.5),
            nn.Linear(8, 3),
        )
        return model, torch.randn(20, 1, 6, 6), torch.arange(20) % 3
    model, x, y, _, _ = network("mlp", dropout=0.5)
    return model, x, y


@pytest.mark.parametrize("kind", ["mlp", "channels"])
@pytest.mark.parametrize("group", [1, 2])
def test_removing_a_record_leaves_the_dropout_and_the_coins_of_all_others(kind, group):
    model, x, y = dropping(kind)
    recipe = DpSgd(1, 0.6, clip=0.05, noise_multiplier=0.0, lr=1.0, expected_batch=1.0)
    streams, theta = Streams(4), flatten(model).double().numpy()

    def total(units):
        place = {"round": 1, "party": "silo0", "units": units}
        coins, keys = (
            streams.unit_coins("record sample", **place),
            streams.unit_keys("dropout", **place),
        )
        rows = (units[:, None] + np.arange(group)).ravel()
        change, _ = dp_sgd(
            recipe,
            model=model,
            theta=theta,
            x=x[rows],
            y=y[rows],
            task=Classification(),
            coins=coins,
            noise_rng=rng(),
            dropout_keys=keys,
            group=group,
            stats=ContributionStats(),
        ).run()
        return -torch.from_numpy(change)

    everybody = np.arange(0, 20, group)
    whole = total(everybody)
    alone = torch.stack([total(np.array([unit])) for unit in everybody])
    torch.testing.assert_close(alone.sum(0), whole, rtol=1e-4, atol=1e-6)
    assert 0 < int((alone.norm(dim=1) > 0).sum()) < len(alone)
    assert float(alone.norm(dim=1).max()) <= 0.05 * (1 + 1e-4)
    torch.testing.assert_close(total(everybody[::-1]), whole, rtol=1e-4, atol=1e-6)


def test_records_drop_units_of_their_own_and_others_in_every_step():
    model, x, _ = dropping("channels")
    dropout = RecordDropout(model, x[:1])
    keys = Streams(0).unit_keys("dropout", 1, "silo0", np.arange(4000))
    first, second = (dropout.masks(keys, step) for step in (0, 1))
    assert [mask.shape[1:] for mask in first.values()] == [(1, 3, 1, 1), (1, 8)]
    for name, p in zip(first, (0.4, 0.5)):
        mask = first[name]
        assert mask.unique().tolist() == pytest.approx([0.0, 1 / (1 - p)])
        kept, again = (part[name] > 0 for part in (first, second))
        assert abs(float(kept.double().mean()) - (1 - p)) < 5 * (p * (1 - p) / kept.numel()) ** 0.5
        same, agree = float((kept == again).double().mean()), p * p + (1 - p) * (1 - p)
        assert abs(same - agree) < 5 * (agree * (1 - agree) / kept.numel()) ** 0.5
        assert len(kept.flatten(1).unique(dim=0)) > 5
    one, other = (
        RecordDropout(model, x[:1]).masks(keys[:7], 0),
        {name: mask[:7] for name, mask in first.items()},
    )
    assert all(torch.equal(one[name], other[name]) for name in one)


class Jitter(nn.Linear):
    def __init__(self):
        super().__init__(5, 1)

    def forward(self, x):
        return super().forward(x + torch.rand_like(x))


class JitterOfPython(Jitter):
    """One draw for all records of a stack: one record absent moves others into another stack."""

    def forward(self, x):
        return nn.Linear.forward(self, x * random.random())


class JitterOfNumpy(Jitter):
    def forward(self, x):
        return nn.Linear.forward(self, x * float(np.random.rand()))  # noqa: NPY002


class TwiceDropped(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.dropout = nn.Linear(5, 5), nn.Dropout(0.5)

    def forward(self, x):
        return self.dropout(self.linear(self.dropout(x))).sum(-1)


@pytest.mark.parametrize(
    "model",
    [Jitter(), JitterOfPython(), JitterOfNumpy(), TwiceDropped()],
    ids=lambda model: type(model).__name__,
)
def test_random_numbers_that_no_record_has_a_key_for_are_refused(model):
    with pytest.raises(ConfigError, match="random numbers in training only from"):
        train(model, torch.randn(4, 5), torch.zeros(4), Score(), WHOLE)


@pytest.mark.parametrize(
    "layer", [nn.BatchNorm1d(5), nn.BatchNorm1d(5, affine=False, track_running_stats=False)]
)
def test_batch_norm_is_refused(layer):
    with pytest.raises(ConfigError, match="model=BatchNorm1d: no layer that mixes"):
        train(
            nn.Sequential(layer, nn.Linear(5, 1)), torch.randn(4, 5), torch.zeros(4), Score(), WHOLE
        )


def test_rows_must_fill_whole_groups():
    model, x, y, task, _ = network("cox")
    with pytest.raises(ValueError, match="19 rows in groups of 2"):
        train(model, x[:19], y[:19], task, WHOLE, group=2)


def test_a_silo_without_records_adds_noise_alone():
    model = Linear().build((5,), 1)
    recipe = replace(WHOLE, noise_multiplier=1.0)
    update = train(model, torch.zeros(0, 5), torch.zeros(0), BinaryClassification(), recipe)
    np.testing.assert_allclose(update.numpy(), -rng(1).standard_normal(6) * 0.5 / 7.0, atol=1e-7)
