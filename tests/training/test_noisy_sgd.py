import numpy as np
import pytest
import torch
from one_by_one import Tokens, token_silo
from scipy.stats import chi2

from fedpriv.mechanisms.base import TrainingNoise
from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.mechanisms.none import NoMechanism
from fedpriv.models.cnn import MnistCnn
from fedpriv.models.linear import Linear
from fedpriv.models.mlp import Mlp
from fedpriv.models.tasks import Classification
from fedpriv.training.clipped import ClippedGradients
from fedpriv.training.contributions import ContributionStats
from fedpriv.training.noisy_sgd import NoisySgd, NoisyTraining, partition_batches, scaled_to
from fedpriv.training.vectors import flatten


def run(
    gradients, theta, x, y, recipe, order, dropout_seed=0, *, multiplier=0.0, noise=None, stats=None
):
    """`multiplier`: the noise's standard deviation over the clip."""
    mechanism = Gaussian(gradients.clip, multiplier) if multiplier else NoMechanism()
    moved, _ = NoisyTraining(
        gradients=gradients,
        recipe=recipe,
        theta=theta,
        x=x,
        y=y,
        noise=mechanism.training_noise(),
        noise_rng=noise or np.random.default_rng(0),
        order=order,
        dropout_seed=dropout_seed,
        stats=stats or ContributionStats(),
    ).run()
    return moved


def problem(model=None, n=20, features=5, clip=0.4):
    torch.manual_seed(2)
    net = (model or Mlp([6], False, 0.0)).build((features,), 3)
    x, y = torch.randn(n, features), torch.arange(n) % 3
    return (
        ClippedGradients(net, Classification(), clip, shape=(features,)),
        flatten(net).double().numpy(),
        x,
        y,
    )


def test_a_pass_is_a_partition_into_batches_of_one_size():
    batches = list(partition_batches(11, 3, 7, order=np.random.default_rng(0)))
    assert [len(batch) for batch in batches] == [3] * 7
    passes = [np.concatenate(batches[i : i + 3]) for i in (0, 3)]
    for one in passes:
        assert len(set(one.tolist())) == 9  # two records sit each pass out
    assert not np.array_equal(*passes)


def test_every_record_is_equally_likely_in_every_batch():
    rng, seen = np.random.default_rng(1), np.zeros((2, 7))
    for _ in range(4000):
        for step, batch in enumerate(partition_batches(7, 3, 2, order=rng)):
            seen[step, batch] += 1
    statistic = ((seen - 4000 * 3 / 7) ** 2).sum() / (4000 * 3 / 7 * 4 / 7) * 6 / 7
    assert chi2.sf(statistic, 12) > 1e-6


NETWORKS = {
    "mlp": (Mlp([6], False, 0.0), (5,)),
    "group norm": (Mlp([6], True, 0.0), (5,)),
    "cnn": (MnistCnn([2, 3], 6, 0.0), (1, 20, 20)),
    "dropout": (Mlp([6, 6], False, 0.5), (5,)),
    "embedding": (None, (4,)),
}


def network(name):
    """Clipped gradients, parameters and records of a network."""
    config, shape = NETWORKS[name]
    torch.manual_seed(2)
    if config is None:
        model, data = Tokens(), token_silo([20])
        x, y = data.x, data.y
    else:
        model, x, y = config.build(shape, 3), torch.randn(20, *shape), torch.arange(20) % 3
    return (
        ClippedGradients(model, Classification(), 0.4, shape=shape),
        flatten(model).double().numpy(),
        x,
        y,
    )


@pytest.mark.parametrize(("steps", "size"), [(1, 8), (2, 8), (5, 8), (1, 1), (2, 1), (43, 1)])
@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "dropout"])
def test_it_is_a_slow_loop_over_records(name, steps, size):
    gradients, theta, x, y = network(name)
    recipe, rng = NoisySgd(steps, size, 0.7), np.random.default_rng(3)
    noise = [0.12 * rng.standard_normal(len(theta)) for _ in range(steps - 1)] + [0.0]
    stats = ContributionStats()
    random = {"noise": np.random.default_rng(3), "stats": stats, "multiplier": 0.3}
    change = run(gradients, theta, x, y, recipe, np.random.default_rng(4), **random)
    expected, seen = theta.copy(), ContributionStats()
    for batch, extra in zip(
        partition_batches(20, size, steps, order=np.random.default_rng(4)), noise
    ):
        start = torch.from_numpy(expected).float()
        each = [gradients.sum(start, x[i : i + 1], y[i : i + 1], stats=seen).numpy() for i in batch]
        expected = expected - 0.7 * (sum(each) / size + extra)
    np.testing.assert_allclose(change, expected - theta, rtol=1e-5, atol=1e-6)
    assert (stats.units, stats.clipped, stats.nonfinite) == (size * steps, seen.clipped, 0)
    assert stats.norm_sum == pytest.approx(seen.norm_sum, rel=1e-5)


@pytest.mark.parametrize("size", [1, 2])
def test_runs_that_share_their_noise_train_as_they_do_alone_and_in_python(monkeypatch, size):
    gradients, theta, x, y = network("mlp")

    def training(rate, deviation, seed=3):
        return NoisyTraining(
            gradients=gradients,
            recipe=NoisySgd(43, size, rate),
            theta=theta,
            x=x,
            y=y,
            noise=TrainingNoise(deviation),
            noise_rng=np.random.default_rng(seed),
            order=np.random.default_rng(4),
            dropout_seed=0,
            stats=ContributionStats(),
        )

    settings = [(0.7, 0.1), (0.1, 0.1), (0.7, 0.3), (0.7, 0.0)]
    works = [training(*own) for own in settings]
    assert len({work.batch_key for work in works}) == 1
    assert training(0.7, 0.1, seed=5).batch_key != works[0].batch_key
    shared = NoisyTraining.run_batch(works)
    alone = [training(*own).run() for own in settings]
    monkeypatch.setattr(NoisyTraining, "program", None)
    for (change, last), *others in zip(shared, alone, [training(*own).run() for own in settings]):
        for expected, own in others:
            assert np.array_equal(change, expected)
            assert (last.units, last.clipped) == (own.units, own.clipped)
            assert last.norm_sum == pytest.approx(own.norm_sum)


@pytest.mark.parametrize("size", [1, 4])
def test_the_noise_of_all_steps_but_the_last_adds_up(size):
    """Records of zeros on a layer without bias have no gradient: what remains is noise."""
    gradients, theta, x, y = problem(Linear(bias=False), features=800)
    rng, steps, total = np.random.default_rng(5), 6, 0.0
    for _ in range(4):
        recipe = NoisySgd(steps, size, 0.3)
        change = run(
            gradients, theta, 0 * x, y, recipe, rng, multiplier=1.7 / gradients.clip, noise=rng
        )
        total += float((change**2).sum()) / ((steps - 1) * (0.3 * 1.7) ** 2)
    assert min(chi2.cdf(total, 4 * 2400), chi2.sf(total, 4 * 2400)) > 1e-6


def test_without_noise_and_clipping_a_full_batch_is_gradient_descent():
    gradients, theta, x, y = problem(clip=float("inf"))
    change = run(gradients, theta, x, y, NoisySgd(3, 20, 0.5), np.random.default_rng(0))
    optimizer = torch.optim.SGD(gradients.model.parameters(), lr=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(gradients.model(x), y).backward()
        optimizer.step()
    np.testing.assert_allclose(
        change, flatten(gradients.model).double().numpy() - theta, rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("size", [1, 10])
def test_dropout_comes_from_its_seed(size):
    gradients, theta, x, y = network("dropout")
    recipe = NoisySgd(2, size, 0.5)
    one, again, other = (
        run(gradients, theta, x, y, recipe, np.random.default_rng(0), seed) for seed in (1, 1, 2)
    )
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize("size", [0, 21])
def test_a_batch_that_cannot_be_filled_is_refused(size):
    gradients, theta, x, y = problem()
    with pytest.raises(ValueError, match=f"batches of {size} from 20 records"):
        run(gradients, theta, x, y, NoisySgd(1, size, 0.5), np.random.default_rng(0))


def test_long_records_are_scaled_and_short_ones_stay():
    x = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    torch.testing.assert_close(
        scaled_to(x, 1.0), torch.tensor([[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]])
    )
    images = torch.randn(5, 1, 4, 4)
    assert float(scaled_to(images, 2.0).flatten(1).norm(dim=1).max()) <= 2 * (1 + 1e-6)
