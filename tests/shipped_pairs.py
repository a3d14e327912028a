"""Runs of shipped components together: each trains, or is refused in one line before data are
read."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from unittest.mock import patch

import torch
from fake_runs import read_status
from omegaconf import DictConfig, OmegaConf

from fedpriv.data import shared
from fedpriv.errors import FedprivError
from fedpriv.runs.loop import train
from fedpriv.settings.compose import CommandLine, compose_jobs, without_hydra
from fedpriv.settings.experiment import build
from fedpriv.settings.words import conf_dir
from fedpriv.training.description import TRAINERS

WORDS = ("rounds=1", "accountant=rdp", "allocator=uniform", "quiet=true")
WORDS += ("preset.n_users=6", "preset.n_silos=3", "preset.local_epochs=1", "preset.silo_epochs=1")
WORDS += ("preset.batch_size=8", "allocator.local_test=0")

MORE = {"uls": ("algo.user_rate=0.9",)}
"""So that some of six users are drawn."""

CNN = {"channels": [2, 2], "hidden": [3]}
MODELS: dict[str, tuple[str, dict[str, object]]] = {
    "linear": ("Table", {}),
    "bounded_linear": ("Table", {}),
    "mlp": ("Table", {"hidden": [3, 2]}),
    "odd_even_mlp": ("Table", {"hidden": [4]}),
    "adult_mlp": ("Table", {"hidden": [3]}),
    "breast_cancer_mlp": ("Table", {}),
    "creditcard_mlp": ("Table", {"hidden": [3, 3]}),
    "mnist_cnn": ("Digit", {"channels": [1, 2], "hidden": 2}),
    "cifar_cnn": ("Photograph", CNN),
    "femnist_cnn": ("Digit", CNN),
    "char_gru": ("Text", {"embedding": 2, "hidden": 3}),
    "resnet18": ("Photograph", {}),
    "own Lstm": ("Table", {}),
    "own Gru": ("Table", {}),
    "own Transformer": ("Table", {}),
    "own Transformer that drops": ("Table", {"dropout": 0.1}),
    "own OwnForward": ("Table", {}),
}
"""Each network, with data that it reads and widths that train fast."""

AGGREGATIONS: dict[str, dict[str, object]] = {
    "admm": {"preset": None, "iterations": 32, "beyond_safe": True},
    "private_weighting": {"key_bits": 256, "n_max": 39, "count_cap": 13, "precision": 16},
    "secagg_exact_noise": {"threshold": 2},
}
"""Settings of aggregations with which few silos can sum fast."""
MECHANISMS = {"shuffle": "binomial", "secagg_exact_noise": "discrete_gaussian"}
"""The mechanisms that aggregations need."""
OPTIMIZERS = {
    "sgd": {},
    "adam": {},
    "rmsprop": {"momentum": 0.5},
    "sgd with momentum": {"momentum": 0.5},
}


def names(group: str) -> list[str]:
    """The names of a config group's files."""
    return sorted(path.stem for path in (conf_dir() / group).glob("*.yaml"))


@dataclass(frozen=True)
class Pair:
    """The components of a run that are combined with each other. mechanism: None: the
    algorithm's."""

    model: str
    algo: str
    trainer: str
    optimizer: str
    aggregation: str
    mechanism: str | None = None


def all_pairs() -> Iterator[Pair]:
    """Every model with every algorithm, trainer, optimiser and aggregation. ResNet-18, whose 11
    million parameters take seconds a run, has one optimiser and no encrypted sum. The kernel of a
    GPU is among the trainers where there is one."""
    trainers = [name for name in TRAINERS if name != "device" or torch.cuda.is_available()]
    axes = (MODELS, names("algo"), trainers, OPTIMIZERS, names("aggregation"))
    for pair in itertools.starmap(Pair, itertools.product(*axes)):
        slow = pair.optimizer != "sgd" or pair.aggregation == "admm"
        if pair.model != "resnet18" or not slow:
            yield pair


def all_noises() -> Iterator[Pair]:
    """Every algorithm with every aggregation and mechanism."""
    for algo, aggregation, mechanism in itertools.product(
        names("algo"), names("aggregation"), names("mechanism")
    ):
        yield Pair("mlp", algo, "auto", "sgd", aggregation, mechanism)


@cache
def _composed(algo: str) -> DictConfig:
    words = [f"algo={algo}", *WORDS, *MORE.get(algo, ())]
    [config] = compose_jobs(CommandLine.parse(words), conf_dir())
    return without_hydra(config)


@cache
def _node(group: str, name: str) -> DictConfig:
    [config] = compose_jobs(CommandLine.parse([f"{group}={name}"]), conf_dir())
    return config[group]


def config_of(pair: Pair) -> DictConfig:
    """The configuration of a pair, as the command line would compose it."""
    config = copy.deepcopy(_composed(pair.algo))
    data, widths = MODELS[pair.model]
    config.data = {"_target_": f"own_networks.{data}"}
    if pair.model.startswith("own "):
        config.model = {"_target_": f"own_networks.{pair.model.split()[1]}"}
    else:
        config.model = copy.deepcopy(_node("model", pair.model))
    OmegaConf.set_struct(config, False)
    config.optimizer = copy.deepcopy(_node("optimizer", pair.optimizer.split()[0]))
    config.aggregation = copy.deepcopy(_node("aggregation", pair.aggregation))
    if mechanism := pair.mechanism or MECHANISMS.get(pair.aggregation):
        config.mechanism = copy.deepcopy(_node("mechanism", mechanism))
    changes = {
        "model": widths,
        "optimizer": OPTIMIZERS[pair.optimizer],
        "aggregation": AGGREGATIONS.get(pair.aggregation, {}),
    }
    for group, values in changes.items():
        for key, value in values.items():
            config[group][key] = value
    config.trainer = pair.trainer
    return config


def refusal(config: DictConfig, folder: Path) -> str | None:
    """Run a configuration. Returns the line that refused it, None if it ran.

    Raises AssertionError where it is refused after data were read, or ends with anything else than
    a finished run that learned something.
    """
    read = []
    load = shared.load

    def watched(*args: object) -> object:
        read.append(True)
        return load(*args)

    with patch("fedpriv.runtime.own_records.load", watched):
        try:
            train(build(config), OmegaConf.to_yaml(_plain(config), resolve=True), folder)
        except FedprivError as error:
            line = str(error)
            assert not read, f"refused after data were read: {line}"
            assert "\n" not in line
            assert not folder.exists()
            return line
    status = read_status(folder)
    assert status["state"] == "done", status
    assert not status["empty_rounds"], status["empty_rounds"]
    assert not status["aborted_rounds"], status["aborted_rounds"]
    return None


def _plain(config: DictConfig) -> DictConfig:
    plain = OmegaConf.to_container(config, resolve=False)
    assert isinstance(plain, dict)
    plain.pop("hydra", None)
    return OmegaConf.create(plain)
