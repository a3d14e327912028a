"""Composing configurations from command lines, with Hydra's errors told in one line.

Every job of a sweep is composed and checked before the first one starts, so a typo in the last
value of a sweep costs no training time.
"""

from __future__ import annotations

import copy
import difflib
import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from fedpriv.errors import ConfigError, FedprivError

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override
    from omegaconf import DictConfig
    from omegaconf.errors import OmegaConfBaseException

    from fedpriv.settings.experiment import Experiment


@dataclass(frozen=True)
class CommandLine:
    """A command line taken apart by Hydra's own parser.

    overrides: its key=value words.
    multirun: whether it has -m.
    config_dir: a user's own configuration folder.
    """

    overrides: list[str]
    multirun: bool
    config_dir: str | None

    @staticmethod
    def parse(args: list[str]) -> CommandLine:
        """Raises FedprivError for a flag that does not exist."""
        from hydra._internal.utils import get_args_parser

        parser = get_args_parser()
        parser.error = _refuse  # type: ignore[method-assign]
        known = parser.parse_args(args)
        for flag in ("config_name", "config_path", "package", "experimental_rerun"):
            if getattr(known, flag, None) is not None:
                raise FedprivError(
                    f"--{flag.replace('_', '-')} is not supported; --config-dir adds your own files"
                )
        return CommandLine(known.overrides, known.multirun, known.config_dir)


def _refuse(message: str) -> NoReturn:
    raise FedprivError(f"{message}; see fedpriv --help")


def compose_jobs(line: CommandLine, config_dir: Path) -> list[DictConfig]:
    """The configuration of every job that the command line stands for: one, or with a sweep every
    combination in order.

    Each carries its `hydra` node. Raises FedprivError with one line.
    """
    return [copy.deepcopy(config) for config in each_job(line, config_dir)]


def one_experiment(*words: str) -> Experiment:
    """What words without a sweep stand for, checked. Raises FedprivError as the command would."""
    from fedpriv.settings.experiment import build
    from fedpriv.settings.help import conf_dir

    [config] = compose_jobs(CommandLine.parse(list(words)), conf_dir())
    return build(without_hydra(config))


def each_job(
    line: CommandLine, config_dir: Path, given: Iterable[Sequence[str]] | None = None
) -> Iterator[DictConfig]:
    """The same one after the other; each is good until the next comes.

    given: the words of each job in place of all combinations; only the line's words for Hydra are
        then looked at.
    """
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from omegaconf.errors import OmegaConfBaseException

    from fedpriv.settings.sweep_composer import Composer

    search = (
        [f"hydra.searchpath=[file://{Path(line.config_dir).resolve()}]"] if line.config_dir else []
    )
    with one_line_errors():
        GlobalHydra.instance().clear()
        with initialize_config_dir(str(config_dir), version_base="1.3"):
            searched = [word for word in line.overrides if _parsed(word).is_interval_sweep()]
            fixed, swept = _split([word for word in line.overrides if word not in searched])
            if given is not None:
                composer = Composer(
                    [*search, *(word for word in fixed if word.startswith("hydra"))]
                )
                for words in given:
                    yield composer.job(list(words))
                return
            first = [*search, *fixed, *(f"{key}={values[0]}" for key, values in swept.items())]
            config = compose("config", first, return_hydra_config=True)
            try:
                config.get(
                    "resume"
                )  # whoever asks for it later may not expect an interpolation without a value
            except OmegaConfBaseException as error:
                raise ConfigError("resume", "...", _one_line(error)) from error
            for key, values in (config.hydra.sweeper.get("params") or {}).items():
                if key not in swept and not any(word.split("=")[0] == key for word in fixed):
                    swept |= _split([f"{key}={values}"])[1]
            if swept and not line.multirun and config.hydra.mode is None:
                key, values = next(iter(swept.items()))
                raise ConfigError(key, ",".join(values), "several values need -m (multirun)")
            if (
                not swept or searched
            ):  # what a sweeper will choose is not known beforehand: each job is checked then
                yield config
                return
            combinations = itertools.product(
                *([f"{key}={value}" for value in swept[key]] for key in swept)
            )
            composer = Composer([*search, *fixed])
            for words in combinations:
                yield composer.job(list(words))


def without_hydra(config: DictConfig) -> DictConfig:
    """The configuration without Hydra's node."""
    from omegaconf import OmegaConf

    plain = OmegaConf.to_container(config, resolve=False)
    assert isinstance(plain, dict)
    plain.pop("hydra", None)
    return OmegaConf.create(plain)


def _split(overrides: list[str]) -> tuple[list[str], dict[str, list[str]]]:
    """Overrides with one value as they are, and the values of each that is a sweep."""
    from fedpriv.settings.experiment import GROUPS

    fixed: list[str] = []
    swept: dict[str, list[str]] = {}
    for word in overrides:
        parsed = _parsed(word)
        key = parsed.get_key_element()
        values = list(parsed.sweep_string_iterator()) if parsed.is_sweep_override() else []
        for one in [_parsed(f"{key}={value}") for value in values] or [parsed]:
            _require_name(key, one, groups=GROUPS)
        if values:
            swept[key] = values
        else:
            fixed.append(word)
    return fixed, swept


def _require_name(key: str, parsed: Override, *, groups: Collection[str]) -> None:
    """Raise ConfigError for a config group that gets anything but the name of a file."""
    name = key.lstrip("+~").partition("@")[0]
    value = parsed.value()
    if parsed.is_delete() or isinstance(value, str):
        return
    if name in groups or name in ("experiment", "profile"):
        raise ConfigError(key, value, "one name of this config group")
    if name == "hydra":
        raise ConfigError(
            key, value, "hydra's own keys are hydra.<key>=value; see fedpriv --hydra-help"
        )


def _parsed(word: str) -> Override:
    """A word taken apart. Raises ConfigError, naming its key, when it is no key=value."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    key, equals, value = word.partition("=")
    if not key.strip() or not (equals or word.startswith("~")):
        raise FedprivError(f"{word}: words are key=value; see fedpriv --help")
    try:
        [parsed] = OverridesParser.create().parse_overrides([word])
    except HydraException as error:
        raise ConfigError(
            key, value, f"cannot be read ({_one_line(error)}); quotes take any text"
        ) from error
    return parsed


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn what Hydra and OmegaConf raise for a user's mistake into one line."""
    from hydra.errors import HydraException, MissingConfigException
    from omegaconf.errors import OmegaConfBaseException

    try:
        yield
    except MissingConfigException as error:
        from fedpriv.settings.experiment import RENAMED

        group, _, name = str(error.missing_cfg_file).rpartition("/")
        options = [str(option) for option in error.options or []]
        near = difflib.get_close_matches(name, options, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        if now := RENAMED.get(f"{group}={name}"):
            hint = f"is now {now}; "
        allowed = (
            f"allowed: {', '.join(options)}"
            if options
            else "no such file in the configuration tree"
        )
        raise ConfigError(group or "config", name, f"not found; {hint}{allowed}") from error
    except OmegaConfBaseException as error:
        raise _key_error(error) from error
    except HydraException as error:
        cause = error.__cause__
        if isinstance(cause, OmegaConfBaseException):
            raise _key_error(cause) from error
        raise FedprivError(_one_line(error)) from error


def _key_error(error: OmegaConfBaseException) -> FedprivError:
    """Which key, and which keys exist beside it."""
    from omegaconf.errors import ConfigAttributeError, ConfigKeyError

    from fedpriv.settings.experiment import GROUPS, unknown_key

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
