"""Build checked components from a composed configuration. No component ever sees a `DictConfig`.

A group's file names a class (`_target_`) and its arguments. Classes are frozen dataclasses, and
each class is its own schema: OmegaConf checks names and types against its fields, `__post_init__`
checks ranges, and `Experiment` checks combinations of groups. All of it happens before data are
loaded and without torch.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationKeyError, OmegaConfBaseException

from fedpriv.accountants.base import Accountant
from fedpriv.aggregation.base import Aggregation
from fedpriv.aggregation.epsilon_target import EpsilonTarget, require_solvable, rounds_alike
from fedpriv.aggregation.planner import Planner
from fedpriv.algorithms.base import Algorithm
from fedpriv.data.allocate import Allocator
from fedpriv.data.base import EXACT_TESTS, DataSet
from fedpriv.data.stability import UNSTATED
from fedpriv.engines.base import Engine
from fedpriv.errors import ConfigError, require
from fedpriv.mechanisms.base import Mechanism
from fedpriv.models import Model
from fedpriv.models.tasks import convex_loss
from fedpriv.rounds.plan import Federation
from fedpriv.settings.keys import (
    file_values,
    idle_keys,
    repeats,
    require_effect,
    typed,
    unknown_key,
)
from fedpriv.settings.run_options import (
    ALL,
    ALWAYS_UNCOVERED,
    CHOSEN,
    SEEDED,
    SPLIT_AND_SCALING,
    WITH_ALL,
    RunOptions,
)
from fedpriv.trackers.base import Tracker
from fedpriv.training.optimizers import LocalOptimizer
from fedpriv.util.installed import how_to_install, others
from fedpriv.util.streams import Streams

GROUPS = {
    "data": DataSet,
    "allocator": Allocator,
    "model": Model,
    "algo": Algorithm,
    "optimizer": LocalOptimizer,
    "mechanism": Mechanism,
    "accountant": Accountant,
    "aggregation": Aggregation,
    "engine": Engine,
    "tracker": Tracker,
}


@dataclass(frozen=True)
class Experiment:
    """The checked options and components of one run.

    algo: the algorithm in the form that the aggregation needs (`Aggregation.adapt`).
    noise: name of a query: its noise multiplier, as an earlier plan of these settings has it;
        empty: the method's, or the one that is solved for a target.
    """

    options: RunOptions
    data: DataSet
    allocator: Allocator
    model: Model
    algo: Algorithm
    optimizer: LocalOptimizer
    mechanism: Mechanism
    accountant: Accountant
    aggregation: Aggregation
    engine: Engine
    tracker: Tracker
    noise: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "algo", self.aggregation.adapt(self.algo))
        object.__setattr__(self, "data", self.algo.data_of(self.data))
        object.__setattr__(self, "model", self.algo.model_of(self.model))
        require_solvable(self.algo, self.accountant, noisy=self.mechanism.clips)
        if self.accountant.target is not None:
            object.__setattr__(self, "algo", self.algo.for_target(self.accountant.target))
        self.allocator.check(self.data)
        package = self.tracker.package
        if package and find_spec(package) is None:
            raise ConfigError("tracker", package, f"run {how_to_install(package)} first")
        network = type(self.model).__name__.lower()
        features = "characters" if self.data.text else "measurements"
        suitable = self.model.reads_text == self.data.text
        require(suitable, "model", network, f"a network that reads {features}")
        require(
            not self.model.mixes_records or self.algo.contributors.pooled,
            "model",
            network,
            f"a network without batch statistics: {type(self.algo).__name__} bounds users or "
            "records",
        )
        groups = [group.name for group in self.algo.contributors.groups]
        known = f"null, because a user's number in {type(self.data).__name__} depends on others"
        require(self.data.numbers_are_public or not groups, "algo.budgets", groups, known)
        turns = self.algo.contributors.turns
        alike = f"1, because a user's number in {type(self.data).__name__} depends on others"
        require(self.data.numbers_are_public or turns == 1, "algo.cycle", turns, alike)
        budget = self.accountant.budget
        each = "null, because each group of users has its own (algo.budgets)"
        single = budget is None or not self.algo.contributors.budgets
        require(single, "accountant.budget", budget, each)
        self.planner.draft(self.federation)
        if self.options.private is not None:
            name = type(self.tracker).__name__.lower()
            require(type(self.tracker) is Tracker, "tracker", name, f"none {WITH_ALL}")
            for text in self.not_covered:
                raise ConfigError("private", ALL, f"null, because no epsilon covers: {text}")

    @cached_property
    def not_covered(self) -> tuple[str, ...]:
        """What no epsilon of a run covers. With `private=all` nothing is left: choices rest on
        `CHOSEN`, no exact metric is computed, and diagnostics are no part of the bundle."""
        data, options = self.data, self.options
        split = math.isfinite(data.reading.users.users)  # without a bound it looks at all records
        exact = options.evaluation == "exact"
        found = [
            *([] if split else [SPLIT_AND_SCALING]),
            *([] if options.private else ALWAYS_UNCOVERED),
            *(text for text in data.not_covered if exact or text != EXACT_TESTS),
            *self.allocator.not_covered,
            *data.read_without_noise,
            *([] if options.system else [SEEDED]),
        ]
        return tuple(dict.fromkeys(found))

    @cached_property
    def planner(self) -> Planner:
        """Makes the public plan of the run once the federation's sizes are known."""
        return Planner(
            self.algo,
            self.aggregation,
            self.mechanism,
            self.optimizer,
            self.streams,
            self.epsilon_target,
            self.noise,
            () if self.options.private is None else (CHOSEN,),
        )

    @property
    def epsilon_target(self) -> EpsilonTarget | None:
        """The epsilon that the noise is solved for; None: the noise is the method's."""
        solves = self.accountant.target is not None
        return EpsilonTarget(self.accountant, self.options.rounds) if solves else None

    @property
    def federation(self) -> Federation:
        """The public sizes that are known before data are read."""
        stability = self.allocator.stability(self.data)
        return Federation(
            self.allocator.n_users,
            self.allocator.n_silos,
            self.model.size(self.data.shape, self.data.outputs),
            records_per_draw=self.data.records_per_draw,
            loss=convex_loss(self.model, self.data.task, self.data.outputs),
            stability=stability,
            authors=() if stability == UNSTATED else others(self.allocator),
            one_silo_each=self.allocator.one_silo_each(self.data),
        )

    @property
    def rounds_alike(self) -> bool:
        """Whether the queries of every round may have the same events."""
        return rounds_alike(self.algo, (self.mechanism,))

    @property
    def streams(self) -> Streams:
        """The random streams of this run."""
        return Streams(self.options.seed, system=self.options.system)


def build(config: Any, *, trust_code: bool = True, named: Collection[str] = ()) -> Experiment:
    """Check a composed configuration (a DictConfig or a plain dict) and build its components. With
    Hydra's node, keys of the command line must have an effect.

    trust_code: whether the configuration may name any class that can be imported, and addresses to
        connect to. Settings that are read from a folder may not, unless the user says so.
    named: keys of addresses that the user has typed.

    Raises ConfigError with one line that names the key, its value and what is allowed.
    """
    tree = config if isinstance(config, DictConfig) else OmegaConf.create(config)
    return build_resolved(resolved(tree), typed_words(tree), trust_code=trust_code, named=named)


def typed_words(config: DictConfig) -> list[str]:
    """The words key=value of the command line that a configuration with Hydra's node was composed
    from; empty without the node. Words that repeat the algorithm's file are left out, unless the
    noise is solved for a target: noise that is typed beside it contradicts it."""
    words = list(OmegaConf.select(config, "hydra.overrides.task") or [])
    if OmegaConf.select(config, "accountant.target") is not None:
        return words
    own = file_values("algo", str(OmegaConf.select(config, "hydra.runtime.choices.algo")))
    return [word for word in words if not repeats(word, "algo", own)]


def resolved(config: DictConfig) -> dict[str, Any]:
    """A configuration as plain values, without Hydra's node. Raises ConfigError for a missing
    value."""
    plain: dict[str, Any] = {}
    try:
        for key in config:
            if key != "hydra":
                plain[str(key)] = _plain(config[key])
    except InterpolationKeyError as error:
        key = str(error.full_key)
        lacking = _first_line(error).split("'")[1]
        allowed = f"{lacking} does not exist; set {key}, or choose another {key.partition('.')[0]}"
        raise ConfigError(key, f"${{{lacking}}}", allowed) from error
    except OmegaConfBaseException as error:
        raise ConfigError(error.full_key or "config", "?", _first_line(error)) from error
    return plain


def _plain(value: Any) -> Any:
    if not OmegaConf.is_config(value):
        return value
    return OmegaConf.to_container(value, resolve=True, throw_on_missing=True)


def build_resolved(
    plain: dict[str, Any],
    words: Sequence[str] = (),
    *,
    trust_code: bool = True,
    named: Collection[str] = (),
) -> Experiment:
    """Like `build`, from plain values and the words of the command line."""
    names = [f.name for f in fields(RunOptions)]
    for key in sorted(plain.keys() - {*GROUPS, *names, "preset", "experiment"}):
        raise unknown_key(key, [*GROUPS, *names])
    preset = plain.get("preset", {})
    require(isinstance(preset, dict), "preset", preset, "set its keys as preset.<key>=value")
    for key, value in preset.items():  # nobody may read it
        fits = isinstance(value, int | float) and (value is False or 0 < value < math.inf)
        require(value is None or fits, f"preset.{key}", value, "a positive number")
    options = typed(RunOptions, {name: plain[name] for name in names if name in plain}, "")
    components: dict[str, Any] = {}
    for name, base in GROUPS.items():
        node = plain.get(name)
        if name == "allocator" and isinstance(node, dict):
            node = with_public_numbers(node, components["data"], options)
        components[name] = _component(node, base, name, trust_code=trust_code)
    if not trust_code:
        _require_no_address("engine", components["engine"], named)
        _require_no_address("tracker", components["tracker"], named)
    experiment = Experiment(options, **components)
    if words:
        plan = experiment.planner.draft(experiment.federation)
        target = experiment.accountant.target
        idle = idle_keys(experiment.algo, experiment.mechanism, plan, plain, target)
        require_effect(words, idle)
    return experiment


def with_public_numbers(
    allocator: dict[str, Any], data: DataSet, options: RunOptions
) -> dict[str, Any]:
    """The keys of an allocator, in which null stands for the data set's own number of users or
    silos. Raises ConfigError where the data set has no users or silos of its own."""
    filled = dict(allocator)
    name = type(data).__name__
    if "n_silos" in filled and filled["n_silos"] is None:
        deal = "; allocator=by_user allocator.n_silos=5 deals them" if data.natural_users else ""
        allowed = f"a number, because {name} names no silos{deal}"
        require(data.natural_silos is not None, "allocator.n_silos", "null", allowed)
        filled["n_silos"] = data.natural_silos
    if "n_users" in filled and filled["n_users"] is None:
        allowed = f"a number, because {name} does not name its users"
        require(data.natural_users, "allocator.n_users", "null", allowed)
        filled["n_users"] = data.public_users(Streams(options.seed, system=options.system))
    return filled


def _component(node: Any, base: type, group: str, *, trust_code: bool) -> Any:
    named = isinstance(node, dict) and "_target_" in node
    require(named, group, node, "the name of a file in this config group")
    values = dict(node)
    path = values.pop("_target_")
    if not trust_code:
        _require_installed(path, group)
    cls = _located(path, group)
    ok = isinstance(cls, type) and issubclass(cls, base) and is_dataclass(cls)
    allowed = f"a dataclass derived from {base.__module__}.{base.__name__}"
    require(ok, f"{group}._target_", path, allowed)
    return typed(cls, values, group)


UNTRUSTED = "settings that a folder brings along"


def _require_installed(path: Any, group: str) -> None:
    """Raise ConfigError for a class outside fedpriv and the installed packages that declare the
    entry point group "fedpriv"."""
    packages = {"fedpriv", *(point.module for point in entry_points(group="fedpriv"))}
    known = any(str(path).startswith(f"{package}.") for package in packages)
    allowed = f"a class of {' or '.join(sorted(packages))}, unless --trust-code: {UNTRUSTED} "
    require(known, f"{group}._target_", path, allowed + "import nothing else")


def _require_no_address(group: str, component: Engine | Tracker, named: Collection[str]) -> None:
    """Raise ConfigError for a component that would connect to another machine, write elsewhere than
    into the run's folder, or sign with keys that a file names."""
    for key in component.addresses:
        name, address = f"{group}.{key}", getattr(component, key)
        usual = getattr(type(component), key, None)
        own = f" or {name}=... on this line" if group == "engine" else ""
        allowed = (
            f"{'null' if usual is None else usual}, unless --trust-code{own}: {UNTRUSTED} choose "
            "no place to connect or write to"
        )
        require(address == usual or name in named, name, address, allowed)


def _located(path: str, group: str) -> Any:
    """The class that a path names. A user's own modules are found in the current folder, which is
    searched from the first of them on, so that other commands never import from there."""
    module, _, name = str(path).rpartition(".")
    if not module.startswith("fedpriv.") and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        allowed = f"module.Class that can be imported ({error})"
        raise ConfigError(f"{group}._target_", path, allowed) from error


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
