"""Small experiments, composed and checked like those of a command, and changed ones.

>>> exp = experiment("algo=fedavg", "preset.n_users=8")
>>> exp.allocator.n_users, exp.allocator.n_silos
(8, 3)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from functools import lru_cache

from omegaconf import DictConfig

from fedpriv.algorithms.base import Algorithm
from fedpriv.data.base import Corpus, Records, with_corpus
from fedpriv.mechanisms.base import Mechanism
from fedpriv.rounds.plan import Plan
from fedpriv.settings.compose import CommandLine, compose_jobs, without_hydra
from fedpriv.settings.experiment import Experiment, build
from fedpriv.settings.words import conf_dir

SMALL = (
    "preset.n_users=8",
    "preset.local_epochs=2",
    "preset.silo_epochs=2",
    "preset.batch_size=1000",
)
"""Eight users in three silos. Batches hold all records, so that their order has no effect."""


def experiment(*words: str, algo: Algorithm | None = None) -> Experiment:
    """The experiment of a command line.

    algo: replaces the algorithm of the words, by its class and the values of its fields. An
        algorithm without a clip bound runs with mechanism=none unless the words name a mechanism.

    Raises FedprivError as the command would.
    """
    if algo is not None and not hasattr(algo, "clip"):
        named = any(word.startswith("mechanism=") for word in words)
        words = words if named else (*words, "mechanism=none")
    config = _composed(words)
    if algo is None:
        return build(config)
    cls = type(algo)
    plain = without_hydra(config)
    own = {field.name: getattr(algo, field.name) for field in fields(algo) if field.init}
    plain["algo"] = {"_target_": f"{cls.__module__}.{cls.__qualname__}", **own}
    return build(plain)


@lru_cache(maxsize=256)
def _composed(words: tuple[str, ...]) -> DictConfig:
    """The configuration of a command line, not to be changed. Tests ask for the same ones over and
    over, and Hydra takes longer than building the components."""
    [config] = compose_jobs(CommandLine.parse([*words]), conf_dir())
    return config


def with_mechanisms(plan: Plan, change: Callable[[str, Mechanism], Mechanism]) -> Plan:
    """The plan with other mechanisms. change: from a query's name and its mechanism."""
    query_parameters = {
        name: replace(parameters, mechanism=change(name, parameters.mechanism))
        for name, parameters in plan.query_parameters.items()
    }
    return replace(plan, query_parameters=query_parameters)


def with_training_records(exp: Experiment, change: Callable[[Records], Records]) -> Experiment:
    """The experiment with changed training records."""
    data = with_corpus(exp.data, lambda corpus, _: Corpus(change(corpus.train), corpus.test))
    return replace(exp, data=data)
