"""The settings that a run's folder keeps, for commands that are given `resume=folder`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpriv.errors import ConfigError, FedprivError
from fedpriv.runs.folder import CONFIG, RunFolder
from fedpriv.runs.journal import NAME as BEGUN
from fedpriv.runs.journal import attempts, repeated
from fedpriv.settings.compose import CommandLine

if TYPE_CHECKING:
    from omegaconf import DictConfig

RESUMABLE = ("rounds", "device", "quiet")


def stored_config(line: CommandLine, target: str, jobs: int) -> DictConfig:
    """The configuration of the run in folder `target`, with the words of `line` that may be given
    beside it.

    jobs: how many the line stands for. Raises ConfigError for other words and for a folder without
    a run, FedprivError for a configuration that cannot be read.
    """
    from omegaconf import DictConfig, OmegaConf

    path = Path(target) / CONFIG
    if not path.is_file():
        raise ConfigError("resume", target, "a folder of an earlier run (with config.yaml)")
    changes = [word for word in line.overrides if word.split("=")[0] != "resume"]
    refused = [word for word in changes if word.split("=")[0] not in RESUMABLE]
    if refused or jobs > 1 or line.multirun:
        named = " ".join(refused) or "a sweep"
        raise ConfigError(
            "resume", target, f"goes on with its stored settings: {named} cannot be given beside it"
        )
    merged = OmegaConf.merge(
        OmegaConf.create(loaded(Path(target))), OmegaConf.from_dotlist(changes)
    )
    assert isinstance(merged, DictConfig)
    return merged


def loaded(folder: Path) -> dict[str, Any]:
    """The settings of a run's folder as plain values. Raises FedprivError when its config.yaml
    cannot be read."""
    import yaml
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    path = folder / CONFIG
    try:
        tree = OmegaConf.to_container(OmegaConf.load(path))
    except (yaml.YAMLError, OmegaConfBaseException, ValueError, OSError) as error:
        raise FedprivError(f"{path} is damaged ({' '.join(str(error).split())})") from error
    if not isinstance(tree, dict) or "rounds" not in tree:
        raise FedprivError(f"{path} is damaged: it is no run's configuration")
    return {str(key): value for key, value in tree.items()}


def rounds_repeated(folder: Path, *, system: bool) -> dict[int, int]:
    """How often rounds of a run were begun besides the one time that each counts in its table; none
    where rounds are repeated to the same bits. Raises FedprivError when what was begun is not
    known."""
    saved = RunFolder(folder).load_checkpoint()
    done = saved.round if saved else 0
    if saved and not (folder / BEGUN).exists():
        raise FedprivError(
            f"{folder / BEGUN} is missing: what the run has shown so far is not known"
        )
    return repeated(attempts(folder), done) if system else {}
