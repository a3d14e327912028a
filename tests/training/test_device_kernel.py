"""The GPU's kernel. Its source is built for the processor here; on a machine with a GPU it runs
there too."""

import copy
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from kernel_on_processor import processor_program
from one_by_one import PARTY, ROUND, STREAMS, assert_same, cnn, mlp, one_by_one, silo, trained
from torch import nn

from fedpriv.errors import ConfigError
from fedpriv.models.regression import ExponentialSurvival, Regression
from fedpriv.models.tasks import BinaryClassification, Classification, CoxRegression
from fedpriv.training import faster_device
from fedpriv.training.description import Execution, Recipe
from fedpriv.training.layers.chain import Unmapped
from fedpriv.training.optimizers import Sgd
from fedpriv.training.select import example_problem
from fedpriv.training.trainers.base import TrainingUsers
from fedpriv.training.trainers.compiled.library import library
from fedpriv.training.trainers.device.nvrtc import build
from fedpriv.training.trainers.device.trainer import SOURCE, Device, device_network_of, kernel_texts
from fedpriv.training.vectors import flatten

pytestmark = pytest.mark.skipif(library() is None, reason="needs a C++ compiler")
COUNTS = [5, 1, 9, 16, 17, 3, 70, 8]
DEVICE, COMPILED = Execution("device"), Execution("compiled")
SHARED = 227 * 1024


def functions():
    """Every function of single numbers, and normalisation without parameters."""
    return nn.Sequential(
        nn.Linear(9, 12),
        nn.Tanh(),
        nn.Linear(12, 12, bias=False),
        nn.SiLU(),
        nn.Linear(12, 70),
        nn.GELU(),
        nn.Linear(70, 5),
        nn.GELU(approximate="tanh"),
        nn.LayerNorm(5, elementwise_affine=False),
        nn.Sigmoid(),
        nn.Linear(5, 3),
    )


def unpooled():
    """Convolutions without windows, of kernels that are no squares."""
    return nn.Sequential(
        nn.Conv2d(2, 4, 3),
        nn.ReLU(),
        nn.Conv2d(4, 3, (2, 3), bias=False),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(60, 3),
    )


NETWORKS = {
    "mlp": (mlp, (6,), Classification()),
    "binary": (lambda: mlp(outputs=1), (6,), BinaryClassification()),
    "regression": (lambda: mlp(outputs=1), (6,), Regression()),
    "survival": (lambda: mlp(outputs=1), (6,), ExponentialSurvival()),
    "functions": (functions, (9,), Classification()),
    "cnn": (cnn, (1, 12, 12), Classification()),
    "unpooled": (unpooled, (2, 8, 8), Classification()),
}


def problem(name, counts=COUNTS, **changes):
    torch.manual_seed(1)
    make, shape, task = NETWORKS[name]
    model = make(**changes)
    return model, flatten(model), silo(counts, shape, task), task


def example(model, theta, data, task, optimizer=Sgd()):
    return example_problem(
        DEVICE, model, theta, tuple(data.x.shape[1:]), task, optimizer, data.x.dtype
    )


def in_float64(model, theta, data, task, recipe, correction=None):
    labels = data.y.double() if data.y.is_floating_point() else data.y
    exact = replace(data, x=data.x.double(), y=labels)
    return one_by_one(
        copy.deepcopy(model).double(), theta.double(), exact, task, recipe, correction
    )


@pytest.fixture(scope="session")
def kernel(tmp_path_factory):
    """`by_kernel` with a folder of built kernels."""
    return partial(by_kernel, tmp_path_factory.mktemp("kernels"))


def by_kernel(
    folder,
    model,
    theta,
    data,
    task,
    recipe,
    chosen=None,
    *,
    correction=None,
    shared=SHARED,
    **sizes,
):
    """What `trained` returns, by the kernel on the processor. sizes: lanes and teams."""
    own = replace(example(model, theta, data, task), recipe=recipe, correction=correction)
    network = device_network_of(own, shared)
    chosen = np.arange(len(data.users)) if chosen is None else np.array(chosen)
    order = np.argsort(-data.counts[chosen], kind="stable")
    positions = chosen[order]
    keys = [
        STREAMS.unit_keys(name, ROUND, PARTY, data.users[positions])
        for name in ("batches", "dropout")
    ]
    size = recipe.batch_size or int(data.counts.max())
    device = Device(own, network, processor_program(network, folder, **sizes))
    changes, _ = device.run(TrainingUsers(data, positions, size, *keys), None)
    return changes[np.argsort(order)]


@pytest.mark.parametrize(
    "recipe", [Recipe(3, 8, 0.02), Recipe(2, None, 0.05), Recipe(2, 8, 0.02, proximal=0.7)], ids=str
)
@pytest.mark.parametrize("name", NETWORKS)
def test_every_recipe_equals_torch_in_float64(kernel, name, recipe):
    own = problem(name)
    correction = torch.linspace(-0.05, 0.1, len(own[1])) if recipe.proximal else None
    want = in_float64(*own, recipe, None if correction is None else correction.double())
    error = (kernel(*own, recipe, correction=correction) - want).norm(dim=1) / want.norm(dim=1)
    assert float(want.norm(dim=1).min()) > 1e-3
    assert float(error.max()) < 1e-5


@pytest.mark.parametrize("p", [0.5, 0.3])
@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_dropout_and_orders_are_those_of_compiled_training(kernel, name, p):
    own, recipe = problem(name, p=p), Recipe(5, 8, 0.05)
    assert_same(kernel(*own, recipe), trained(*own, recipe, execution=COMPILED), own[1])


def test_batches_that_do_not_fit_shared_memory_are_computed_in_pieces(kernel):
    own, recipe = problem("mlp", p=0.5), Recipe(2, None, 0.05)
    whole = kernel(*own, recipe)
    network = device_network_of(example(*own), SHARED)
    weights, row = network.shared_bytes(0, 0), 4 * network.row
    assert_same(kernel(*own, recipe, shared=weights + 16 * row), whole, own[1])
    outside = kernel(*own, recipe, shared=weights + row)  # all rows lie outside
    assert torch.equal(outside, whole)


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_lanes_and_teams_agree(kernel, name):
    own, recipe = problem(name, counts=[1, 3, 6], p=0.5), Recipe(1, 4, 0.05)
    assert_same(kernel(*own, recipe, lanes=4, teams=3), kernel(*own, recipe), own[1])


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_other_users_change_no_bit(kernel, name):
    own, recipe = problem(name, p=0.5), Recipe(2, 8, 0.05)
    everyone = kernel(*own, recipe)
    for some in ([3], [0, 6], [1, 2, 4, 5, 7]):
        assert torch.equal(kernel(*own, recipe, some), everyone[some])


@pytest.mark.parametrize(
    ("model", "shape", "task", "optimizer", "reason"),
    [
        (nn.Linear(5, 1), (5,), CoxRegression(), Sgd(), "the loss of CoxRegression"),
        (nn.Linear(5, 3), (5,), Classification(), Sgd(momentum=0.9), "the optimiser"),
        (nn.Linear(500, 500), (500,), Classification(), Sgd(), "do not fit a block's"),
        (
            nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.Flatten(), nn.Linear(128, 3)),
            (1, 8, 8),
            Classification(),
            Sgd(),
            "stride 1 and no padding",
        ),
        (
            nn.Sequential(nn.Linear(4, 9), nn.Softplus(), nn.Linear(9, 3)),
            (4,),
            Classification(),
            Sgd(),
            "Softplus",
        ),
    ],
    ids=["loss", "optimizer", "size", "padding", "layer"],
)
def test_what_the_kernel_does_not_cover_is_said(model, shape, task, optimizer, reason):
    data = silo([2], shape, task)
    found = device_network_of(example(model, flatten(model), data, task, optimizer), SHARED)
    assert isinstance(found, Unmapped)
    assert reason in found.reason


def test_labels_beyond_the_outputs_are_refused(kernel):
    model, theta, data, task = problem("mlp")
    wrong = replace(data, y=data.y + 1)
    with pytest.raises(IndexError, match="labels from 1 to 3 for a network of 3 outputs"):
        kernel(model, theta, wrong, task, Recipe(1, 8, 0.1))


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a GPU")
def test_the_kernel_is_refused_without_a_gpu():
    with pytest.raises(ConfigError, match="it needs a GPU"):
        trained(*problem("mlp"), Recipe(1, 8, 0.1), execution=DEVICE)


def test_it_compiles_for_a_gpu(tmp_path):
    pytest.importorskip("cuda.bindings.nvrtc")
    network = device_network_of(example(*problem("cnn", p=0.5)), SHARED)
    texts = kernel_texts(network, network.teams)
    assert build(texts, SOURCE, "sm_80", tmp_path).read_bytes()[:4] == b"\x7fELF"


@pytest.mark.parametrize("fast", ["cpu", "cuda"])
def test_auto_takes_the_faster_device_and_says_why(monkeypatch, fast):
    asked = []

    def seconds(problem, users):
        asked.append(problem.start.device.type)
        return 0.001 if problem.start.device.type.replace("meta", "cuda") == fast else 0.01

    monkeypatch.setattr(faster_device, "seconds", seconds)
    monkeypatch.setattr(faster_device, "device_trainer", lambda problem: Unmapped("a test"))
    monkeypatch.setattr(nn.Module, "to", lambda module, device: module)
    own = example(*problem("mlp", p=0.25 if fast == "cpu" else 0.75))  # no other test asks for it
    for _ in range(2):  # the second time it is remembered
        choice = faster_device.faster_device(own, "meta")
    assert asked == ["meta", "cpu"]
    assert choice.name.replace("meta", "cuda") == fast
    assert "32 made-up users take" in choice.reason


@pytest.mark.parametrize("name", ["mlp", "survival"])
def test_made_up_users_train(name):
    own = replace(example(*problem(name)), execution=COMPILED)
    assert 0 < faster_device.seconds(own, 3) < 60


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@needs_gpu
@pytest.mark.parametrize("name", NETWORKS)
def test_a_gpu_agrees_with_the_processor(name):
    model, theta, data, task = problem(name, counts=[*COUNTS, 130])
    recipe = Recipe(3, 8, 0.02)
    want = in_float64(model, theta, data, task, recipe)
    own = model.to("cuda"), theta.to("cuda"), data.to("cuda"), task
    got = trained(*own, recipe, execution=DEVICE)
    assert float(((got - want).norm(dim=1) / want.norm(dim=1)).max()) < 1e-5


@needs_gpu
@pytest.mark.parametrize("p", [0.5, 0.3])
@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_other_users_change_no_bit_on_a_gpu(name, p):
    model, theta, data, task = problem(name, counts=[*COUNTS, 130] * 5, p=p)
    recipe = Recipe(2, 8, 0.05)
    want = trained(model, theta, data, task, recipe, execution=COMPILED)
    own = model.to("cuda"), theta.to("cuda"), data.to("cuda"), task
    everyone = trained(*own, recipe, execution=DEVICE)
    error = (everyone - want).norm(dim=1) / want.norm(dim=1)
    assert float(error.median()) < 1e-5
    assert float(error.max()) < 1e-3  # where rounding moves a hidden unit over its kink
    for some in ([3], [0, 8, 16], list(range(20, 40))):
        got = trained(*own, recipe, np.array(some), execution=DEVICE)
        assert torch.equal(got, everyone[some])
