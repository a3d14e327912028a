"""What every model must do. Add a new conf/model file to CASES with a shape it is made for."""

from pathlib import Path

import pytest
import torch
import yaml
from hydra.utils import instantiate
from omegaconf import OmegaConf

from fedpriv.errors import ConfigError
from fedpriv.models import Model
from fedpriv.models.tasks import Classification
from fedpriv.training.description import Recipe, Training
from fedpriv.training.users import silo_training
from fedpriv.training.vectors import flatten
from fedpriv.util.streams import Streams

CONF = Path(__file__).resolve().parents[2] / "conf" / "model"
CASES = {
    "linear": (13,),
    "mlp": (64,),
    "creditcard_mlp": (30,),
    "mnist_cnn": (1, 28, 28),
    "adult_mlp": (108,),
    "odd_even_mlp": (50,),
    "breast_cancer_mlp": (30,),
    "cifar_cnn": (3, 32, 32),
    "bounded_linear": (13,),
    "femnist_cnn": (1, 28, 28),
    "char_gru": (80,),
    "resnet18": (3, 32, 32),
}
TEXTS = ["char_gru"]
"""Records are integers below the number of outputs."""
MIXING = ["resnet18"]
"""Records of a batch influence each other."""


def model(name) -> Model:
    usual = OmegaConf.load(CONF.parent / "config.yaml").preset
    return instantiate(
        OmegaConf.create({"preset": usual, "model": OmegaConf.load(CONF / f"{name}.yaml")}).model
    )


def test_every_configuration_is_tested():
    assert {path.stem for path in CONF.glob("*.yaml")} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_yaml_keys_are_the_fields(name):
    config = yaml.safe_load((CONF / f"{name}.yaml").read_text())
    assert set(config) - {"_target_"} == set(model(name).__dataclass_fields__)


@pytest.mark.parametrize("name", CASES)
def test_initial_weights_come_from_the_global_generator(name):
    def initial(seed):
        torch.manual_seed(seed)
        return flatten(model(name).build(CASES[name], 3))

    assert torch.equal(initial(1), initial(1))
    assert not torch.equal(initial(1), initial(2))


def records(name, n, outputs):
    if name in TEXTS:
        return torch.randint(outputs, (n, *CASES[name]))
    return torch.randn(n, *CASES[name])


@pytest.mark.parametrize("outputs", [1, 10])
@pytest.mark.parametrize("name", CASES)
def test_maps_records_to_outputs_one_by_one(name, outputs):
    network = model(name).build(CASES[name], outputs).eval()
    x = records(name, 5, outputs)
    assert network(x).shape == (5, outputs)
    assert model(name).mixes_records == (name in MIXING)
    if name in MIXING:
        assert not torch.allclose(network(x)[2:4], network(x[2:4]), rtol=1e-2)
        assert bool(network(x[:1]).isfinite().all())
        return
    torch.testing.assert_close(network(x)[2:3], network(x[2:3]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_trains_locally(name):
    import numpy as np

    from fedpriv.data.silo import SiloData

    torch.manual_seed(0)
    network = model(name).build(CASES[name], 2)
    x = records(name, 6, 2)
    data = SiloData(x, torch.tensor([0, 1, 0, 1, 1, 0]), np.array([3, 8]), np.array([0, 2, 6]))
    training = Training(Recipe(2, 3, 0.1), flatten(network).double().numpy(), pooled=name in MIXING)
    place = {"streams": Streams(0), "round": 0, "party": "s"}
    blocks = silo_training(training, model=network, data=data, task=Classification(), **place).run()
    deltas = torch.cat([block.vectors for block in blocks])
    assert deltas.shape == (1 if name in MIXING else 2, len(training.start))
    assert bool(deltas.isfinite().all())
    assert bool((deltas.norm(dim=1) > 1e-4).all())


def test_records_of_another_shape_are_refused_in_one_line():
    with pytest.raises(ConfigError, match="model=mnist_cnn: images"):
        model("mnist_cnn").build((30,), 2)
