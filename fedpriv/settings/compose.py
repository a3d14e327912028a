"""Compose configurations from command lines, and report Hydra's errors in one line.

Every job of a sweep is composed and checked before the first one starts, so a typo in the last
value of a sweep costs no training time.
"""

from __future__ import annotations

import copy
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from hydra import compose, initialize_config_dir
from hydra._internal.config_loader_impl import get_overrides_dirname
from hydra._internal.utils import get_args_parser
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from fedpriv.engines.study import with_study
from fedpriv.errors import ConfigError, FedprivError
from fedpriv.settings.experiment import GROUPS, Experiment, build
from fedpriv.settings.keys import unknown_key
from fedpriv.settings.words import (
    DATA_FILES,
    conf_dir,
    near,
    refuse_file,
    refuse_flags,
    refuse_lone_words,
    with_listed_seeds,
)

FILES = frozenset({*GROUPS, "experiment", "profile"})
"""Keys whose values are names of files."""
ABSENT = object()
MOST_KNOWN = 64
"""Choices of files that a `Composer` keeps."""


class Composer:
    """Composes the jobs of one sweep.

    Composing takes a tenth of a second, so it is done once for each choice of files. Plain values
    are then set in the result, as Hydra itself does last.

    fixed: words that all jobs share.
    """

    def __init__(self, fixed: list[str]) -> None:
        self.fixed = fixed
        self._known: dict[tuple[str, ...], DictConfig] = {}
        self._parsed: dict[str, Override] = {}

    def job(self, words: list[str], *, fresh: bool = False) -> DictConfig:
        """The configuration of the job with these words and the fixed ones. It is valid until the
        next one is asked for, which may be the same object and has to set the same keys; unless it
        is `fresh`."""
        chosen = [word for word in words if not self._is_value(word)]
        values = [self._override(word) for word in words if word not in chosen]
        config = self._composed(chosen)
        config = copy.deepcopy(config) if fresh else config
        if any(
            OmegaConf.select(config, str(value.key_or_group), default=ABSENT) is ABSENT
            for value in values
        ):
            return copy.deepcopy(self._composed(words))
        for value in values:
            OmegaConf.update(config, str(value.key_or_group), value.value(), merge=False)
        if values:
            OmegaConf.set_readonly(config.hydra, False)  # `HydraConfig` makes it read-only
            parsed = map(self._override, (*self.fixed, *words))
            task = [one.input_line for one in parsed if not one.is_hydra_override()]
            config.hydra.overrides.task = task
            config.hydra.job.override_dirname = self._dirname(config)
        return config

    def _composed(self, chosen: list[str]) -> DictConfig:
        if tuple(chosen) not in self._known:
            if len(self._known) == MOST_KNOWN:
                self._known.pop(next(iter(self._known)))
            self._known[tuple(chosen)] = compose(
                "config", [*self.fixed, *chosen], return_hydra_config=True
            )
        return self._known[tuple(chosen)]

    def _override(self, word: str) -> Override:
        if word not in self._parsed:
            [self._parsed[word]] = OverridesParser.create().parse_overrides([word])
        return self._parsed[word]

    def _is_value(self, word: str) -> bool:
        """Whether a word sets a plain value: it adds or deletes nothing and chooses no file."""
        override = self._override(word)
        key = str(override.key_or_group)
        plain = override.type == OverrideType.CHANGE and override.package is None
        plain = plain and not isinstance(override.value(), dict)  # Hydra merges those
        return plain and key not in FILES and "/" not in key and not key.startswith("hydra")

    def _dirname(self, config: DictConfig) -> str:
        style = config.hydra.job.config.override_dirname
        overrides = [self._override(word) for word in config.hydra.overrides.task]
        return get_overrides_dirname(
            overrides=overrides,
            kv_sep=style.kv_sep,
            item_sep=style.item_sep,
            exclude_keys=style.exclude_keys,
        )


_shipped = Composer([])
"""Of lines without files of their own, for later runs of the same process."""


def _first_job(words: list[str], config_dir: Path) -> DictConfig:
    """The configuration of a line that is no sweep, or of a sweep's first job."""
    own = any(word.startswith(("hydra.searchpath", "hydra.job")) for word in words)
    if not own and config_dir == conf_dir():
        with suppress(HydraException, OmegaConfBaseException):  # Hydra says it better below
            config = _shipped.job(words, fresh=True)
            config.hydra.runtime.cwd = os.getcwd()
            return config
    return compose("config", words, return_hydra_config=True)


TRUST_CODE = "--trust-code"
BASIC_SWEEPER = "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"


@dataclass(frozen=True)
class CommandLine:
    """A command line, parsed by Hydra's own parser.

    overrides: its words of the form key=value.
    multirun: whether it has -m.
    config_dir: the user's own configuration folder.
    trust_code: whether it has --trust-code: the folder of `resume=` may name any class.
    engine: words of the engine beside `resume=`, which belong to the engine of its folder.
    """

    overrides: list[str]
    multirun: bool
    config_dir: str | None
    trust_code: bool = False
    engine: tuple[str, ...] = ()

    @staticmethod
    def parse(args: list[str]) -> CommandLine:
        """Raises FedprivError for a flag that does not exist."""
        parser = get_args_parser()
        parser.error = _refuse  # type: ignore[method-assign]
        parser.add_argument(TRUST_CODE, action="store_true")
        refuse_flags(args)
        known = parser.parse_intermixed_args(args)
        for flag in ("config_name", "config_path", "package", "experimental_rerun"):
            if getattr(known, flag, None) is not None:
                raise FedprivError(
                    f"--{flag.replace('_', '-')} is not supported; --config-dir adds your own files"
                )
        require_folder(known.config_dir)
        trusts: bool = known.trust_code
        words: list[str] = known.overrides
        engine: list[str] = []
        if any(word.startswith("resume=") for word in words):
            engine = [word for word in words if word.startswith(("engine=", "engine."))]
            words = [word for word in words if word not in engine]
        elif trusts:
            raise FedprivError(f"{TRUST_CODE}: only for a folder that resume= names")
        overrides = with_listed_seeds(with_study(words))
        refuse_lone_words(overrides)
        return CommandLine(overrides, known.multirun, known.config_dir, trusts, tuple(engine))


def require_folder(config_dir: str | None) -> None:
    """Raise FedprivError for a --config-dir that is no folder."""
    if config_dir is not None and not Path(config_dir).is_dir():
        raise FedprivError(f"--config-dir {config_dir}: there is no such folder")


def _refuse(message: str) -> NoReturn:
    raise FedprivError(f"{message}; see fedpriv --help")


def compose_jobs(line: CommandLine, config_dir: Path) -> list[DictConfig]:
    """The configuration of every job of a command line: one, or every combination of a sweep, in
    order.

    Each configuration contains its `hydra` node. Raises FedprivError with a text of one line.
    """
    return [copy.deepcopy(config) for config in each_job(line, config_dir)]


def one_job(line: CommandLine, command: str) -> DictConfig:
    """The configuration of the only job of a command line. Raises FedprivError for several."""
    jobs = compose_jobs(line, conf_dir())
    if len(jobs) > 1:
        raise FedprivError(f"{command} runs once; name one value of each key")
    return jobs[0]


def one_experiment(*words: str) -> Experiment:
    """Compose and check the words of a command line without a sweep. Raises FedprivError."""
    [config] = compose_jobs(CommandLine.parse(list(words)), conf_dir())
    return build(config)


def each_job(
    line: CommandLine, config_dir: Path, given: Iterable[Sequence[str]] | None = None
) -> Iterator[DictConfig]:
    """Like `compose_jobs`, one by one; a configuration is valid until the next one is asked for.

    given: the words of each job, instead of all combinations. The line then only contributes its
        words for Hydra.
    """
    search = (
        [f"hydra.searchpath=[file://{Path(line.config_dir).resolve()}]"] if line.config_dir else []
    )
    with one_line_errors():
        GlobalHydra.instance().clear()
        with initialize_config_dir(str(config_dir), version_base="1.3"):
            searched = [word for word in line.overrides if _parsed(word).is_interval_sweep()]
            fixed, swept = split_words([word for word in line.overrides if word not in searched])
            if given is not None:
                composer = Composer(
                    [*search, *(word for word in fixed if word.startswith("hydra"))]
                )
                for words in given:
                    yield composer.job(list(words))
                return
            first = [*search, *fixed, *(f"{key}={values[0]}" for key, values in swept.items())]
            config = _first_job(first, config_dir)
            try:
                config.get("resume")  # an interpolation without a value fails here, with its key
            except OmegaConfBaseException as error:
                raise ConfigError("resume", "...", _one_line(error)) from error
            for key, values in (config.hydra.sweeper.get("params") or {}).items():
                if key not in swept and not any(word.split("=")[0] == key for word in fixed):
                    swept |= split_words([f"{key}={values}"])[1]
            if swept and not line.multirun and config.hydra.mode is None:
                key, values = next(iter(swept.items()))
                raise ConfigError(key, ",".join(values), "several values need -m (multirun)")
            if searched and config.hydra.sweeper.get("_target_") == BASIC_SWEEPER:
                key, _, value = searched[0].partition("=")
                raise ConfigError(key, value, "a value, unless hydra/sweeper=optuna searches it")
            if not swept or searched:  # the values that a sweeper searches are checked in each job
                yield config
                return
            combinations = itertools.product(
                *([f"{key}={value}" for value in swept[key]] for key in swept)
            )
            composer = Composer([*search, *fixed])
            for words in combinations:
                yield composer.job(list(words))


def without_hydra(config: DictConfig) -> DictConfig:
    """The configuration without its `hydra` node."""
    plain = OmegaConf.to_container(config, resolve=False)
    assert isinstance(plain, dict)
    plain.pop("hydra", None)
    return OmegaConf.create(plain)


def split_words(overrides: list[str]) -> tuple[list[str], dict[str, list[str]]]:
    """Overrides with one value, and the values of each key that is swept."""
    fixed: list[str] = []
    swept: dict[str, list[str]] = {}
    for word in overrides:
        parsed = _parsed(word)
        key = parsed.get_key_element()
        values = list(parsed.sweep_string_iterator()) if parsed.is_sweep_override() else []
        for one in [_parsed(f"{key}={value}") for value in values] or [parsed]:
            _require_name(key, one)
        if values:
            swept[key] = values
        else:
            fixed.append(word)
    return fixed, swept


def _require_name(key: str, parsed: Override) -> None:
    """Raise ConfigError when the value of a config group is not the name of a file."""
    name = key.lstrip("+~").partition("@")[0]
    value = parsed.value()
    if isinstance(value, str) and name in GROUPS:
        refuse_file(name, value)
    if parsed.is_delete() or isinstance(value, str):
        return
    if name in (*GROUPS, "experiment", "profile"):
        raise ConfigError(key, value, "one name of this config group")
    if name == "hydra":
        raise ConfigError(
            key, value, "set Hydra's keys as hydra.<key>=value; see fedpriv --hydra-help"
        )


def _parsed(word: str) -> Override:
    """A parsed word. Raises ConfigError when it does not have the form key=value."""
    key, equals, value = word.partition("=")
    if not key.strip() or not (equals or word.startswith("~")):
        raise FedprivError(f"{word}: expected key=value; see fedpriv --help")
    try:
        [parsed] = OverridesParser.create().parse_overrides([word])
    except HydraException as error:
        raise ConfigError(
            key, value, f"cannot be parsed ({_one_line(error)}); put special characters in quotes"
        ) from error
    return parsed


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn errors of Hydra and OmegaConf into a FedprivError with a text of one line."""
    try:
        yield
    except MissingConfigException as error:
        missing = str(error.missing_cfg_file)
        if missing.startswith("data/") and missing.lower().endswith(DATA_FILES):
            path = missing.removeprefix("data/")
            own = f"data=table data.path={path} data.label=... data.user=... reads a table"
            raise ConfigError("data", path, own) from error
        group, _, name = missing.rpartition("/")
        options = [str(option) for option in error.options or []]
        allowed = f"allowed: {', '.join(options)}" if options else "no such configuration file"
        hint = near(name, options)
        raise ConfigError(group or "config", name, f"not found; {hint}{allowed}") from error
    except OmegaConfBaseException as error:
        raise _key_error(error) from error
    except HydraException as error:
        cause = error.__cause__
        if isinstance(cause, OmegaConfBaseException):
            raise _key_error(cause) from error
        raise FedprivError(_one_line(error)) from error


def _key_error(error: OmegaConfBaseException) -> FedprivError:
    """The error for a wrong key, with the keys that exist beside it."""
    parent = error.parent_node
    if (
        isinstance(error, ConfigAttributeError | ConfigKeyError)
        and parent is not None
        and hasattr(parent, "keys")
    ):
        known = [str(key) for key in parent if not str(key).startswith("_") and key != "hydra"]
        root = parent._get_root()
        everywhere = [
            f"{group}.{key}"
            for group in GROUPS
            if hasattr(root.get(group), "keys")
            for key in root[group]
        ]
        return unknown_key(error.full_key or "config", known, everywhere)
    return FedprivError(f"{error.full_key or 'config'}: {_one_line(error)}")


def _one_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(
        line
        for line in lines
        if not line.startswith(("See https", "Set the environment", "full_key", "obj"))
    )
