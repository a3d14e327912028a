"""What becomes a graph trains as the network does; what cannot trains as it is, on fresh copies."""

import copy

import pytest
import torch
from one_by_one import PLAIN, assert_same, by_copies, silo, trained
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from fedpriv.models.tasks import Classification
from fedpriv.training.clipped import ClippedGradients
from fedpriv.training.description import Recipe
from fedpriv.training.evaluate import Evaluator, Labelled
from fedpriv.training.graph import Graph, Uncaptured, captured
from fedpriv.training.vectors import flatten, load

TASK = Classification()
COUNTS = [5, 1, 9, 4]
RECIPE = Recipe(2, 4, 0.1)


class Net(nn.Module):
    """Two layers, with something between them."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.last(functional.softsign(self.between(self.first(x))))

    def between(self, h):
        return h


class Dropping(Net):
    def between(self, h):
        return functional.dropout(h, 0.4, training=self.training)


class Overwriting(Net):
    def between(self, h):
        h += 1
        return functional.relu_(h)


class Scaled(Net):
    """Parameters that no layer has, registered first."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(5))

    def between(self, h):
        return h * self.scale


class ListedParameters(Net):
    """Nobody trains what no module registers."""

    def __init__(self):
        super().__init__()
        self.listed = [nn.Parameter(torch.rand(5))]

    def between(self, h):
        return h * self.listed[0]


class MakesTable(Net):
    table = None

    def between(self, h):
        if self.table is None:
            self.table = self.make()
        return h + self.table

    def make(self):
        return torch.linspace(0, 1, 5)


class DrawsTable(MakesTable):
    def make(self):
        return torch.randn(5, generator=torch.Generator().manual_seed(3))


class TrainsOtherwise(Net):
    def between(self, h):
        return 2 * h if self.training else h


class Sparse(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(9, 3, sparse=True)

    def forward(self, x):
        return self.words((x.abs() * 3).long() % 9).mean(1)


class LazyLayer(Net):
    def between(self, h):
        if "middle" not in self._modules:
            self.middle = nn.Linear(5, 5)
        return self.middle(h)


class LazyBuffer(Net):
    def between(self, h):
        mean = h.detach().mean(0)
        if "mean" not in self._buffers:
            self.register_buffer("mean", mean)
        else:
            self.mean = (self.mean + mean) / 2
        return h - self.mean


class ReplacesData(Net):
    """A bound on the norms of weights, as in EEGNet."""

    def forward(self, x):
        self.last.weight.data = torch.renorm(self.last.weight.data, p=2, dim=0, maxnorm=0.3)
        return super().forward(x)


class Counts(Net):
    passes = 0

    def between(self, h):
        self.passes += 1
        return h / self.passes


class Branches(Net):
    def between(self, h):
        return h if h.sum() > 0 else 2 * h


class ReadsLength(Net):
    def forward(self, x):
        return super().forward(x.reshape(len(x), 6))


class Checkpointed(Net):
    def between(self, h):
        return checkpoint(torch.tanh, h, use_reentrant=False)


class Hooked(Net):
    def __init__(self):
        super().__init__()
        self.first.register_forward_hook(lambda layer, x, y: 2 * y)


class WithoutGradient(Net):
    def between(self, h):
        with torch.no_grad():
            return 1 * h


CAPTURED = Net, Overwriting, Scaled, MakesTable, DrawsTable, Sparse, Dropping, Checkpointed
AS_THEY_ARE = (
    TrainsOtherwise,
    LazyBuffer,
    ReplacesData,
    Counts,
    Branches,
    ReadsLength,
    ListedParameters,
    Hooked,
    WithoutGradient,
)


def built(build):
    torch.manual_seed(0)
    return build()


@pytest.mark.parametrize("build", CAPTURED)
def test_what_can_be_traced_is_a_graph_in_training_and_in_evaluation(build):
    model = built(build)
    graph = captured(model, (6,))
    assert isinstance(graph, Graph)
    assert captured(model, (6,)) is graph
    assert [own.shape for own in graph.parameters()] == [own.shape for own in model.parameters()]
    x = torch.randn(7, 6)
    for train in (True, False):
        outputs = []
        for own in (model, graph):
            torch.manual_seed(1)
            outputs.append(own.train(train)(x.clone()))
        assert torch.equal(*outputs)


@pytest.mark.parametrize("build", AS_THEY_ARE)
def test_what_cannot_be_traced_says_why(build):
    found = captured(built(build), (6,))
    assert isinstance(found, Uncaptured)
    assert found.reason
    assert "\n" not in found.reason


@pytest.mark.parametrize("build", [*CAPTURED, *AS_THEY_ARE])
def test_users_train_as_on_fresh_copies(build):
    model = built(build)
    data, theta = silo(COUNTS, (6,), TASK), flatten(model)
    before = copy.deepcopy(model.state_dict())
    got = trained(model, theta, data, TASK, RECIPE, execution=PLAIN)
    assert_same(got, by_copies(model, theta, data, TASK, RECIPE), theta)
    assert model.state_dict().keys() == before.keys()
    assert all(torch.equal(before[name], own) for name, own in model.state_dict().items())


@pytest.mark.parametrize("build", [own for own in (*CAPTURED, *AS_THEY_ARE) if own is not Dropping])
def test_records_and_scores_are_those_of_fresh_copies(build):
    model = built(build)
    data, theta = silo(COUNTS, (6,), TASK), flatten(model)
    rows = []
    for x, y in zip(data.x.split(1), data.y.split(1)):
        own = copy.deepcopy(model).train()
        TASK.loss(own(x), y, torch.ones(1)).backward()
        parts = [
            torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in own.parameters()
        ]
        rows.append(torch.cat([part.to_dense().flatten() for part in parts]).double())
    expected = sum(row * min(1.0, 0.3 / float(row.norm())) for row in rows)
    total = ClippedGradients(model, TASK, 0.3, shape=(6,)).sum(theta, data.x, data.y)
    torch.testing.assert_close(total, expected, rtol=1e-5, atol=1e-6)
    score, _ = Evaluator(model, TASK).evaluate(theta, Labelled(data.x, data.y))
    weight = torch.full((len(data.x),), 1 / len(data.x))
    outputs = copy.deepcopy(model).eval()(data.x)
    assert score == pytest.approx(float(TASK.loss(outputs, data.y, weight)), rel=1e-6)


def test_a_layer_that_the_first_pass_makes_trains_nobody_else():
    """No vector has its parameters: each user's copy draws its own."""
    model = built(LazyLayer)
    assert isinstance(captured(model, (6,)), Uncaptured)
    data, theta = silo(COUNTS, (6,), TASK), flatten(model)
    whole = trained(model, theta, data, TASK, RECIPE, execution=PLAIN)
    again = trained(model, theta, data, TASK, RECIPE, chosen=[2], execution=PLAIN)
    assert torch.equal(whole[2], again[0])
    assert "middle" not in dict(model.named_children())


def test_the_graph_keeps_its_numbers_when_the_network_moves():
    model = built(Net)
    graph = captured(model, (6,))
    before = flatten(graph)
    load(model, flatten(model) + 1)
    assert torch.equal(flatten(graph), before)
