"""The configuration files of data sets and allocators agree with their classes and with the papers'
tables."""

from dataclasses import fields
from importlib import import_module
from pathlib import Path

import pytest
from omegaconf import OmegaConf

PRESET = ["n_users", "n_silos", "local_epochs", "batch_size", "local_lr", "clip", "global_lr"]
CONF = Path(__file__).resolve().parents[2] / "conf"


def component(node):
    module, _, name = node["_target_"].rpartition(".")
    return getattr(import_module(module), name), {
        key: value for key, value in node.items() if key != "_target_"
    }


@pytest.mark.parametrize("file", sorted((CONF / "data").glob("*.yaml")), ids=lambda file: file.stem)
def test_data_keys(file):
    config = OmegaConf.load(file)
    cls, arguments = component(OmegaConf.to_container(config.data))
    assert list(arguments) == [field.name for field in fields(cls)]
    if file.stem != "columns":  # of statistics: nothing trains
        assert list(config.preset)[:7] == PRESET
    assert set(list(config.preset)[7:]) <= {
        "silo_clip",
        "silo_global_lr",
        "silo_epochs",
        "invent_users",
        "user_global_lr",
        "zero_start",
    }  # the others have defaults
    if not isinstance(cls.natural_silos, property):  # a table's silos are read off its schema
        assert cls.natural_silos in (None, config.preset.n_silos)
    assert config.rounds >= 1


VARIANTS = {"zipf_two_labels": {"defaults": ["zipf"], "labels_per_user": 2}}
"""Allocators that differ from another file in the keys that they name."""


@pytest.mark.parametrize(
    "file", sorted((CONF / "allocator").glob("*.yaml")), ids=lambda file: file.stem
)
def test_allocator_keys_and_defaults(file):
    node = OmegaConf.to_container(OmegaConf.load(file))
    if "defaults" in node:  # a variant of another file
        assert node == VARIANTS[file.stem]
        return
    cls, arguments = component(node)
    assert set(arguments) == {field.name for field in fields(cls)}
    for field in fields(cls)[2:]:
        if field.name == "invent_users":
            assert arguments[field.name] == "${preset.invent_users}"
        else:
            assert arguments[field.name] == field.default


@pytest.mark.parametrize(
    ("name", "model", "rounds", "preset"),
    [
        ("creditcard", "creditcard_mlp", 100, [100, 5, 30, 64, 0.01, 0.1, 10]),
        ("mnist", "mnist_cnn", 200, [100, 5, 50, 64, 0.01, 0.1, 10]),
        ("heart_disease", "linear", 50, [50, 4, 50, 4, 0.001, 0.1, 10]),
        ("tcga_brca", "linear", 50, [50, 6, 50, 8, 0.001, 0.1, 10]),
    ],
)
def test_settings_of_the_uldp_fl_experiments(name, model, rounds, preset):
    """Kato et al., Uldp-FL (PVLDB 2024), trade-off study, ULDP-AVG."""
    config = OmegaConf.load(CONF / "data" / f"{name}.yaml")
    assert config.defaults[0]["override /model"] == model
    assert config.rounds == rounds
    assert [config.preset[key] for key in PRESET] == preset
