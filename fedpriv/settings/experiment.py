"""From a composed configuration to checked components. `DictConfig` ends here: no component ever
sees one.

A group's file names a class (`_target_`) and its arguments. Classes are frozen dataclasses, so the
class itself is the schema: OmegaConf checks names and types against its fields, `__post_init__`
checks ranges, and `Experiment` checks what only makes sense across groups. All of it happens before
any data is loaded and without importing torch.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import lru_cache
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fedpriv.accountants.base import Accountant
from fedpriv.aggregation.base import Aggregation
from fedpriv.aggregation.planner import Planner
from fedpriv.algorithms.base import Algorithm
from fedpriv.data.allocate import Allocator
from fedpriv.data.base import DataSet
from fedpriv.engines.base import Engine
from fedpriv.errors import ConfigError, require
from fedpriv.mechanisms.base import Mechanism
from fedpriv.models import Model
from fedpriv.models.convexity import convex_loss
from fedpriv.rounds.plan import Federation
from fedpriv.trackers.base import Tracker
from fedpriv.training.description import Execution
from fedpriv.training.optimizers import LocalOptimizer
from fedpriv.util.streams import Streams


@dataclass(frozen=True)
class Preset:
    """A data set's usual settings, which allocators and algorithms read by interpolation."""

    n_users: int
    n_silos: int
    local_epochs: int
    batch_size: int
    local_lr: float
    clip: float
    global_lr: float
    silo_clip: float
    silo_global_lr: float
    silo_epochs: int


@dataclass(frozen=True)
class RunOptions:
    """Top-level keys that belong to no group."""

    rounds: int
    seed: int
    device: str
    resume: str | None
    randomness: str
    evaluate_every: int
    evaluate_training: bool
    checkpoint_every: int
    optimum: float | None = None
    quiet: bool = False
    trainer: str = "auto"
    workers: int = 1

    def __post_init__(self) -> None:
        require(self.rounds >= 1, "rounds", self.rounds, "a positive number of rounds")
        require(self.seed >= 0, "seed", self.seed, "zero or a positive integer")
        require(
            self.evaluate_every >= 1,
            "evaluate_every",
            self.evaluate_every,
            "a positive number of rounds",
        )
        looked_at = self.optimum is None or self.evaluate_training
        require(
            looked_at, "optimum", self.optimum, "null, or a number beside evaluate_training=true"
        )
        require(
            self.checkpoint_every >= 1,
            "checkpoint_every",
            self.checkpoint_every,
            "a positive number of rounds",
        )
        require(
            self.randomness in ("simulation", "system"),
            "randomness",
            self.randomness,
            "simulation or system",
        )
        known = re.fullmatch(r"auto|cpu|cuda(:\d+)?", self.device) is not None
        require(known, "device", self.device, "auto, cpu, cuda or cuda:<number>")
        Execution(self.trainer, self.workers)

    @property
    def system(self) -> bool:
        """Whether what privacy rests on is drawn from the operating system, so that no round can be
        repeated."""
        return self.randomness == "system"

    @property
    def execution(self) -> Execution:
        """How local training is computed."""
        return Execution(self.trainer, self.workers)


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

OPTIONAL_GROUPS = ("tracker",)
"""Groups that runs of earlier versions do not have in their folders."""
NO_TRACKER = Tracker()


@dataclass(frozen=True)
class Experiment:
    """Everything one run needs, checked.

    algo: as its aggregation needs it (`Aggregation.adapt`).
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
    tracker: Tracker = NO_TRACKER

    def __post_init__(self) -> None:
        object.__setattr__(self, "algo", self.aggregation.adapt(self.algo))
        self.allocator.check(self.data)
        self.tracker.check()
        network = type(self.model).__name__.lower()
        features = "characters" if self.data.text else "measurements"
        require(
            self.model.reads_text == self.data.text,
            "model",
            network,
            f"a network that reads {features}",
        )
        alone = not self.model.mixes_records or self.algo.pools_records
        one_by_one = (
            f"a network that takes records one by one: {type(self.algo).__name__} bounds users "
            "or records"
        )
        require(alone, "model", network, one_by_one)
        self.planner.draft(self.federation)

    @property
    def planner(self) -> Planner:
        """What makes a plan as soon as the federation's sizes are known."""
        return Planner(self.algo, self.aggregation, self.mechanism, self.optimizer, self.streams)

    @property
    def federation(self) -> Federation:
        """The public sizes that are known before any data are read."""
        size = self.model.size(self.data.shape, self.data.outputs)
        loss = convex_loss(self.model, self.data.task, self.data.outputs)
        users = self.allocator.n_users
        silos = self.allocator.n_silos
        return Federation(
            users, silos, size, records_per_draw=self.data.records_per_draw, loss=loss
        )

    @property
    def streams(self) -> Streams:
        """This run's random streams."""
        return Streams(self.options.seed, system=self.options.system)


def build(config: Any) -> Experiment:
    """Check a composed configuration (a DictConfig or a plain dict) and build its components.

    Raises ConfigError with one line that names the key, its value and what is allowed.
    """
    return build_resolved(resolved(OmegaConf.create(config)))


def resolved(config: DictConfig) -> dict[str, Any]:
    """A configuration as plain values, without Hydra's node. Raises ConfigError for a value that is
    missing."""
    plain: dict[str, Any] = {}
    try:
        for key in config:
            if key == "hydra":
                continue
            value = config[key]
            nested = OmegaConf.is_config(value)
            plain[str(key)] = (
                OmegaConf.to_container(value, resolve=True, throw_on_missing=True)
                if nested
                else value
            )
    except OmegaConfBaseException as error:
        raise ConfigError(error.full_key or "config", "?", _first_line(error)) from error
    return plain


def build_resolved(plain: dict[str, Any]) -> Experiment:
    """The same from plain values."""
    unknown = (
        set(plain) - set(GROUPS) - {f.name for f in fields(RunOptions)} - {"preset", "experiment"}
    )
    for key in sorted(unknown):
        raise unknown_key(key, [*GROUPS, *(f.name for f in fields(RunOptions))])
    typed(Preset, plain.get("preset", {}), "preset")
    options = typed(
        RunOptions, {f.name: plain[f.name] for f in fields(RunOptions) if f.name in plain}, ""
    )
    groups = {
        name: base for name, base in GROUPS.items() if name in plain or name not in OPTIONAL_GROUPS
    }
    return Experiment(
        options, **{name: _component(plain.get(name), base, name) for name, base in groups.items()}
    )


RENAMED = {
    "algo.noise": "algo.calibration",
    "algo.sensitivity": "algo.calibration",
    "engine=processes": "engine=ray",
}
"""Keys and files of groups in earlier versions, and what they are called now."""


def unknown_key(key: str, known: list[str], everywhere: Sequence[str] = ()) -> ConfigError:
    """The error for a key that does not exist, with its new name or the nearest one that does exist
    beside it, or else `everywhere`, among all dotted keys."""
    if RENAMED.get(key, "").rpartition(".")[2] in known:
        return ConfigError(key, "...", f"is now {RENAMED[key]} (given, paper or certified)")
    near = difflib.get_close_matches(
        key.rpartition(".")[2], [k.rpartition(".")[2] for k in known], n=1
    )
    last = key.rpartition(".")[2]
    far = (
        [k for k in everywhere if last in re.split(r"[._]", k.rpartition(".")[2])]
        if not near
        else []
    )
    hint = f"did you mean {' or '.join(near or far[:4])}? " if near or far else ""
    return ConfigError(
        key, "...", f"unknown key; {hint}allowed: {', '.join(sorted(known)) or 'none'}"
    )


def _component(node: Any, base: type, group: str) -> Any:
    require(
        isinstance(node, dict) and "_target_" in node,
        group,
        node,
        "the name of a file in this config group",
    )
    path = node["_target_"]
    cls = _locate(path, group)
    ok = isinstance(cls, type) and issubclass(cls, base) and is_dataclass(cls)
    require(
        ok, f"{group}._target_", path, f"a dataclass derived from {base.__module__}.{base.__name__}"
    )
    return typed(cls, {key: value for key, value in node.items() if key != "_target_"}, group)


def _locate(path: str, group: str) -> Any:
    from importlib import import_module

    module, _, name = str(path).rpartition(".")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{group}._target_", path, f"module.Class that can be imported ({error})"
        ) from error


def typed(cls: type, values: dict[str, Any], prefix: str) -> Any:
    """An instance of dataclass `cls` from untrusted `values`, each checked against its field's
    type."""
    require(isinstance(values, dict), prefix, values, "keys with values below it")
    dotted = f"{prefix}." if prefix else ""
    names = [f.name for f in fields(cls)]
    for key in values:
        if key not in names:
            raise unknown_key(f"{dotted}{key}", names)
    given = {
        key: _checked(cls, key, json.dumps(value), f"{dotted}{key}")
        for key, value in values.items()
    }
    for key, value in given.items():
        _require_sensible(key, value, f"{dotted}{key}")
    for f in fields(cls):
        if f.name not in given and f.default is MISSING and f.default_factory is MISSING:
            raise ConfigError(f"{dotted}{f.name}", "?", "a value is required")
    return cls(**given)


SIZES = {
    "seed": 2**63 - 1,
    "n_users": 10**6,
    "n_silos": 10**5,
    "local_epochs": 10**5,
    "group_size": 10**5,
}
LARGEST, LEAST = 10**9, 1e-100
"""What no experiment exceeds, by field: a number typed wrong would otherwise end in no memory after
minutes."""


def _require_sensible(key: str, value: Any, name: str) -> None:
    """Raise ConfigError for a whole number, also one that is written as text, that is beyond all
    sizes, and for one so small that its square is zero."""
    number = int(value) if isinstance(value, str) and value.isdecimal() else value
    most = SIZES.get(key, LARGEST)
    require(
        not isinstance(number, int) or abs(number) <= most, name, value, f"a number up to {most}"
    )
    tiny = isinstance(value, float) and 0 < abs(value) < LEAST
    require(not tiny, name, value, f"0, or a number of at least {LEAST:g} in size")


@lru_cache(maxsize=4096)
def _checked(cls: type, key: str, packed: str, name: str) -> Any:
    """The value of one field, given as JSON; kept, since the runs of a sweep have most of them in
    common."""
    schema = OmegaConf.structured(cls)
    OmegaConf.set_readonly(schema, False)
    try:
        schema[key] = json.loads(packed)
        value = schema[key]
    except OmegaConfBaseException as error:
        hint = next(str(f.type) for f in fields(cls) if f.name == key)
        raise ConfigError(name, json.loads(packed), f"a value of type {hint}") from error
    return OmegaConf.to_object(value) if OmegaConf.is_config(value) else value


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
