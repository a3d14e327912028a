import numpy as np
import pytest
import torch
from one_by_one import Tokens, token_silo
from scipy.stats import chi2

from fedpriv.mechanisms.base import TrainingNoise
from fedpriv.models.cnn import MnistCnn
from fedpriv.models.linear import Linear
from fedpriv.models.mlp import Mlp
from fedpriv.models.tasks import Classification
from fedpriv.training.clipped import ClippedGradients
from fedpriv.training.contributions import ContributionStats
from fedpriv.training.noisy_sgd import partition_batches, scaled_to
from fedpriv.training.noisy_steps import NoisySteps
from fedpriv.training.vectors import flatten


def steps(gradients, theta, x, y, number, size, rate, order, *, deviation=0.0, noise=3, **more):
    """Steps on batches of `size`, with noise of this deviation on their means but for the last."""
    return NoisySteps(
        gradients=gradients,
        theta=theta,
        x=x,
        y=y,
        batches=partition_batches(len(x), size, number, order=np.random.default_rng(order)),
        batch_size=size,
        rates=np.full(number, rate / size),
        noise=TrainingNoise(size * deviation),
        noise_rng=np.random.default_rng(noise) if isinstance(noise, int) else noise,
        noised=number - 1,
        **{"stats": ContributionStats(), "keys": np.arange(len(x), dtype=np.uint64), **more},
    )


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
        ClippedGradients(model, Classification(), 0.4, shape=shape, dtype=x.dtype),
        flatten(model).double().numpy(),
        x,
        y,
    )


def slow_loop(gradients, theta, x, y, number, size, rate, deviation, keys):
    """The steps of `steps`, record after record, and their statistics."""
    rng, stats, current = np.random.default_rng(3), ContributionStats(), theta.copy()
    order = np.random.default_rng(4)
    for step, batch in enumerate(partition_batches(len(x), size, number, order=order)):
        start = torch.from_numpy(current).float()
        total = np.zeros(len(theta))
        for i in batch:
            one = slice(i, i + 1)
            given = {"keys": keys[one], "step": step, "stats": stats}
            total += gradients.sum(start, x[one], y[one], **given).numpy()
        noise = deviation * rng.standard_normal(len(theta)) if step < number - 1 else 0.0
        current = current - rate * (total / size + noise)
    return current - theta, stats


@pytest.mark.parametrize(("number", "size"), [(1, 8), (2, 8), (5, 8), (1, 1), (2, 1), (43, 1)])
@pytest.mark.parametrize("name", NETWORKS)
def test_it_is_a_slow_loop_over_records(name, number, size):
    gradients, theta, x, y = network(name)
    stats, keys = ContributionStats(), np.arange(50, 50 + len(x), dtype=np.uint64)
    given = gradients, theta, x, y, number, size, 0.7
    change, _ = steps(*given, 4, deviation=0.12, stats=stats, keys=keys).run()
    expected, seen = slow_loop(*given, 0.12, keys)
    np.testing.assert_allclose(change, expected, rtol=1e-5, atol=1e-6)
    assert (stats.units, stats.clipped, stats.nonfinite) == (size * number, seen.clipped, 0)
    assert stats.norm_sum == pytest.approx(seen.norm_sum, rel=1e-5)


@pytest.mark.parametrize("size", [1, 2, 150])
@pytest.mark.parametrize("name", ["mlp", "dropout", "embedding"])
def test_runs_that_share_their_noise_train_as_they_do_alone_and_in_python(monkeypatch, name, size):
    gradients, theta, x, y = network(name)
    x, y = x.repeat(9, *[1] * (x.dim() - 1)), y.repeat(9)
    anchor = np.linspace(-1, 1, len(theta))

    def training(rate, deviation, pull=0.0, noise=3):
        given = gradients, theta, x, y, 43, size, rate, 4
        return steps(*given, deviation=deviation, noise=noise, pull=pull, anchor=anchor)

    settings = [(0.7, 0.1), (0.1, 0.1), (0.7, 0.3), (0.7, 0.0), (0.3, 0.1, 0.2), (0.7, 0.1, 0, 5)]
    works = [training(*own) for own in settings]
    assert len({work.batch_key for work in works}) == 1
    assert None not in {work.batch_key for work in works}
    shared = NoisySteps.run_batch(works)
    alone = [training(*own).run() for own in settings]
    monkeypatch.setattr(NoisySteps, "program", None)
    for (change, last), *others in zip(shared, alone, [training(*own).run() for own in settings]):
        for expected, own in others:
            assert np.array_equal(change, expected)
            assert (last.units, last.clipped) == (own.units, own.clipped)
            assert last.norm_sum == pytest.approx(own.norm_sum)


@pytest.mark.parametrize("size", [1, 4])
def test_the_noise_of_all_steps_but_the_last_adds_up(size):
    """Records of zeros on a layer without bias have no gradient: what remains is noise."""
    gradients, theta, x, y = problem(Linear(bias=False), features=800)
    rng, total = np.random.default_rng(5), 0.0
    for order in range(4):
        work = steps(gradients, theta, 0 * x, y, 6, size, 0.3, order, deviation=1.7, noise=rng)
        total += float((work.run()[0] ** 2).sum()) / (5 * (0.3 * 1.7) ** 2)
    assert min(chi2.cdf(total, 4 * 2400), chi2.sf(total, 4 * 2400)) > 1e-6


def test_without_noise_and_clipping_a_full_batch_is_gradient_descent():
    gradients, theta, x, y = problem(clip=float("inf"))
    change, _ = steps(gradients, theta, x, y, 3, 20, 0.5, 0).run()
    model = gradients.model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    np.testing.assert_allclose(
        change, flatten(model).double().numpy() - theta, rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("size", [1, 10])
def test_dropout_comes_from_its_keys(size):
    gradients, theta, x, y = network("dropout")
    one, again, other = (
        steps(
            gradients, theta, x, y, 2, size, 0.5, 0, keys=first + np.arange(20, dtype=np.uint64)
        ).run()[0]
        for first in (1, 1, 30)
    )
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize("size", [0, 21])
def test_a_batch_that_cannot_be_filled_is_refused(size):
    with pytest.raises(ValueError, match=f"batches of {size} from 20 records"):
        list(partition_batches(20, size, 1, order=np.random.default_rng(0)))


def test_long_records_are_scaled_and_short_ones_stay():
    x = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    torch.testing.assert_close(
        scaled_to(x, 1.0), torch.tensor([[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]])
    )
    images = torch.randn(5, 1, 4, 4)
    assert float(scaled_to(images, 2.0).flatten(1).norm(dim=1).max()) <= 2 * (1 + 1e-6)
