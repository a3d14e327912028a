"""What somebody may have meant by words that fedpriv cannot read."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from fedpriv.errors import ConfigError, FedprivError
from fedpriv.settings.help import conf_dir

DATA_FILES = (".csv", ".tsv", ".txt", ".parquet", ".json", ".jsonl", ".xlsx", ".npz", ".npy", ".gz")
SYNONYMS = {
    "epsilon": "accountant.target",
    "eps": "accountant.target",
    "target_epsilon": "accountant.target",
    "target": "accountant.target",
    "budget": "accountant.budget",
    "delta": "accountant.delta",
    "learning_rate": "algo.local_lr",
    "epochs": "algo.local_epochs",
    "noise": "algo.noise_multiplier",
    "sigma": "algo.noise_multiplier",
    "users": "allocator.n_users",
    "silos": "allocator.n_silos",
    "clients": "allocator.n_silos",
    "gpu": "device",
    "cuda": "device",
    "n_rounds": "rounds",
    "num_rounds": "rounds",
    "iterations": "rounds",
    "steps": "rounds",
    "seeds": "seed",
    "dataset": "data",
    "method": "algo",
    "algorithm": "algo",
    "attack": "fedpriv audit",
    "out": "hydra.run.dir",
    "output": "hydra.run.dir",
    "output_dir": "hydra.run.dir",
}
"""Names that other programs have for a setting."""
TABLE_KEYS = ("path", "label", "user", "silo", "schema", "missing", "drop", "time", "test")
"""Keys of data=table for which somebody may have left data=table out."""


def is_setting(name: str) -> bool:
    """Whether a word is the name of a setting: a top-level key, or a key of a group."""
    import yaml

    tree = yaml.safe_load((conf_dir() / "config.yaml").read_text())
    groups = {path.name for path in conf_dir().iterdir() if path.is_dir()}
    first, dot, _ = name.partition(".")
    return first in groups if dot else name in groups | tree.keys() - {"defaults"}


def groups_of(name: str) -> list[str]:
    """The config groups that have a file of this name, whatever its case and dashes."""
    plain = _plain(name)
    files = sorted(conf_dir().glob("*/*.yaml"))
    return [f"{file.parent.name}={file.stem}" for file in files if _plain(file.stem) == plain]


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")


def refuse_lone_word(word: str, following: str | None) -> None:
    """Raise FedprivError for a word without "=" that is recognised; return for any other.

    following: the next word of the command line, if there is one.
    """
    name, colon, value = word.partition(":")
    if colon and is_setting(name) and value:
        raise FedprivError(f"{word}: settings have an equals sign; write {name}={value}")
    if is_setting(word):
        value = following if following and _is_value(following) else "VALUE"
        raise FedprivError(f"{word}: settings have an equals sign; write {word}={value}")
    if named := groups_of(word):
        raise FedprivError(f"{word}: did you mean {' or '.join(named)}?")
    path = Path(word)
    if path.suffix.lower() in DATA_FILES:
        raise FedprivError(f"{word}: {_own_data(word)}")
    if path.is_dir() and (path / "config.yaml").is_file():
        raise FedprivError(
            f"{word}: a run's folder; resume={word} continues it, and fedpriv table {word} shows it"
        )


def _is_value(word: str) -> bool:
    return not word.startswith("-") and "=" not in word


def refuse_lone_words(words: Sequence[str]) -> None:
    """`refuse_lone_word` for all words of a command line."""
    for word, following in pairwise([*words, None]):
        if word is not None and "=" not in word and not word.startswith(("~", "-")):
            refuse_lone_word(word, following)


def refuse_flags(args: Sequence[str]) -> None:
    """Raise FedprivError for a flag that is a setting, such as --rounds=5 or --rounds 5."""
    for word, following in pairwise([*args, None]):
        if word is None or not word.startswith("--"):
            continue
        name, equals, value = word.lstrip("-").replace("-", "_").partition("=")
        if is_setting(name) and name != "hydra":
            if not equals:
                value = following if following and _is_value(following) else "VALUE"
            raise FedprivError(f"{word}: settings have no dashes; write {name}={value}")


def refuse_file(group: str, value: str) -> None:
    """Raise ConfigError for the path of a file in place of the name of a configuration file."""
    suffix = Path(value).suffix.lower()
    is_path = value.startswith(("/", "./", "../", "~")) or suffix in (*DATA_FILES, ".py", ".yaml")
    if not is_path:
        return
    if group == "data":
        raise ConfigError(group, value, _own_data(value))
    file = f"{group}/name.yaml"
    raise ConfigError(
        group, value, f"a name, not a path; --config-dir folder finds your own folder/{file}"
    )


def _own_data(path: str) -> str:
    """How a file of one's own is used."""
    if (conf_dir() / "data" / "table.yaml").is_file():
        return f"a name, not a path; your own file: data=table data.path={path}"
    return "a name, not a path; docs/extending/data.md shows how to add your own data"
