"""The settings that a run's folder stores, for commands with `resume=folder`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fedpriv.errors import ConfigError, FedprivError, require
from fedpriv.runs.folder import CONFIG, RunFolder
from fedpriv.runs.journal import attempts, repeated
from fedpriv.settings.compose import CommandLine
from fedpriv.settings.experiment import Experiment, build
from fedpriv.settings.keys import file_values
from fedpriv.util.untrusted_files import links_and_devices, read_plain_yaml

RESUMABLE = ("rounds", "device", "quiet", "ledger")
"""Keys that a resumed run may change."""


def stored_config(line: CommandLine, folder: str, jobs: int) -> DictConfig:
    """The configuration of the run in `folder`, with the changes that `line` may make to it: words
    of `RESUMABLE` keys and of the engine.

    jobs: number of jobs of the command line.

    Raises ConfigError for other changes and for a folder without a run, FedprivError for a
    configuration that cannot be read.
    """
    if not (Path(folder) / CONFIG).is_file():
        raise ConfigError("resume", folder, "a folder of an earlier run (with config.yaml)")
    _refuse_links(Path(folder))
    changes = [word for word in line.overrides if word.split("=")[0] != "resume"]
    refused = [word for word in changes if word.split("=")[0] not in RESUMABLE]
    if refused or jobs > 1 or line.multirun:
        what = " ".join(refused) + " cannot be changed" if refused else "no sweep is possible"
        raise ConfigError("resume", folder, f"resumes with its stored settings; {what}")
    stored = read_config(Path(folder))
    words = [word for word in line.engine if not _names_engine_of(stored, word)]
    merged = OmegaConf.merge(stored, OmegaConf.from_dotlist([*changes, *words]))
    assert isinstance(merged, DictConfig)
    require_same_rounds(stored, merged.rounds)
    return merged


def _names_engine_of(stored: Mapping[str, Any], word: str) -> bool:
    """Whether a word names the engine of a run, as in its own command. Raises ConfigError for
    another one."""
    key, _, name = word.partition("=")
    own = stored.get("engine", {}).get("_target_")
    named = key == "engine"
    same = not named or file_values("engine", name).get("_target_") == own
    require(same, key, name, f"the engine of the run, {own}")
    return named


def require_same_rounds(stored: Mapping[str, Any], rounds: int) -> None:
    """Raise ConfigError when a run whose noise was solved for a target should have another number
    of rounds: the noise would change on the way.

    stored: its settings.
    rounds: asked for now.
    """
    target = stored.get("accountant", {}).get("target")
    before = stored["rounds"]
    allowed = f"{before}: the noise of accountant.target={target} was solved for {before} rounds"
    require(target is None or rounds == before, "rounds", rounds, allowed)


def read_config(folder: Path) -> dict[str, Any]:
    """The settings of a run's folder as plain values. Raises FedprivError when its config.yaml
    cannot be read."""
    path = folder / CONFIG
    try:
        tree = OmegaConf.to_container(OmegaConf.create(read_plain_yaml(path)))
        if found := next((value for value in _texts(tree) if "${" in value), None):
            raise ValueError(f"{found} would be computed; stored settings are values")
    except (yaml.YAMLError, OmegaConfBaseException, ValueError, OSError) as error:
        raise FedprivError(f"{path} is damaged ({' '.join(str(error).split())})") from error
    if not isinstance(tree, dict) or "rounds" not in tree:
        raise FedprivError(f"{path} is damaged: it does not contain a run's configuration")
    return {str(key): value for key, value in tree.items()}


def stored_experiment(line: CommandLine, folder: str, jobs: int) -> tuple[Experiment, DictConfig]:
    """The experiment of the run in `folder`, and its configuration (see `stored_config`). Classes
    outside fedpriv are imported only if `line` trusts the folder's code."""
    config = stored_config(line, folder, jobs)
    named = frozenset(word.partition("=")[0] for word in line.engine)
    return build(config, trust_code=line.trust_code, named=named), config


def _texts(tree: Any) -> Iterator[str]:
    """All keys and values of nested settings that are text."""
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, dict):
        for key, value in tree.items():
            yield from _texts(key)
            yield from _texts(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _texts(value)


def _refuse_links(folder: Path) -> None:
    """Raise FedprivError for a link in the folder: a resumed run would write to where it leads."""
    if found := next(links_and_devices(folder), None):
        raise FedprivError(f"{found}: a run's folder has files only, no links and no devices")


def rounds_repeated(folder: Path, *, system: bool) -> dict[int, int]:
    """Round: how many of its attempts the run has not recorded in its tables.

    system: whether the run draws system randomness. A seeded run repeats rounds bit for bit, so
        nothing is charged again.

    Raises FedprivError when the journal is missing.
    """
    run = RunFolder(folder)
    run.require_journal()
    saved = run.load_checkpoint()
    return repeated(attempts(folder), saved.round if saved else 0) if system else {}
