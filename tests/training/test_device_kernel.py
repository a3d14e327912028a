"""The GPU's kernel. Its source is built for the processor here; on a machine with a GPU it runs
there too."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from one_by_one import STREAMS, assert_same, cnn, mlp, one_by_one, silo, trained
from torch import nn

from fedpriv.errors import ConfigError
from fedpriv.models.tasks import BinaryClassification, Classification, CoxRegression
from fedpriv.training import faster_device, select, users
from fedpriv.training.description import Execution, Recipe, Training
from fedpriv.training.layers.mapping import Unmapped
from fedpriv.training.optimizers import Sgd
from fedpriv.training.trainers.compiled.library import library
from fedpriv.training.trainers.device.processor import processor_program
from fedpriv.training.trainers.device.program import SOURCE, kernel_texts
from fedpriv.training.trainers.device.trainer import Device, device_network_of
from fedpriv.training.trainers.gpu.nvrtc import build
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
    "functions": (functions, (9,), Classification()),
    "cnn": (cnn, (1, 12, 12), Classification()),
    "unpooled": (unpooled, (2, 8, 8), Classification()),
}


@pytest.fixture(scope="session")
def build_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture
def kernel(monkeypatch, build_folder):
    """Trains by the kernel on the processor where a GPU's is asked for; a function that sets how
    many lanes and teams it has, and the shared memory of a block."""
    settings = {"lanes": 1, "teams": 1, "shared": SHARED}

    def made(problem):
        network = device_network_of(problem, settings["shared"])
        if isinstance(network, Unmapped):
            return network
        threads = {name: settings[name] for name in ("lanes", "teams")}
        return Device(problem, network, processor_program(network, build_folder, **threads))

    monkeypatch.setattr(select, "device_trainer", made)
    return settings.update


def problem(name, counts=COUNTS, **changes):
    torch.manual_seed(1)
    make, shape, task = NETWORKS[name]
    model = make(**changes)
    return model, flatten(model), silo(counts, shape, task), task


@pytest.mark.parametrize(
    "recipe", [Recipe(3, 8, 0.02), Recipe(2, None, 0.05), Recipe(2, 8, 0.02, proximal=0.7)], ids=str
)
@pytest.mark.parametrize("name", NETWORKS)
def test_every_recipe_equals_torch_in_float64(kernel, name, recipe):
    model, theta, data, task = problem(name)
    correction = torch.linspace(-0.05, 0.1, len(theta)) if recipe.proximal else None
    got = trained(model, theta, data, task, recipe, correction=correction, execution=DEVICE)
    exact = copy.deepcopy(model).double(), theta.double(), replace(data, x=data.x.double())
    want = one_by_one(*exact, task, recipe, None if correction is None else correction.double())
    error = (got - want).norm(dim=1) / want.norm(dim=1)
    assert float(want.norm(dim=1).min()) > 1e-3
    assert float(error.max()) < 1e-5


@pytest.mark.parametrize("p", [0.5, 0.3])
@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_dropout_and_orders_are_those_of_compiled_training(kernel, name, p):
    model, theta, data, task = problem(name, p=p)
    recipe = Recipe(5, 8, 0.05)
    got, want = (
        trained(model, theta, data, task, recipe, execution=execution)
        for execution in (DEVICE, COMPILED)
    )
    assert_same(got, want, theta)


def test_batches_that_do_not_fit_shared_memory_are_computed_in_pieces(kernel):
    model, theta, data, task = problem("mlp", p=0.5)
    whole = trained(model, theta, data, task, Recipe(2, None, 0.05), execution=DEVICE)
    network = device_network_of(example(model, theta, data, task), SHARED)
    weights = network.shared_bytes(0, 0)
    kernel({"shared": weights + 16 * 4 * network.row})
    pieces = trained(model, theta, data, task, Recipe(2, None, 0.05), execution=DEVICE)
    assert_same(pieces, whole, theta)
    kernel({"shared": weights + 4 * network.row})  # all rows lie outside
    outside = trained(model, theta, data, task, Recipe(2, None, 0.05), execution=DEVICE)
    assert torch.equal(outside, whole)


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_lanes_and_teams_agree(kernel, name):
    model, theta, data, task = problem(name, counts=[1, 3, 6], p=0.5)
    recipe = Recipe(1, 4, 0.05)
    alone = trained(model, theta, data, task, recipe, execution=DEVICE)
    kernel({"lanes": 4, "teams": 3})
    threads = trained(model, theta, data, task, recipe, execution=DEVICE)
    assert_same(threads, alone, theta)


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_other_users_change_no_bit(kernel, name):
    model, theta, data, task = problem(name, p=0.5)
    recipe = Recipe(2, 8, 0.05)
    everyone = trained(model, theta, data, task, recipe, execution=DEVICE)
    for some in ([3], [0, 6], [1, 2, 4, 5, 7]):
        chosen = np.array(some)
        got = trained(model, theta, data, task, recipe, chosen, execution=DEVICE)
        assert torch.equal(got, everyone[chosen])


def test_silos_that_train_side_by_side_have_the_same_bits(kernel):
    model, theta, data, task = problem("mlp", p=0.5)
    other = silo([40, 2, 11], (6,), task, seed=5)
    training = Training(Recipe(2, 8, 0.05), theta.double().numpy())

    def work(number, own):
        return users.silo_training(
            training,
            model=model,
            data=own,
            task=task,
            streams=STREAMS,
            round=1,
            party=f"silo-{number}",
            execution=DEVICE,
        )

    works = [work(number, own) for number, own in enumerate((data, other))]
    assert all(one.running is not None and one.nbytes == 0 for one in works)
    assert works[0].batch_key == works[1].batch_key is not None
    together = type(works[0]).run_batch(works)
    for number, [block] in enumerate(together):
        [alone] = work(number, (data, other)[number]).run()
        assert np.array_equal(block.units, alone.units)
        assert torch.equal(block.vectors, alone.vectors)


def example(model, theta, data, task, optimizer=Sgd()):
    return select.example_problem(
        DEVICE, model, theta, tuple(data.x.shape[1:]), task, optimizer, data.x.dtype
    )


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
        trained(model, theta, wrong, task, Recipe(1, 8, 0.1), execution=DEVICE)


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a GPU")
def test_the_kernel_is_refused_without_a_gpu():
    model, theta, data, task = problem("mlp")
    with pytest.raises(ConfigError, match="it needs a GPU"):
        trained(model, theta, data, task, Recipe(1, 8, 0.1), execution=DEVICE)


def test_it_compiles_for_a_gpu(tmp_path):
    pytest.importorskip("cuda.bindings.nvrtc")
    model, theta, data, task = problem("cnn", p=0.5)
    network = device_network_of(example(model, theta, data, task), SHARED)
    image = build(kernel_texts(network, network.teams), SOURCE, "sm_80", tmp_path).read_bytes()
    assert image[:4] == b"\x7fELF"


@pytest.mark.parametrize("fast", ["cpu", "cuda"])
def test_auto_takes_the_faster_device_and_says_why(monkeypatch, fast):
    model, theta, data, task = problem("mlp")
    asked = []

    def seconds(problem, users):
        asked.append(problem.start.device.type)
        return 0.001 if problem.start.device.type.replace("meta", "cuda") == fast else 0.01

    monkeypatch.setattr(faster_device, "seconds", seconds)
    monkeypatch.setattr(faster_device, "device_trainer", lambda problem: Unmapped("a test"))
    monkeypatch.setattr(faster_device, "_known", {})
    monkeypatch.setattr(nn.Module, "to", lambda module, device: module)
    own = example(model, theta, data, task)
    for _ in range(2):  # the second time it is remembered
        choice = faster_device.faster_device(own, "meta")
    assert asked == ["meta", "cpu"]
    assert choice.name.replace("meta", "cuda") == fast
    assert "32 made-up users take" in choice.reason


def test_made_up_users_train():
    model, theta, data, task = problem("mlp")
    own = replace(example(model, theta, data, task), execution=COMPILED)
    assert 0 < faster_device.seconds(own, 3) < 60


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@needs_gpu
@pytest.mark.parametrize("name", NETWORKS)
def test_a_gpu_agrees_with_the_processor(name):
    model, theta, data, task = problem(name, counts=[*COUNTS, 130])
    recipe = Recipe(3, 8, 0.02)
    want = one_by_one(
        copy.deepcopy(model).double(),
        theta.double(),
        replace(data, x=data.x.double()),
        task,
        recipe,
    )
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
        chosen = np.array(some)
        got = trained(*own, recipe, chosen, execution=DEVICE)
        assert torch.equal(got, everyone[chosen])
