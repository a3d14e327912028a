import numpy as np
import pytest
import torch
from clipped_problems import (
    FLOATS,
    OTHERS,
    OWN,
    PROBLEMS,
    WAYS,
    OfSequences,
    Own,
    clipped_gradients,
    exactly_one_by_one,
    one_by_one,
    problem,
)
from torch import nn

from fedpriv.models.cnn import MnistCnn
from fedpriv.models.mlp import Mlp
from fedpriv.models.tasks import Classification
from fedpriv.training.clipped import ClippedGradients
from fedpriv.training.contributions import ContributionStats
from fedpriv.training.per_record import RecordGradients
from fedpriv.training.trainers.compiled.library import library
from fedpriv.training.vectors import flatten


@pytest.fixture(params=WAYS)
def way(request):
    return request.param


@pytest.mark.parametrize("name", [*PROBLEMS, *OWN])
def test_the_sum_is_that_of_a_loop_over_records(name, way):
    """Within a millionth of the clip for each record."""
    model, x, y, task = problem(name)
    rows = exactly_one_by_one(model, x, y, task)
    norms = rows.norm(dim=1)
    clip = float(norms.median())
    expected = (clip / norms).clamp(max=1) @ rows
    stats = ContributionStats()
    gradients = clipped_gradients(way, model, task, clip, shape=tuple(x.shape[1:]), dtype=x.dtype)
    found = gradients.sum(flatten(model), x, y, stats=stats)
    assert (found - expected).norm() <= 1e-6 * clip * len(x)
    assert (stats.units, stats.nonfinite) == (23, 0)
    assert abs(stats.clipped - 11) <= 1  # the median itself may fall on either side
    assert stats.norm_sum == pytest.approx(float(norms.sum()), rel=1e-5)


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("wrong", [np.nan, np.inf, 1e38, 1e3])
def test_a_record_without_a_finite_gradient_is_counted_and_left_out(name, wrong, way):
    model, x, y, task = problem(name)
    sick = x.clone()
    sick[3] = wrong
    theta, stats = flatten(model), ContributionStats()
    gradients = clipped_gradients(way, model, task, 0.5, shape=tuple(x.shape[1:]), dtype=x.dtype)
    total = gradients.sum(theta, sick, y, stats=stats)
    assert total.isfinite().all()
    healthy = torch.arange(23) != 3
    moved = (total - gradients.sum(theta, x[healthy], y[healthy])).norm()
    assert moved <= (0 if stats.nonfinite else 0.5) + 1e-4
    assert stats.units == 23
    assert stats.nonfinite == 1 or np.isfinite(wrong)


def test_no_records_sum_to_zero_and_the_model_stays_as_it_was():
    model, x, y, task = problem("mlp")
    model.eval()
    before = flatten(model)
    gradients = ClippedGradients(model, task, 1.0, shape=(5,))
    assert torch.equal(
        gradients.sum(before + 1, x[:0], y[:0]), torch.zeros(len(before), dtype=torch.float64)
    )
    gradients.sum(before + 1, x, y)
    assert torch.equal(flatten(model), before)
    assert not model.training
    assert all(p.grad is None and p.requires_grad for p in model.parameters())


class Doubled(nn.Sequential):
    """Not of layers alone, but torch.func takes it."""

    def forward(self, x):
        return super().forward(x) * 2.0


class Branching(nn.Sequential):
    """Its control flow depends on the records, so that it is taken record by record."""

    def forward(self, x):
        h = super().forward(x)
        return h * 2.0 if h.detach().sum().item() > 0 else h


@pytest.mark.parametrize("outer", [nn.Sequential, Doubled, Branching])
def test_groups_have_the_gradient_of_their_mean_loss(outer):
    torch.manual_seed(1)
    x, y, task = torch.randn(4, 3, 5), torch.arange(12).view(4, 3) % 2, Classification()
    model = outer(*Mlp([6], False, 0.0).build((5,), 2))
    rows = []
    for own, labels in zip(x, y):
        loss = task.loss(model(own), labels, torch.full((3,), 1 / 3))
        rows.append(
            torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])
        )
    norms = torch.stack(rows).norm(dim=1, keepdim=True)
    clip = float(norms.mean())  # some are clipped
    gradients = ClippedGradients(model, task, clip, shape=(5,), group=3)
    expected = (torch.stack(rows) * (clip / norms).clamp(max=1)).sum(0).double()
    torch.testing.assert_close(gradients.sum(flatten(model), x, y), expected, rtol=1e-4, atol=1e-6)


class Steps(nn.Module):
    """A linear layer on each of 16 steps, and the mean of what it computes."""

    def __init__(self):
        super().__init__()
        self.own = nn.Linear(5, 3)

    def forward(self, x):
        return self.own(x.view(x.size(0), 16, 5)).mean(1)


@pytest.mark.parametrize(
    ("build", "shape"),
    [
        (Steps, (80,)),
        (Steps, (16, 5)),
        (lambda: nn.Sequential(nn.Linear(5, 1), nn.Flatten()), (16, 5)),
    ],
)
def test_a_record_whose_layers_read_many_rows_stays_within_the_clip(build, shape):
    """Each of its steps was clipped by itself: a record moved the sum by up to 16 times the
    clip."""
    torch.manual_seed(1)
    model = build()
    gradients = ClippedGradients(model, Classification(), 0.01, shape=shape)
    for own in torch.randn(8, 1, *shape):
        total = gradients.sum(flatten(model), own, torch.zeros(1, dtype=torch.int64))
        assert total.norm() <= 0.01 * (1 + 1e-9)


@pytest.mark.parametrize("name", [*PROBLEMS, *OWN])
def test_in_double_precision_the_sum_is_that_of_autograd(name):
    model, x, y, task = problem(name)
    model = model.double()
    x = x.double() if x.is_floating_point() else x
    theta = flatten(model) + 0.1
    rows = one_by_one(model, theta, x, y, task)
    clip = float(rows.norm(dim=1).median())
    expected = (clip / rows.norm(dim=1)).clamp(max=1) @ rows
    gradients = ClippedGradients(model, task, clip, shape=tuple(x.shape[1:]), dtype=x.dtype)
    total = gradients.sum(theta, x, y)
    assert (total - expected).norm() <= 1e-9 * expected.norm()


def of_steps_with_dropout():
    body = nn.Sequential(nn.Linear(6, 9), nn.Dropout(0.3), nn.LayerNorm(9), nn.Dropout1d(0.5))
    return OfSequences(body, 9)


DROPPING = {
    "mlp": (Mlp([20, 9], True, 0.3), (6,)),
    "cnn": (MnistCnn([2, 3], 6, 0.5), (1, 20, 20)),
    "steps": (Own(of_steps_with_dropout), (7, 6)),
}


@pytest.mark.skipif(library() is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("name", DROPPING)
def test_compiled_sums_drop_what_the_records_drop(name):
    torch.manual_seed(1)
    config, shape = DROPPING[name]
    model = config.build(shape, 4)
    x, y = torch.randn(20, *shape), torch.arange(20) % 4
    gradients = ClippedGradients(model, Classification(), 0.5, shape=shape)

    def of(step):
        keys = np.arange(3, 23, dtype=np.uint64)
        return gradients.sum(flatten(model), x, y, keys=keys, step=step)

    assert gradients.compiled is not None
    total, other = of(0), of(1)
    gradients.compiled = None
    expected = of(0)
    assert (total - expected).norm() <= 1e-5 * expected.norm()
    assert (other - expected).norm() > 1e-2 * expected.norm()


@pytest.mark.skipif(library() is None, reason="needs a C++ compiler")
def test_other_types_are_left_to_torch():
    task = Classification()
    small = Mlp([3], False, 0.0).build((60,), 3)
    gradients = ClippedGradients(small, task, 1.0, shape=(60,))
    theta, x, y = flatten(small).double(), torch.randn(4, 60).double(), torch.arange(4) % 3
    exact = gradients.sum(theta, x, y)
    assert 0 < (gradients.sum(theta.float(), x.float(), y) - exact).norm() < 1e-5
    with pytest.raises(IndexError, match="labels from 0 to 3 for a network of 3"):
        gradients.sum(theta.float(), x.float(), torch.arange(4))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_a_gpu_agrees_with_the_processor(name):
    model, x, y, task = problem(name)
    shape = tuple(x.shape[1:])
    theta = flatten(model)
    want = ClippedGradients(model, task, 1.0, shape=shape).sum(theta, x, y)
    model.to("cuda")
    own = (t.to("cuda") for t in (theta, x, y))
    got = ClippedGradients(model, task, 1.0, shape=shape).sum(*own)
    torch.testing.assert_close(got.cpu(), want, rtol=1e-4, atol=1e-5)


# -- no bit of a record's clipped gradient depends on the batch that it is in, nor on threads ------


LENGTHS = [1, 3, 16, 17, 33, 160, 257, 300]


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("name", [*PROBLEMS, *OTHERS])
def test_a_gradient_has_the_same_bits_in_a_batch_of_any_length(name):
    """So that a record that is absent changes no gradient of another."""
    model, x, y, task = problem(name, max(LENGTHS))
    theta = flatten(model) + 0.1
    gradients = RecordGradients(model, task, 1, tuple(x.shape[1:]), x.dtype)
    x, y = x.unsqueeze(1), y.unsqueeze(1)
    whole = gradients(theta, x, y, {})
    for n in LENGTHS:
        for first in (0, n // 2):
            assert torch.equal(gradients(theta, x[first:n], y[first:n], {}), whole[first:n])


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", [*PROBLEMS, "layer norm", "one pixel"])
def test_a_clipped_gradient_has_the_same_bits_alone_and_among_zeros(name, way):
    """Records whose clip is 0 in float64 add exact zeros: what remains is one gradient."""
    model, x, y, task = problem(name, 40)
    theta = flatten(model) + 0.1
    given = {"shape": tuple(x.shape[1:]), "dtype": x.dtype}
    gradients = clipped_gradients(way, model, task, 1.0, **given)
    alone = gradients.sum(theta, x[7:8], y[7:8])
    if not x.is_floating_point():
        return
    others = torch.full_like(x, torch.nan)  # which count as zero
    others[7] = x[7]
    assert torch.equal(gradients.sum(theta, others, y), alone)


def assert_threads_change_no_bit(compute):
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(compute())
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


@pytest.mark.skipif(library() is None, reason="needs a C++ compiler")
def test_threads_change_no_bit_of_a_compiled_sum():
    model, x, y, task = problem("lstm", 300)
    gradients = ClippedGradients(model, task, 0.1, shape=tuple(x.shape[1:]))
    assert_threads_change_no_bit(lambda: gradients.sum(flatten(model), x, y))


def test_threads_change_no_bit_of_a_gradient_by_torch():
    """Two threads would part softplus where numbers that fill no vector round differently."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 4099), nn.Softplus(), nn.Linear(4099, 3))
    gradients = RecordGradients(model, Classification(), 1, (8,), torch.float32)
    x, y = torch.randn(16, 1, 8), torch.arange(16).unsqueeze(1) % 3
    assert_threads_change_no_bit(lambda: gradients(flatten(model), x, y, {}))
