"""Networks that change themselves, their parameters, their records or something outside in a pass,
and networks that torch.func cannot compute."""

import copy
from collections import deque

import numpy as np
import pytest
import torch
from one_by_one import assert_same, by_copies, silo, trained
from torch import fx, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from fedpriv.errors import ConfigError
from fedpriv.models.tasks import Classification
from fedpriv.training.batch_sums import BatchSums
from fedpriv.training.clipped import clipped_gradients
from fedpriv.training.description import Execution, Recipe
from fedpriv.training.evaluate import Evaluator, Labelled, training_loss
from fedpriv.training.vectors import flatten, load
from fedpriv.util.work import run_work

TASK = Classification()
COUNTS = [5, 1, 9, 4, 2, 3]
RECIPE = Recipe(2, 4, 0.1)
CLIP = 0.3


class Net(nn.Module):
    """Two layers, with something between them."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.last(functional.softsign(self.between(self.first(x))))

    def between(self, h):
        return h


class LazyBuffer(Net):
    def between(self, h):
        mean = h.detach().mean(0)
        if "mean" not in self._buffers:
            self.register_buffer("mean", mean)
        else:
            self.mean = (self.mean + mean) / 2
        return h - self.mean


class LazyLayer(Net):
    def between(self, h):
        if "middle" not in self._modules:
            self.middle = nn.Linear(5, 5)
        return self.middle(h)


class ReplacesParameter(Net):
    def forward(self, x):
        self.last.weight = nn.Parameter(self.last.weight.detach() * 0.9)
        return super().forward(x)


class ReplacesData(Net):
    """A bound on the norms of weights, as in EEGNet."""

    def forward(self, x):
        self.last.weight.data = torch.renorm(self.last.weight.data, p=2, dim=0, maxnorm=0.3)
        return super().forward(x)


class ClampsWeights(Net):
    def forward(self, x):
        with torch.no_grad():
            self.last.weight.clamp_(-0.1, 0.1)
        return super().forward(x)


class LayerWithDictionary(Net):
    def __init__(self):
        super().__init__()
        self.first.seen = {"passes": 0}

    def between(self, h):
        self.first.seen["passes"] += 1
        return h / self.first.seen["passes"]


class LayerWithTensor(Net):
    def __init__(self):
        super().__init__()
        self.first.mean = torch.zeros(5)

    def between(self, h):
        self.first.mean.mul_(0.9).add_(h.detach().mean(0))
        return h - self.first.mean


class Named(dict):
    passes = 0


class CollectionWithAttribute(Net):
    def __init__(self):
        super().__init__()
        self.seen = Named()

    def between(self, h):
        self.seen.passes += 1
        return h / self.seen.passes


class ParameterWithAttribute(Net):
    def between(self, h):
        self.last.bias.passes = getattr(self.last.bias, "passes", 0) + 1
        return h / self.last.bias.passes


class Queue(Net):
    def __init__(self):
        super().__init__()
        self.last_means = deque(maxlen=3)

    def between(self, h):
        self.last_means.append(h.detach().mean())
        return h - sum(self.last_means)


class LayerWithPrivateList(Net):
    def __init__(self):
        super().__init__()
        self.first._passes = [0]

    def between(self, h):
        self.first._passes[0] += 1
        return h / self.first._passes[0]


class LayerWithQueue(Net):
    def __init__(self):
        super().__init__()
        self.first.seen = deque([0])

    def between(self, h):
        self.first.seen[0] += 1
        return h / self.first.seen[0]


class ChangesModes(Net):
    """The first pass differs."""

    def between(self, h):
        if self.first.training:
            self.first.eval()
            return 2 * h
        return h


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.eye(5))
        self._passes = [0]

    def forward(self, h):
        self._passes[0] += 1
        return h @ self.weight / self._passes[0]


class ParametrisedOwnLayer(Net):
    """torch makes its class anew."""

    def __init__(self):
        super().__init__()
        self.scale = nn.utils.parametrizations.weight_norm(Scale())

    def between(self, h):
        return self.scale(h)


class OverwritesRecords(Net):
    def forward(self, x):
        x.mul_(0.5)
        return super().forward(x)


class SparseEmbedding(nn.Module):
    """Of features that are whole numbers."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(4, 5, sparse=True)
        self.last = nn.Linear(5, 3)

    def forward(self, x):
        words = self.embedding((3 * x.sigmoid()).long())
        return self.last(functional.softsign(words.mean(1)))


class EmbeddedFeature(nn.Module):
    """No feature below zero or above three is known."""

    def __init__(self):
        super().__init__()
        self.embedding, self.last = nn.Embedding(4, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.last(functional.softsign(self.embedding(x[:, 0].long()) + x[:, 1:]))


class ListedParameters(Net):
    def __init__(self):
        super().__init__()
        self.weights = [self.first.weight, self.last.weight]

    def forward(self, x):
        first, last = self.weights
        return functional.linear(functional.softsign(functional.linear(x, first)), last)


class Checkpointed(Net):
    def __init__(self, reentrant=False):
        super().__init__()
        self.reentrant = reentrant

    def forward(self, x):
        h = checkpoint(self.first, x.requires_grad_(), use_reentrant=self.reentrant)
        return self.last(functional.softsign(h))


class Branches(Net):
    def between(self, h):
        return h if h.mean() > 0 else 2 * h


class Half(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient / 2


class HalvesGradients(Net):
    def between(self, h):
        return Half.apply(h)


class AsksForType(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.last = nn.LSTM(2, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, x):
        _, memory = self.cell(x.view(-1, 3, 2))
        h = memory[0] if type(self.cell) is nn.LSTM else memory
        return functional.softsign(self.last(h[-1].reshape(len(x), 5)))


def lstm_with_weight_norm():
    model = AsksForType()
    nn.utils.parametrizations.weight_norm(model.cell, "weight_hh_l0")
    return model


CHANGING = [
    LazyBuffer,
    LazyLayer,
    ReplacesParameter,
    ReplacesData,
    ClampsWeights,
    LayerWithDictionary,
    LayerWithTensor,
    CollectionWithAttribute,
    ParameterWithAttribute,
    Queue,
    LayerWithPrivateList,
    LayerWithQueue,
    ParametrisedOwnLayer,
    ChangesModes,
    OverwritesRecords,
    SparseEmbedding,
    EmbeddedFeature,
    ListedParameters,
    Checkpointed,
    lambda: Checkpointed(reentrant=True),
    Branches,
    HalvesGradients,
    AsksForType,
    lstm_with_weight_norm,
]


def problem(build):
    torch.manual_seed(0)
    model = build()
    data = silo(COUNTS, (6,), TASK)
    if build is EmbeddedFeature:
        data.x[:, 0] = (2 * data.x[:, 0].abs()).floor().clamp(max=3)
    return model, flatten(model), data


@pytest.mark.parametrize("trainer", ["auto", "sequential"])
@pytest.mark.parametrize("build", CHANGING)
def test_users_train_as_by_a_plain_loop_on_copies(build, trainer):
    model, theta, data = problem(build)
    records = data.x.clone()
    before = [(own, own.clone()) for own in (*model.parameters(), *model.buffers())]
    want = by_copies(model, theta, data, TASK, RECIPE)
    for _ in range(2):  # nothing stays for the next round
        got = trained(model, theta, data, TASK, RECIPE, execution=Execution(trainer))
        assert_same(got, want, theta)
    alone = trained(model, theta, data, TASK, RECIPE, [1, 4], execution=Execution(trainer))
    assert torch.equal(alone, got[[1, 4]])
    assert torch.equal(records, data.x)
    tensors = (*model.parameters(), *model.buffers())
    assert all(
        one is own and torch.equal(one, value)
        for one, (own, value) in zip(tensors, before, strict=True)
    )
    copy.deepcopy(model)


RECORDS_REMEMBERED = {
    LazyBuffer,
    ReplacesParameter,
    LayerWithDictionary,
    LayerWithTensor,
    CollectionWithAttribute,
    ParameterWithAttribute,
    Queue,
    LayerWithPrivateList,
    LayerWithQueue,
    ParametrisedOwnLayer,
    ChangesModes,
}


def sums(kind, model, data):
    if kind == "one batch":
        gradients = clipped_gradients(model, TASK, CLIP, shape=(6,))
        return lambda theta: gradients.sum(theta, data.x, data.y)
    keys = np.arange(len(data.x), dtype=np.uint64)
    rows = data.x.unsqueeze(1), data.y.unsqueeze(1)
    asked = BatchSums(CLIP, model, TASK, *rows, lambda: keys, None, alone=True).asked
    return lambda theta: run_work(asked(theta, np.arange(len(data.x))))


@pytest.mark.parametrize("kind", ["one batch", "steps"])
@pytest.mark.parametrize("build", CHANGING)
def test_clipped_sums_are_autograds_or_refused(build, kind):
    model, theta, data = problem(build)
    theta = theta + 0.1 * torch.randn(len(theta))
    if build in (*RECORDS_REMEMBERED, LazyLayer):
        with pytest.raises(ConfigError, match=r"keeps nothing from one pass|random numbers"):
            sums(kind, model, data)(theta)
        copy.deepcopy(model)
        return
    want = torch.zeros(len(theta), dtype=torch.float64)
    for x, y in zip(data.x.split(1), data.y.split(1)):
        own = copy.deepcopy(model).train()
        load(own, theta)
        TASK.loss(own(x.clone()), y, torch.ones(1)).backward()
        parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in own.parameters()]
        gradient = torch.cat([part.to_dense().flatten() for part in parts]).double()
        want += gradient * min(1.0, CLIP / float(gradient.norm()))
    before = flatten(model)
    torch.testing.assert_close(sums(kind, model, data)(theta), want, rtol=1e-5, atol=1e-6)
    assert torch.equal(before, flatten(model))
    copy.deepcopy(model)


@pytest.mark.parametrize(
    "build",
    [
        ReplacesData,
        ReplacesParameter,
        ClampsWeights,
        OverwritesRecords,
        Checkpointed,
        Queue,
        LazyBuffer,
    ],
)
def test_scores_are_those_of_fresh_copies(build):
    model, theta, data = problem(build)
    records = data.x.clone()
    weight = torch.full((len(records),), 1 / len(records))
    evaluator, labelled = Evaluator(model, TASK), Labelled(data.x, data.y)
    for change in (0.0, 0.5, 1.0):
        point = theta + change * torch.randn(len(theta))
        own = copy.deepcopy(model).eval()
        load(own, point)
        loss = TASK.loss(own(records.clone()), data.y, weight)
        leaves = list(own.parameters())
        loss.backward()
        gradient = torch.cat([p.grad.flatten() for p in leaves])
        if build is not Checkpointed:  # needs gradients
            score, _ = evaluator.evaluate(point, labelled)
            assert score == pytest.approx(loss.item(), rel=1e-6)
        found = training_loss(model, point, silos=2 * [(data.x, data.y)], task=TASK)
        assert found.loss == pytest.approx(loss.item(), rel=1e-6)
        if build is not ReplacesParameter:  # which the gradient then is not of
            torch.testing.assert_close(found.gradient.float(), gradient, rtol=1e-5, atol=1e-6)
        assert torch.equal(records, data.x)
        assert torch.equal(theta, flatten(model))


class Forces(Net):
    """Computes gradients of its own, in evaluation too."""

    def forward(self, x):
        with torch.enable_grad():
            x = x.requires_grad_()
            energy = super().forward(x).square().sum()
            [forces] = torch.autograd.grad(energy, x, create_graph=True)
        return forces[:, :3]


def test_networks_that_compute_gradients_are_evaluated():
    model, theta, data = problem(Forces)
    score, _ = Evaluator(model, TASK).evaluate(theta, Labelled(data.x, data.y))
    weight = torch.full((len(data.x),), 1 / len(data.x))
    assert score == pytest.approx(TASK.loss(model(data.x.clone()), data.y, weight).item())


class DropsSome(Net):
    """Not the records of zeros that show the shapes of masks."""

    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        h = functional.softsign(self.first(x))
        return self.last(self.drop(h) if x.mean() > 0 else h)


def test_dropout_whose_masks_are_unknown_is_refused():
    """It kept everything."""
    model, theta, data = problem(DropsSome)
    with pytest.raises(ConfigError, match="model=Dropout: dropout that every record calls"):
        sums("steps", model, data)(theta)


class MakesTable(Net):
    """At its first pass."""

    table = None

    def between(self, h):
        if self.table is None:
            self.table = torch.arange(5).cos()
        return h + self.table


class KeepsFirstMean(Net):
    mean = None

    def between(self, h):
        if self.mean is None:
            self.mean = h.detach().mean(-1, keepdim=True)
        return h - self.mean


class KeepsFirstSize(Net):
    """Counts large numbers."""

    size = None

    def forward(self, x):
        if self.size is None:
            self.size = float((x.abs() > 2).sum())
        return super().forward(x) * (1 + self.size)


class KeepsFirstGradient(Net):
    """Zeros whose gradient is not zero."""

    zeros = None

    def between(self, h):
        if self.zeros is None:
            self.zeros = self.last.weight.sum(0) - self.last.weight.detach().sum(0)
        return h + self.zeros


class KeepsFirstLength(Net):
    """A row for each record of a batch."""

    ones = None

    def between(self, h):
        if self.ones is None:
            self.ones = torch.ones(len(h), 1)
        return torch.cat([h[:, 1:], self.ones], 1)


class RegistersTable(Net):
    def between(self, h):
        if "table" not in self._buffers:
            self.register_buffer("table", torch.arange(5).cos())
        return h + self.table


class ScalesTable(MakesTable):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.ones(()))

    def between(self, h):
        return super().between(h) * self.scale


class Tokens(nn.Module):
    """Reads four token ids below 11."""

    kept = None

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(11, 5), nn.Linear(5, 3)

    def forward(self, x):
        if self.kept is None:
            self.kept = self.table(x)
        return self.head((self.embedding(x) + self.kept).mean(-2))


class PlacesOfTokens(Tokens):
    def table(self, x):
        return torch.arange(x.shape[-1]).cos().unsqueeze(-1)


class KeepsFirstPadding(Tokens):
    def table(self, x):
        return (x == 0).float().unsqueeze(-1)


def clipped_one_by_one(model, theta, xs, ys):
    total = torch.zeros(len(theta), dtype=torch.float64)
    for x, y in zip(xs.split(1), ys.split(1)):
        own = copy.deepcopy(model)
        load(own, theta)
        leaves = list(own.parameters())
        TASK.loss(own(x), y, torch.ones(1)).backward()
        gradient = torch.cat([p.grad.flatten() for p in leaves]).double()
        total += gradient * min(1.0, CLIP / float(gradient.norm()))
    return total


TABLES = [
    MakesTable,
    KeepsFirstGradient,
    KeepsFirstLength,
    RegistersTable,
    ScalesTable,
]


@pytest.mark.parametrize("kind", ["one batch", "steps"])
@pytest.mark.parametrize("build", TABLES)
def test_what_the_first_pass_makes_is_made_for_each_record(build, kind):
    """A record would leave it for the next ones, and zeros leave other things than records."""
    model, theta, data = problem(build)
    theta = theta + 0.1
    names = vars(model).copy()
    for value in (1.0, 3.0):
        for buffer in model.buffers():
            buffer.fill_(value)
        want = clipped_one_by_one(model, theta, data.x, data.y)
        for _ in range(2):
            found = sums(kind, model, data)(theta)
            torch.testing.assert_close(found, want, rtol=1e-5, atol=1e-6)
    assert vars(model) == names


class DrawsTable(MakesTable):
    def between(self, h):
        if self.table is None:
            self.table = torch.randn(5, generator=torch.Generator().manual_seed(1))
        return h + self.table


def test_a_table_from_a_seed_of_its_own_is_every_records():
    model, theta, data = problem(DrawsTable)
    want = clipped_one_by_one(model, theta, data.x, data.y)
    found = sums("one batch", model, data)(theta)
    torch.testing.assert_close(found, want, rtol=1e-5, atol=1e-6)


class Keeps:
    padding = None


class HidesPadding(Tokens):
    """Of the first pass, in an attribute's attribute."""

    def __init__(self):
        super().__init__()
        self.keeps = Keeps()

    def forward(self, x):
        if self.keeps.padding is None:
            self.keeps.padding = (x == 0).float().unsqueeze(-1)
        return self.head((self.embedding(x) + self.keeps.padding).mean(-2))


@pytest.mark.parametrize("build", [PlacesOfTokens, KeepsFirstPadding, HidesPadding])
def test_what_the_first_pass_makes_of_tokens_is_made_for_each_record(build):
    torch.manual_seed(0)
    model = build()
    theta = flatten(model) + 0.1
    x, y = torch.randint(0, 11, (20, 4)), torch.randint(0, 3, (20,))
    want = clipped_one_by_one(model, theta, x, y)
    gradients = clipped_gradients(model, TASK, CLIP, shape=(4,), dtype=x.dtype)
    for order in (torch.arange(20), torch.arange(20).flip(0)):
        found = gradients.sum(theta, x[order], y[order])
        torch.testing.assert_close(found, want, rtol=1e-5, atol=1e-6)
    copy.deepcopy(model)


@pytest.mark.parametrize("kind", ["one batch", "steps"])
@pytest.mark.parametrize("build", [KeepsFirstMean, KeepsFirstSize])
def test_statistics_of_the_first_records_are_refused(build, kind):
    model, theta, data = problem(build)
    with pytest.raises(ConfigError, match="keeps nothing from one pass to the next"):
        sums(kind, model, data)(theta)


class EvaluatesPart(Net):
    """In every pass."""

    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def between(self, h):
        return self.drop.eval()(h)


@pytest.mark.parametrize("trainer", ["auto", "sequential"])
def test_a_pass_may_put_a_part_in_evaluation_mode(trainer):
    model, theta, data = problem(EvaluatesPart)
    want = by_copies(model, theta, data, TASK, RECIPE)
    got = trained(model, theta, data, TASK, RECIPE, execution=Execution(trainer))
    assert_same(got, want, theta)
    assert sums("one batch", model, data)(theta).any()


GENERATOR = np.random.default_rng(0)
COUNTER = torch.zeros(())


class DrawsOutside(Net):
    def between(self, h):
        return h * float(GENERATOR.random())


class CountsOutside(Net):
    def between(self, h):
        COUNTER.add_(1)
        return h / COUNTER


@fx.wrap
def counted(h):
    COUNTER.add_(1)
    return h / COUNTER


class CallsCounted(Net):
    def between(self, h):
        return counted(h)


def graph_counts_outside():
    return fx.symbolic_trace(CallsCounted())


class CountsInHook(Net):
    def __init__(self):
        super().__init__()
        passes = []

        def hook(layer, read, written):
            passes.append(1)
            return written / len(passes)

        self.first.register_forward_hook(hook)


class Draws(Scale):
    def forward(self, h):
        return h @ self.weight * float(GENERATOR.random())


class ParametrisedLayerDraws(Net):
    def __init__(self):
        super().__init__()
        self.scale = nn.utils.parametrizations.weight_norm(Draws())

    def between(self, h):
        return self.scale(h)


@pytest.mark.parametrize("trainer", ["auto", "sequential"])
@pytest.mark.parametrize(
    "build",
    [DrawsOutside, CountsOutside, graph_counts_outside, CountsInHook, ParametrisedLayerDraws],
)
def test_what_users_would_share_outside_is_refused(build, trainer):
    model, theta, data = problem(build)
    with pytest.raises(ConfigError, match="changes no variable outside the network"):
        trained(model, theta, data, TASK, RECIPE, execution=Execution(trainer))
    with pytest.raises(ConfigError, match="keeps nothing from one pass to the next"):
        sums("one batch", model, data)(theta)


def test_hooks_that_keep_what_they_see_are_supported():
    model, theta, data = problem(Net)
    seen = {}
    model.first.register_forward_hook(lambda layer, read, written: seen.update(last=written))
    want = by_copies(model, theta, data, TASK, RECIPE)
    assert_same(trained(model, theta, data, TASK, RECIPE), want, theta)


class PassesParametersBy(Net):
    """For some records."""

    def forward(self, x):
        return super().forward(x) if x.mean() > 0 else x[:, :3]


@pytest.mark.parametrize("trainer", ["auto", "sequential"])
def test_records_that_pass_parameters_by_have_no_gradient(trainer):
    """RuntimeError of torch was raised."""
    model, theta, data = problem(PassesParametersBy)
    recipe = Recipe(1, 1, 0.1)
    moved = trained(model, theta, data, TASK, recipe, execution=Execution(trainer))
    used = [float(rows.mean(1).max()) > 0 for rows in data.x.split(COUNTS)]
    assert [bool(own.any()) for own in moved] == used
    assert not all(used)
    x, y = data.x[data.x.mean(1) <= 0], data.y[data.x.mean(1) <= 0]
    assert not clipped_gradients(model, TASK, CLIP, shape=(6,)).sum(theta, x, y).any()
    assert not training_loss(model, theta, silos=[(x - 9, y)], task=TASK).gradient.any()
